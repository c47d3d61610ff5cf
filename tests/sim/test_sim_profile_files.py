"""Profiles in files: the schema, what is refused, and the version 4 reader."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sim.profile import (
    SCHEMA,
    SCHEMA_V4,
    ProfileError,
    ProfileInvariantError,
    ProfileObject,
    RemovedFieldError,
    check_profile,
    read_profile,
    write_profile,
)
from tests.sim.test_sim_profile_example import example

REMOVED = ["total_stage_wall_cycles", "cycle_fraction", "ramulator_proxy"]


def version_4() -> dict[str, Any]:
    """A profile as version 4 has it: no dispatch, fewer stages, buckets of its own."""
    profile = example()
    del profile["dispatch"]
    profile["schema_version"] = 4
    for label in ("residual_setup", "non_moe"):
        del profile["stages"][label]
    for stage in profile["stages"].values():
        stage["resource_proxy_picos"]["layout"] = 0
    profile["total_simulation_picos"] = None
    return profile


def put(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def paths(value: Any, here: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path to every member of every object."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield (*here, name)
            yield from paths(member, (*here, name))


def parent(profile: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    for name in path[:-1]:
        profile = profile[name]
    return profile


def test_the_schemas_are_schemas_and_accept_their_versions() -> None:
    for schema, profile in ((SCHEMA, example()), (SCHEMA_V4, version_4())):
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(profile)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_a_profile_comes_back_as_it_was_written_in_order(tmp_path: Path) -> None:
    profile = example()
    write_profile(profile, tmp_path / "stage_profile.json")
    read = read_profile(tmp_path / "stage_profile.json")
    assert read == profile
    assert list(read["stages"]) == list(profile["stages"])
    assert list(read["pairs"]) == ["2", "10"]
    assert [p.name for p in tmp_path.iterdir()] == ["stage_profile.json"]


def test_an_invalid_profile_is_not_written_and_leaves_the_old_file(tmp_path: Path) -> None:
    target = put(tmp_path / "p.json", "old")
    profile = example()
    profile["stages"]["gather"]["wall_picos"] = 1
    with pytest.raises(ProfileInvariantError):
        write_profile(profile, target)
    assert target.read_text(encoding="utf-8") == "old"


def test_version_4_is_accepted(tmp_path: Path) -> None:
    read = read_profile(put(tmp_path / "p.json", version_4()))
    assert read["total_simulation_picos"] is None
    assert "dispatch" not in read


@pytest.mark.parametrize("version", [1, 2, 3, 6, None, "5", 5.0, 5.5, True])
def test_other_versions_are_refused(version: object, tmp_path: Path) -> None:
    path = put(tmp_path / "p.json", {**example(), "schema_version": version})
    with pytest.raises(ProfileError, match="only 4 and 5 can be read") as caught:
        read_profile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_field_is_an_error_by_name_not_none(name: str, tmp_path: Path) -> None:
    read = read_profile(put(tmp_path / "p.json", example()))
    gather = read["stages"]["gather"]
    for place in (read, gather, gather["resource_proxy_cycles"], read["dispatch"]):
        assert isinstance(place, ProfileObject)
        with pytest.raises(RemovedFieldError, match=f"{name} was removed"):
            place[name]
        with pytest.raises(RemovedFieldError, match=f"{name} was removed"):
            place.get(name)
        with pytest.raises(RemovedFieldError, match=f"{name} was removed"):
            place.get(name, 0)
    assert not issubclass(RemovedFieldError, KeyError)


def test_other_members_behave_as_in_any_dict(tmp_path: Path) -> None:
    read = read_profile(put(tmp_path / "p.json", example()))
    assert read.get("nonsense") is None
    assert read.get("nonsense", 3) == 3
    assert read.get("label_count") == 6
    with pytest.raises(KeyError, match="nonsense"):
        read["nonsense"]


@pytest.mark.parametrize("make", [example, version_4])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("total_stage_wall_cycles", ()),
        ("cycle_fraction", ("stages", "gather")),
        ("ramulator_proxy", ("stages", "gather", "resource_proxy_cycles")),
    ],
)
def test_a_file_with_a_removed_field_is_refused(
    make: Any, name: str, path: tuple[str, ...], tmp_path: Path
) -> None:
    profile = make()
    parent(profile, (*path, name))[name] = 0
    with pytest.raises(RemovedFieldError, match=f"p.json: {name} was removed"):
        read_profile(put(tmp_path / "p.json", profile))


def schema_paths(profile: dict[str, Any]) -> list[tuple[str, ...]]:
    """The paths of which the schema says something, with one stage for all that are alike."""
    alike = {*profile["stages"]} - {"expert_projection"}
    return [
        path
        for path in paths(profile)
        if not alike & set(path[:-1]) and path[:4] != ("dispatch", "config", "fields", path[-1])
    ]


def refuses(profile: dict[str, Any]) -> bool:
    try:
        check_profile(profile)
    except ProfileError:
        return True
    return False


def test_every_missing_field_is_caught() -> None:
    profile = example()
    checked = 0
    for path in schema_paths(profile):
        if path[0] == "pairs" and (len(path) == 2 or path[2:] == ("stages", path[-1])):
            continue  # a pair, or a stage of it, may be absent
        home = parent(profile, path)
        before = dict(home)
        del home[path[-1]]
        assert refuses(profile), path
        home.clear()
        home.update(before)  # in the old order
        checked += 1
    assert checked > 200
    check_profile(profile)


def fits(name: str, value: Any, wrong: Any) -> bool:
    """Whether `wrong` would be right after all: text, a list of it, a flag, a time, an object."""
    return (
        (isinstance(value, str | list | bool) and isinstance(wrong, type(value)))
        or (name in ("seconds", "total_profiled_seconds") and wrong == 1.5)
        or (name == "fields" and isinstance(wrong, dict))
    )


def test_every_mistyped_field_is_caught() -> None:
    profile = example()
    candidates: Iterator[Any] = itertools.cycle(["1", 1.5, -1, [], {"a": 1}, True])
    for path in schema_paths(profile):
        home, name = parent(profile, path), path[-1]
        value = home[name]
        wrong = next(w for w in candidates if not fits(name, value, w))
        home[name] = wrong
        assert refuses(profile), (path, wrong)
        home[name] = value
    check_profile(profile)


def test_the_message_leads_to_the_field() -> None:
    profile = example()
    profile["stages"]["gather"]["wall_picos"] = "12"
    with pytest.raises(ProfileError, match=r"stages\.gather\.wall_picos: '12' is not of type"):
        check_profile(profile)
    profile = example()
    profile["extra"] = 1
    with pytest.raises(ProfileError, match=r"the profile: .*'extra' was unexpected"):
        check_profile(profile)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("stages", "gather", "wall_picos"), 1500, "wall_picos_add_up: all stages: 151500"),
        (("stages", "gather", "instructions"), 1, "instructions_add_up: all stages: 21"),
        (
            ("stages", "gather", "physical_hbm_bytes_read"),
            64,
            "physical_hbm_bytes_read_add_up: all stages: 576",
        ),
        (("total_hbm_bytes_written",), 0, "physical_hbm_bytes_written_add_up: all stages: 64"),
        (("stages", "non_moe", "wall_cycles"), 6, "cycles_view_picos: non_moe: 6"),
        (
            ("dispatch", "stages", "gather", "completed"),
            1,
            "instructions_completed: gather: 0 instructions, but 1",
        ),
        (
            ("classification", "stage_instruction_counts", "gather"),
            1,
            "instructions_counted: gather: 0 instructions, but 1",
        ),
        (
            ("dispatch", "stages", "gather", "stall_cycles", "fetch"),
            1,
            "dispatch_slots_equal_total: all stages: 101",
        ),
        (
            ("cycle_accounting_status",),
            "profiled_time_does_not_match_total",
            "the totals say 'profiled_time_matches_total'",
        ),
    ],
)
def test_figures_that_contradict_each_other(
    path: tuple[str, ...], value: object, message: str
) -> None:
    profile = example()
    parent(profile, path)[path[-1]] = value
    with pytest.raises(ProfileError, match=re.escape(message)):
        check_profile(profile)


def test_the_order_of_stages_and_pairs_is_part_of_the_format() -> None:
    for section in ("stages", "pairs"):
        profile = example()
        profile[section] = dict(reversed(profile[section].items()))
        with pytest.raises(ProfileError, match=f"{section}: .*order"):
            check_profile(profile)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"a": NaN}', "{", "\x00", "[" * 100_000, '{"stages": {}}']
)
def test_files_that_are_no_profiles(text: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"p\.json: "):
        read_profile(put(tmp_path / "p.json", text))
    (tmp_path / "p.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match=r"p\.json: not JSON"):
        read_profile(tmp_path / "p.json")


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    profile = {**example(), "total_profiled_seconds": float("nan")}
    with pytest.raises(ProfileError, match="NaN is not a JSON number"):
        read_profile(put(tmp_path / "p.json", profile))
