"""What `python -m isa.contract` reads, and what it refuses to guess."""

import pytest

from isa import contract
from isa.contract import problems, read_contract
from isa.module_constants import ContractError
from isa.stages import Stage

NOTE = "a caveat"
SET = '{"a", "b"}'

#: The right-hand side of MOE_STAGES, or a whole module that has SHARED_VS_ROUTED_NOTE too.
ACCEPTED_SETS = {
    "single quotes": "MOE_STAGES = {'a', 'b'}",
    "a comment with braces": 'MOE_STAGES = {\n    "a",  # not {"c"} nor }\n    "b",\n}',
    "frozenset of a set": 'MOE_STAGES = frozenset({"a", "b"})',
    "frozenset of a list": 'MOE_STAGES = frozenset(["a", "b"])',
    "set of a tuple": 'MOE_STAGES = set(("a", "b"))',
    "frozenset union": 'MOE_STAGES = frozenset({"a"}) | frozenset({"b"})',
    "set union": 'MOE_STAGES = {"a"} | {"b"} | {"a"}',
    "union method": 'MOE_STAGES = frozenset({"a"}).union({"b"}, ["a"])',
    "implicit concatenation": 'MOE_STAGES = {"a", ""\n    "b" ""}',
    "annotated": 'MOE_STAGES: frozenset[str] = frozenset({"a", "b"})',
    "annotated first": 'MOE_STAGES: set[str]\nMOE_STAGES = {"a", "b"}',
    "annotated after": 'MOE_STAGES = {"a", "b"}\nMOE_STAGES: set[str]',
    "re-assigned": 'MOE_STAGES = {"c"}\nMOE_STAGES = {"a", "b"}',
    "re-assigned from a computed one": 'MOE_STAGES = load()\nMOE_STAGES = {"a", "b"}',
    "re-assigned after a condition": 'if x:\n    MOE_STAGES = {"c"}\nMOE_STAGES = {"a", "b"}',
    "a list": 'MOE_STAGES = ["a", "b"]',
    "keys of a dictionary": 'MOE_STAGES = {"a": 0, "b": f()}',
    "two targets": 'STAGES = MOE_STAGES = {"a", "b"}',
    "a docstring that shows another": (
        '"""Usage:\n\nMOE_STAGES = {"c"}\n"""\nMOE_STAGES = {"a", "b"}'
    ),
    "a local of the same name": (
        'MOE_STAGES = {"a", "b"}\ndef f():\n    MOE_STAGES = {"c"}\n    MOE_STAGES.add("d")\n'
    ),
    "a parameter of the same name": (
        'MOE_STAGES = {"a", "b"}\ndef f(MOE_STAGES):\n    MOE_STAGES.clear()\n'
    ),
    "an attribute of a class": 'MOE_STAGES = {"a", "b"}\nclass C:\n    MOE_STAGES = {"c"}\n',
    "read elsewhere": 'MOE_STAGES = {"a", "b"}\nx = "c" in MOE_STAGES\ny = MOE_STAGES | {"c"}\n',
    "decoys in strings and comments": (
        'x = "MOE_STAGES = {1}"\n# MOE_STAGES = {"c"}\nMOE_STAGES = {"a", "b"}  # = {"d"}\n'
        "MOE_STAGES_OLD = {'e'}\nobj.MOE_STAGES = {'f'}\nd['MOE_STAGES'] = {'g'}\n"
        "f(MOE_STAGES={'h'})\n"
    ),
}


@pytest.mark.parametrize("name", ACCEPTED_SETS)
def test_sets_that_are_read(name: str) -> None:
    source = f"{ACCEPTED_SETS[name]}\nSHARED_VS_ROUTED_NOTE = '{NOTE}'\n"
    assert read_contract(source).stages == {"a", "b"}
    assert read_contract(source.encode()).stages == {"a", "b"}


ACCEPTED_NOTES = {
    "double quotes": ('"it\'s"', "it's"),
    "single quotes": ("'say \"x\"'", 'say "x"'),
    "implicit concatenation": ('("one "\n    "two"\n    \' three\')', "one two three"),
    "triple quotes": ('"""one\ntwo\n"""', "one\ntwo\n"),
    "escapes": ('"tab\\t\\u00e9"', "tab\té"),
    "raw": ("r'a\\n'", "a\\n"),
    "braces and hashes": ("'{x} # no comment'", "{x} # no comment"),
    "a decoy inside": ("'SHARED_VS_ROUTED_NOTE = 1'", "SHARED_VS_ROUTED_NOTE = 1"),
    "backslash at the end of a line": ('"one \\\ntwo"', "one two"),
    "re-assigned": ("f()\nSHARED_VS_ROUTED_NOTE = 'last'", "last"),
}


