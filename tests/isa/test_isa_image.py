"""Image files: round trip, damage, foreign vocabularies, and the machine that a program is for."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.image import (
    AT_LEAST_FIELDS,
    IGNORED_FIELDS,
    VOCABULARY,
    ImageError,
    ProgramImage,
    write_atomically,
)
from isa.image_schema import checksum
from isa.stages import Stage

TINY = PRESETS["tiny"]
SOURCE = """\
; @stage=gather pair=3 \u00e9\u2028"quoted"
start: S_ADDI_INT gp1, gp0, 262143
; @stage=expert_bias
C_BREAK
; @stage=non_moe
.word 0x3F
end:
"""


def make() -> ProgramImage:
    """The image that the tests damage."""
    return assemble(SOURCE, config=TINY)


def with_content(path: Path, image: ProgramImage, **changes: Any) -> Path:
    """Save `image` with other content and a matching checksum."""
    image.save(path)
    document = json.loads(path.read_bytes())
    document["content"] |= changes
    document["sha256"] = checksum(document["content"])
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def load_error(path: Path, **options: bool) -> str:
    """The text of the error that loading gives; it must name the file."""
    with pytest.raises(ImageError) as caught:
        ProgramImage.load(path, **options)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    return text


def test_round_trip(tmp_path: Path) -> None:
    image = dataclasses.replace(make(), emitters={"moe": {"words": 3}})
    image.save(tmp_path / "p.json")
    loaded = ProgramImage.load(tmp_path / "p.json")
    assert loaded == image
    assert hash(loaded) == hash(image)
    assert loaded.words.tolist() == [0xFFFFC062, 0x34, 0x3F]
    assert loaded.words.dtype == np.uint32
    assert loaded.stages.dtype == np.uint8
    assert loaded.pairs.tolist() == [3, 3, -1]
    assert loaded.lines.tolist() == [2, 4, 6]
    assert loaded.symbols == {"start": 0, "end": 3}
    assert loaded.source == image.source
    assert loaded.vocabulary == VOCABULARY == tuple(s.label for s in Stage)
    assert loaded.emitters == {"moe": {"words": 3}}
    assert loaded.config == dataclasses.asdict(TINY)


def test_equal_means_equal_content() -> None:
    assert make() == make()
    assert make() != dataclasses.replace(make(), pairs=np.array([3, 3, 0]))
    assert make() != "image"


def test_columns_are_read_only_copies() -> None:
    words = np.array([52], np.uint32)
    image = ProgramImage(
        words=words,
        stages=np.zeros(1, np.uint8),
        pairs=np.array([-1]),
        lines=np.array([1]),
        source=("C_BREAK",),
    )
    words[0] = 0
    assert image.words.tolist() == [52]
    with pytest.raises(ValueError, match="read-only"):
        image.words[0] = 1


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    image = assemble("; @stage=gather\nC_BREAK")
    image.save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        assert "not JSON, or cut short" in load_error(path)
    for position in range(len(whole) - 1):
        damaged = bytearray(whole)
        damaged[position] ^= 0x04
        path.write_bytes(damaged)
        load_error(path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("sha256"), "$: 'sha256' is a required property"),
        (lambda d: d["content"].pop("pairs"), "$.content: 'pairs' is a required property"),
        (lambda d: d.update(version=2), "$.version: 1 was expected"),
        (lambda d: d.update(format="elf"), "$.format: 'plena-program-image' was expected"),
        (lambda d: d.update(extra=1), "$: Additional properties are not allowed"),
        (lambda d: d["content"].update(more=1), "$.content: Additional properties"),
        (lambda d: d["content"].update(words="x"), "$.content.words: 'x' is not of type 'array'"),
        (lambda d: d["content"]["words"].append(0), "the checksum does not match"),
        (lambda d: d["content"].update(emitters=[1] * 500), " ... "),
    ],
)
def test_structure_is_validated(
    edit: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    make().save(path)
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    text = load_error(path)
    assert message in text
    assert text.endswith("; assemble the program again")
    assert len(text) < 500


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": [1, 2, 3, 4]}, "stages has 3 elements for 4 words"),
        ({"pairs": [-1, -1]}, "pairs has 2 elements for 3 words"),
        ({"lines": [1, 2, 9]}, "lines[2] = 9: the source has 1 to 7"),
        ({"lines": [0, 2, 3]}, "lines[0] = 0: the source has 1 to 7"),
        ({"words": [1, 2, 1 << 32]}, "words[2] = 4294967296: must be an integer 0 to 4294967295"),
        ({"words": [1, -2, 3]}, "words[1] = -2: must be an integer 0 to"),
        ({"words": [1, 2.0, 3]}, "words[1] = 2.0: must be an integer"),
        ({"words": [1, True, 3]}, "words[1] = True: must be an integer"),
        ({"words": [1, "2", 3]}, "words[1] = '2': must be an integer"),
        ({"words": [[1], [2], [3]]}, "words[0] = [1]: must be an integer"),
        ({"pairs": [-1, -2, 0]}, "pairs[1] = -2: the pair numbers has -1 to"),
        ({"stages": [0, 1, 16]}, "stages[2] = 16: the vocabulary has 0 to 15"),
        ({"symbols": {"end": 4}}, "symbol 'end' = 4: must be 0 to 3, the length"),
        ({"symbols": {"end": -1}}, "$.content.symbols.end: -1 is less than the minimum of 0"),
        ({"tag_origin": "guess"}, "$.content.tag_origin: 'guess' is not one of"),
        ({"vocabulary": ["gather"] * 16}, "has non-unique elements"),
        ({"vocabulary": []}, "$.content.vocabulary"),
    ],
)
def test_content_is_cross_checked(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in load_error(with_content(tmp_path / "p.json", make(), **changes))


def test_stages_are_mapped_by_name(tmp_path: Path) -> None:
    foreign = ["other", "non_moe", "expert_bias", "gather"]
    path = with_content(tmp_path / "p.json", make(), vocabulary=foreign, stages=[3, 2, 1])
    loaded = ProgramImage.load(path)
    assert loaded.stages.tolist() == [Stage.GATHER, Stage.EXPERT_BIAS, Stage.NON_MOE]
    assert loaded == make()


def test_an_unknown_stage_name_is_an_error_or_keeps_the_stage_before(tmp_path: Path) -> None:
    foreign = ["warp", "gather", "weft"]
    path = with_content(
        tmp_path / "p.json",
        assemble("C_BREAK\n" * 5),
        vocabulary=foreign,
        stages=[0, 1, 2, 0, 1],
    )
    text = load_error(path)
    assert "stage names that are not in the vocabulary: warp, weft; correct the markers, or" in text
    loaded = ProgramImage.load(path, strict=False)
    assert [Stage(s).label for s in loaded.stages] == ["other", *["gather"] * 4]
    assert loaded.unresolved_stage_markers == ("warp", "weft")
    assert loaded.vocabulary == VOCABULARY


def test_an_image_of_unresolved_markers_is_refused_by_a_strict_loader(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    assemble("; @stage=gathr\nC_BREAK", strict=False).save(path)
    assert "not in the vocabulary: gathr" in load_error(path)
    assert ProgramImage.load(path, strict=False).unresolved_stage_markers == ("gathr",)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in load_error(tmp_path / "none.json")
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    assert "not JSON" in load_error(tmp_path / "b")
    (tmp_path / "n").write_text("[" * 100_000, encoding="utf-8")
    assert "not JSON" in load_error(tmp_path / "n")
    (tmp_path / "l").write_text("[]", encoding="utf-8")
    assert "$: [] is not of type 'object'" in load_error(tmp_path / "l")


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": {1, 2}}, {"x": "\ud800"}])
def test_a_value_that_json_cannot_carry_leaves_the_old_file(
    value: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    make().save(path)
    with pytest.raises(ImageError, match="JSON cannot carry"):
        dataclasses.replace(make(), emitters=value).save(path)
    assert ProgramImage.load(path) == make()
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.json"
    write_atomically(path, b"old")

    def full_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:1])
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_configuration_fields_are_sorted_into_classes() -> None:
    known = {f.name for f in dataclasses.fields(TINY)}
    assert known >= AT_LEAST_FIELDS | IGNORED_FIELDS
    assert not AT_LEAST_FIELDS & IGNORED_FIELDS
    exact = {"MLEN", "BLEN", "HLEN", "MX_BLOCK", "HBM_M_PREFETCH", "MX_KV"}
    assert exact <= known - AT_LEAST_FIELDS - IGNORED_FIELDS


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"HBM_LATENCY": 1, "HBM_QUEUE": 1, "HBM_OUTSTANDING": 1, "HBM_CYCLES_PER_BEAT": 3},
        {"ISSUE": "serial", "INFLIGHT": 2, "SFU_LANES": 2, "CLOCK_PERIOD_PS": 5},
        {"VRAM_ROWS": 2048, "MRAM_TILES": 32, "HBM_BYTES": 32 << 30, "TOPK_MAX": 32},
        {"IMEM_WORDS": 3},
    ],
)
def test_a_machine_that_only_differs_in_time_or_has_more_is_accepted(
    changes: dict[str, Any],
) -> None:
    make().check_config(TINY.replace(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"BLEN": 2}, "BLEN: the program was made for 4 (configuration 'tiny'), the machine has 2"),
        ({"HBM_V_PREFETCH": 8}, "HBM_V_PREFETCH: the program was made for 4"),
        ({"MX_BLOCK": 4}, "MX_BLOCK: the program was made for 8"),
        (
            {"mx_dialect": "plena"},
            "mx_dialect: the program was made for ocp (configuration 'tiny')",
        ),
        ({"VRAM_ROWS": 512}, "VRAM_ROWS: the program was made for 1024"),
        ({"LOOP_DEPTH": 7}, "the machine has 7 (configuration 'tiny') and needs at least as much"),
        ({"IMEM_WORDS": 2}, "the program has 3 words, configuration 'tiny' has IMEM_WORDS = 2"),
    ],
)
def test_a_machine_on_which_the_program_means_something_else_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImageError) as caught:
        make().check_config(TINY.replace(**changes))
    assert message in str(caught.value)


def test_a_field_of_another_version_must_be_known() -> None:
    assert make().config is not None
    more = dataclasses.replace(make(), config={**(make().config or {}), "BMM_SCALE": 2})
    with pytest.raises(ImageError, match=r"BMM_SCALE: the program was made for 2 .* has .absent."):
        more.check_config(TINY)
    fewer = dataclasses.replace(make(), config={"name": "old"})
    with pytest.raises(ImageError, match=r"BLEN: the program was made for .absent. "):
        fewer.check_config(TINY)


def test_an_image_for_no_machine_is_only_checked_for_length() -> None:
    image = assemble("C_BREAK\n" * 3)
    image.check_config(TINY)
    with pytest.raises(ImageError, match="has 3 words"):
        image.check_config(TINY.replace(IMEM_WORDS=2))


def test_listing_shows_word_stage_pair_instruction_and_source() -> None:
    lines = make().listing().splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "pc word stage pair instruction line: source",
        "start:",
        "0 FFFFC062 gather 3 S_ADDI_INT gp1, gp0, 262143 2: start: S_ADDI_INT gp1, gp0, 262143",
        "1 00000034 expert_bias 3 C_BREAK 4: C_BREAK",
        "2 0000003F non_moe - .word 0x0000003F ; ILLEGAL_OPCODE 6: .word 0x3F",
        "end:",
    ]


def test_stage_counts_in_vocabulary_order() -> None:
    assert list(make().stage_counts().items()) == [
        ("gather", 1),
        ("expert_bias", 1),
        ("non_moe", 1),
    ]
    assert assemble("").stage_counts() == {}
