"""The lint of stage arguments: clean on the project, and every check can fail."""

import pytest

from isa import stage_lint
from isa.stage_lint import lint
from isa.stage_sites import SITES

EMITTERS = """\
class Program:
    def stage(self, stage, detail=""): ...
    def region(self):
        self.stage("non_moe", "end")

def zero(prog, target, *, stage): ...
def fill(prog, stage): ...
def unstaged(prog, phase="decode"): ...
"""


def test_the_project_names_every_stage():
    report = lint()
    assert report.problems == []
    assert report.sites == SITES
    assert sum(SITES.values()) >= 11


@pytest.fixture
def tree(tmp_path):
    """Writes a small project; `tree(compiler_source, testbench_source)` lints it, pins matching
    unless given."""

    def check(compiler: str, testbench: str = "", sites=None) -> list[str]:
        for folder, text in (("compiler", compiler), ("testbench", testbench)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "emit.py").write_text(text)
        (tmp_path / "compiler" / "base.py").write_text(EMITTERS)
        if sites is None:
            sites = lint(tmp_path, {}).sites
        return lint(tmp_path, sites).problems

    check.root = tmp_path
    return check


CLEAN = {
    "literals": 'prog.stage("gather", "x")\nzero(prog, t, stage="gather")\nfill(prog, "gather")\n',
    "keyword": 'prog.stage(detail="x", stage="gather")\nfill(prog, stage="gather")\n',
    "handed on by keyword": "def f(prog, *, stage):\n    zero(prog, 1, stage=stage)\n",
    "handed on by position": "def f(prog, stage):\n    prog.stage(stage)\n",
    "handed on from a function around": (
        "def f(prog, stage):\n    def row():\n        prog.stage(stage)\n    row()\n"
    ),
    "implicit concatenation": 'prog.stage("gat" "her")\n',
    "another parameter": 'unstaged(prog, phase="prefill")\nattend(stage="decode")\n',
    "an attribute of this name": "print(event.stage)\nx = event.stage\n",
}


@pytest.mark.parametrize("name", CLEAN)
def test_calls_that_name_their_stage(tree, name):
    assert tree(CLEAN[name]) == []
    assert tree("", CLEAN[name]) == []