@pytest.mark.parametrize("name", ACCEPTED_NOTES)
def test_notes_that_are_read(name: str) -> None:
    text, note = ACCEPTED_NOTES[name]
    assert read_contract(f"MOE_STAGES = {SET}\nSHARED_VS_ROUTED_NOTE = {text}\n").note == note
    annotated = f"MOE_STAGES = {SET}\nSHARED_VS_ROUTED_NOTE: str = {text}\n"
    assert read_contract(annotated).note == note


REFUSED_SETS = {
    "absent": ("X = 1", "does not bind it"),
    "annotation without a value": ("MOE_STAGES: set[str]", "annotated but has no value"),
    "computed from another": ('B = {"a"}\nMOE_STAGES = B | {"b"}', "is computed"),
    "comprehension": ('MOE_STAGES = {s for s in ("a", "b")}', "is computed"),
    "conditional": ('MOE_STAGES = {"a"} if x else {"b"}', "is computed"),
    "difference": ('MOE_STAGES = {"a", "b"} - {"b"}', "is computed"),
    "intersection": ('MOE_STAGES = {"a"} & {"a"}', "is computed"),
    "union of a list": ('MOE_STAGES = {"a"} | ["b"]', "is computed"),
    "a call": ("MOE_STAGES = load_stages()", "is computed"),
    "frozenset of a call": ("MOE_STAGES = frozenset(names())", "is computed"),
    "frozenset of a string": ('MOE_STAGES = frozenset("ab")', "is computed"),
    "frozenset with a keyword": ('MOE_STAGES = frozenset(x={"a"})', "is computed"),
    "split": ('MOE_STAGES = set("a b".split())', "is computed"),
    "a look-up": ("MOE_STAGES = stages.ALL", "is computed"),
    "a scalar": ('MOE_STAGES = "a"', "is computed"),
    "None": ("MOE_STAGES = None", "is computed"),
    "a number in it": ('MOE_STAGES = {"a", 1}', "no string literal"),
    "bytes in it": ('MOE_STAGES = {"a", b"b"}', "no string literal"),
    "an f-string in it": ('MOE_STAGES = {"a", f"{x}"}', "no string literal"),
    "a name in it": ('MOE_STAGES = {"a", B}', "no string literal"),
    "a star in it": ('MOE_STAGES = {"a", *B}', "no string literal"),
    "a sum in it": ('MOE_STAGES = {"a" + "b"}', "no string literal"),
    "two stars in it": ('MOE_STAGES = {"a": 1, **B}', "has ** in it"),
    "local to a function": ('def f():\n    MOE_STAGES = {"a"}', "inside a function or class"),
    "local to a class": ('class C:\n    MOE_STAGES = {"a"}', "inside a function or class"),
    "under a condition": ('MOE_STAGES = {"a"}\nif x:\n    MOE_STAGES = {"b"}', "no plain"),
    "in a try": ('try:\n    MOE_STAGES = {"a"}\nexcept E:\n    pass', "no plain"),
    "augmented": ('MOE_STAGES = {"a"}\nMOE_STAGES |= {"b"}', "no plain"),
    "unpacked": ('MOE_STAGES, X = {"a"}, 1', "no plain"),
    "imported": ("from stages import MOE_STAGES", "no plain"),
    "imported under this name": ("import stages as MOE_STAGES", "no plain"),
    "imported with everything": ('MOE_STAGES = {"a"}\nfrom stages import *', "no plain"),
    "deleted": ('MOE_STAGES = {"a"}\ndel MOE_STAGES', "no plain"),
    "a function of this name": ('MOE_STAGES = {"a"}\ndef MOE_STAGES(): ...', "no plain"),
    "a walrus": ('print(MOE_STAGES := {"a"})', "no plain"),
    "a loop variable": ('for MOE_STAGES in [{"a"}]: ...', "no plain"),
    "a with target": ("with f() as MOE_STAGES: ...", "no plain"),
    "added to": ('MOE_STAGES = {"a"}\nMOE_STAGES.add("b")', "may change it"),
    "added to in a loop": ('MOE_STAGES = {"a"}\nfor x in y:\n    MOE_STAGES.add(x)', "may change"),
    "added to in a function": ('MOE_STAGES = {"a"}\ndef f():\n    MOE_STAGES.add(1)', "may change"),
    "rebound by a function": (
        'MOE_STAGES = {"a"}\ndef f():\n    global MOE_STAGES\n    MOE_STAGES = {"b"}',
        "may change it",
    ),
    "an item replaced": ('MOE_STAGES = ["a"]\nMOE_STAGES[0] = "b"', "may change it"),
    "another frozenset": ('frozenset = f\nMOE_STAGES = frozenset({"a"})', "another meaning"),
    "no Python": ("MOE_STAGES = {", "not Python"),
    "null bytes": ("MOE_STAGES = {}\0", "not Python"),
}


@pytest.mark.parametrize("name", REFUSED_SETS)
def test_sets_that_are_refused(name: str) -> None:
    source, words = REFUSED_SETS[name]
    with pytest.raises(ContractError, match=r".") as error:
        read_contract(f"SHARED_VS_ROUTED_NOTE = 'x'\n{source}\n")
    assert words in str(error.value)