BROKEN = {
    "a typo": ('prog.stage("gathre")', "'gathre' is not a stage; did you mean gather"),
    "a typo by keyword": ('zero(prog, t, stage="gathr")', "'gathr' is not a stage"),
    "missing": ("zero(prog, t)", "without a stage"),
    "missing by position": ("fill(prog)", "without a stage"),
    "hidden in a dictionary": ("zero(prog, t, **options)", "without a stage"),
    "hidden in a list": ('fill(*both, "gather")', "without a stage"),
    "a variable": ('name = "gather"\nprog.stage(name)', "stage is 'name'"),
    "a variable called stage": ('stage = "gather"\nprog.stage(stage)', "stage is 'stage'"),
    "an enumeration member": ("prog.stage(Stage.GATHER)", "stage is 'Stage.GATHER'"),
    "a conditional": ('prog.stage("gather" if x else "other")', "pass a string literal"),
    "an f-string": ('prog.stage(f"{x}")', "pass a string literal"),
    "no string": ("prog.stage(3)", "pass a string literal"),
    "a rebound parameter": (
        'def f(prog, stage):\n    stage = stage or "gather"\n    prog.stage(stage)',
        "stage is 'stage'",
    ),
    "a loop variable": (
        "def f(prog, stage):\n    for stage in x:\n        prog.stage(stage)",
        "stage is 'stage'",
    ),
    "another parameter": ("def f(prog, name):\n    prog.stage(name)", "stage is 'name'"),
    "a default": ('def f(prog, stage="gather"): ...', "has a default"),
    "a default by keyword": ('def f(prog, *, stage="gather"): ...', "has a default"),
    "a default of None": ("async def f(prog, *, stage=None): ...", "has a default"),
    "a default in a lambda": ('f = lambda prog, stage="gather": 1', "has a default"),
    "a default in a method": ('class C:\n    def f(self, stage="gather"): ...', "has a default"),
    "a default of a field": ('class C:\n    stage: str = "gather"', "has a default"),
    "handing on a default": (
        'def f(prog, stage="gather"):\n    prog.stage(stage)',
        "stage is 'stage'",
    ),
    "partial with a stage": ('partial(anything, stage="gather")', "partial binds"),
    "partial of an emitter": ("functools.partial(zero, prog)", "partial binds"),
    "partialmethod": ('m = partialmethod(zero, stage="gather")', "partialmethod binds"),
    "a decorator": ('@marked(stage="gather")\ndef f(): ...', "a decorator binds"),
    "an alias": ('z = zero\nz(prog, t, stage="gather")', "passed on uncalled"),
    "a callback": ("walk(rows, zero)", "passed on uncalled"),
    "an import under another name": ("from compiler.base import zero as z", "its own name"),
    "an emitter of the testbench": ("def g(prog, stage): ...\ng(prog)", "without a stage"),
    "a constructor": (
        "class C:\n    def __init__(self, prog, stage): ...\nC(prog, name)",
        "stage is 'name'",
    ),
    "no Python": ("def f(:", "cannot be parsed"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_check_can_fail(tree, name):
    source, words = BROKEN[name]
    for problems, path in (
        (tree(source), "compiler/emit.py:"),
        (tree("", source), "testbench/emit.py:"),
    ):
        assert any(words in p and p.startswith(path) for p in problems), problems


def test_a_lost_and_a_new_call_site_are_noticed(tree):
    source = 'prog.stage("gather")\nprog.stage("gather")\n'
    pinned = {"compiler/emit.py": 2, "compiler/base.py": 1}
    assert tree(source, sites=pinned) == []
    (lost,) = tree(source, sites={**pinned, "compiler/emit.py": 3})
    assert "compiler/emit.py: 2 calls of stage-taking emitters, 3 are pinned" in lost
    (new,) = tree(source, sites={**pinned, "compiler/emit.py": 1})
    assert "--pins" in new
    (gone,) = tree(source, sites={**pinned, "compiler/gone.py": 1})
    assert "compiler/gone.py: 0 calls" in gone


def test_files_of_one_name_in_different_folders_stay_apart(tree):
    one, two = 'prog.stage("gather")\n', 'prog.stage("gather")\nprog.stage("other")\n'
    pins = {"compiler/base.py": 1, "compiler/emit.py": 1, "testbench/emit.py": 2}
    assert tree(one, two, sites=pins) == []
    swapped = {**pins, "compiler/emit.py": 2, "testbench/emit.py": 1}
    assert len(tree(one, two, sites=swapped)) == 2
    (tree.root / "compiler" / "deep").mkdir()
    (tree.root / "compiler" / "deep" / "emit.py").write_text(one)
    assert len(tree(one, two, sites=pins)) == 1
    assert tree(one, two, sites={**pins, "compiler/deep/emit.py": 1}) == []


def test_a_search_that_finds_nothing_fails(tmp_path):
    (tmp_path / "compiler").mkdir()
    (tmp_path / "testbench").mkdir()
    problems = lint(tmp_path, SITES).problems
    assert "compiler: no source file" in problems[0]
    assert len(problems) == 2 + len(SITES)


def test_without_a_signature_there_is_no_emitter(tree):
    # The emitters are read from the source, not from a list: take one away and its calls are free.
    source = "mark(prog)\n"
    assert tree(source) == []
    assert tree(source + "def mark(prog, stage): ...\n") != []


def test_the_command(tree, capsys):
    assert stage_lint.main([]) == 0
    assert "name their stage" in capsys.readouterr().out
    assert stage_lint.main(["--pins"]) == 0
    printed = capsys.readouterr().out
    assert all(f'"{path}": {count},' in printed for path, count in SITES.items())
    tree('prog.stage("gathre")\n')
    assert stage_lint.main(["--root", str(tree.root)]) == 1
    assert "did you mean gather" in capsys.readouterr().out
    assert stage_lint.main(["--root", str(tree.root / "compiler")]) == 2
    assert "--root" in capsys.readouterr().err