REFUSED_NOTES = {
    "absent": "",
    "annotation without a value": "SHARED_VS_ROUTED_NOTE: str",
    "a sum": "SHARED_VS_ROUTED_NOTE = 'a' + 'b'",
    "an f-string": "SHARED_VS_ROUTED_NOTE = f'a {x}'",
    "a format": "SHARED_VS_ROUTED_NOTE = 'a {}'.format(x)",
    "a percent": "SHARED_VS_ROUTED_NOTE = 'a %s' % x",
    "a join": "SHARED_VS_ROUTED_NOTE = ' '.join(('a', 'b'))",
    "dedent": "SHARED_VS_ROUTED_NOTE = dedent('a')",
    "bytes": "SHARED_VS_ROUTED_NOTE = b'a'",
    "a tuple by a stray comma": "SHARED_VS_ROUTED_NOTE = 'a',",
    "a name": "SHARED_VS_ROUTED_NOTE = NOTE",
    "None": "SHARED_VS_ROUTED_NOTE = None",
    "local only": "def f():\n    SHARED_VS_ROUTED_NOTE = 'a'",
    "augmented": "SHARED_VS_ROUTED_NOTE = 'a'\nSHARED_VS_ROUTED_NOTE += 'b'",
}


@pytest.mark.parametrize("name", REFUSED_NOTES)
def test_notes_that_are_refused(name: str) -> None:
    with pytest.raises(ContractError, match=r"^SHARED_VS_ROUTED_NOTE: "):
        read_contract(f"MOE_STAGES = {SET}\n{REFUSED_NOTES[name]}\n")


OURS = frozenset(stage.label for stage in Stage) - {"other"}


def module(stages=OURS, note: str = NOTE) -> str:
    names = ", ".join(map(repr, sorted(stages)))
    return f"MOE_STAGES = {{{names}}}\nSHARED_VS_ROUTED_NOTE = {note!r}\n"


def test_the_set_is_compared_in_both_directions() -> None:
    assert problems(read_contract(module())) == []
    assert problems(read_contract(module(OURS | {"other"}))) == []
    (extra,) = problems(read_contract(module(OURS | {"attention"})))
    assert "'attention'" in extra
    assert "not in our vocabulary" in extra
    (lacking,) = problems(read_contract(module(OURS - {"non_moe"})))
    assert "lacks 'non_moe'" in lacking


@pytest.mark.parametrize("note", ["a caveat\n", "a  caveat", "A caveat", "a caveat.", ""])
def test_the_note_is_compared_byte_for_byte(note: str) -> None:
    assert problems(read_contract(module()), NOTE.encode()) == []
    (found,) = problems(read_contract(module()), note.encode())
    assert f"the note file {len(note)}" in found


def test_an_encoding_declaration_is_followed() -> None:
    source = "# -*- coding: latin-1 -*-\n" + module(note="caf\u00e9")
    read = read_contract(source.replace("\\xe9", "\u00e9").encode("latin-1"))
    assert read.note == "caf\u00e9"
    assert problems(read, "caf\u00e9".encode()) == []


def run(tmp_path, source: str, *arguments: str) -> int:
    (tmp_path / "upstream.py").write_text(source)
    return contract.main([str(tmp_path / "upstream.py"), *arguments])


def test_the_command(tmp_path, capsys) -> None:
    (tmp_path / "note.txt").write_text(NOTE)
    note = ["--note-file", str(tmp_path / "note.txt")]
    assert run(tmp_path, module(), *note) == 0
    assert "15 stages agree" in capsys.readouterr().out
    assert run(tmp_path, module()) == 0
    assert "not compared" in capsys.readouterr().out
    assert run(tmp_path, module(note="b"), *note) == 1
    assert "differ from byte 0" in capsys.readouterr().out
    assert run(tmp_path, module(OURS - {"gather"}), *note) == 1
    assert "lacks 'gather'" in capsys.readouterr().out
    assert run(tmp_path, "MOE_STAGES = load()\n") == 1
    assert "line 1" in capsys.readouterr().out
    assert run(tmp_path, module(), "--note-file", str(tmp_path / "no.txt")) == 2
    assert "no.txt" in capsys.readouterr().err
    assert contract.main([str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("value", "code"), [(None, 0), ("", 0), ("false", 0), ("1", 1), ("true", 1)]
)
def test_a_missing_file_is_a_skip_with_a_reason_but_a_failure_in_ci(
    tmp_path, capsys, monkeypatch, value, code
) -> None:
    monkeypatch.delenv("CI", raising=False)
    if value is not None:
        monkeypatch.setenv("CI", value)
    assert contract.main([str(tmp_path / "absent.py")]) == code
    text = capsys.readouterr().out
    assert text.startswith("FAIL" if code else "SKIP")
    assert "absent.py does not exist" in text
