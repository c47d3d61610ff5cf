"""The lint of stage arguments (attribution.md, "Lint"): every emitter that takes a stage is told
one, by name, at every call.

Command line: `python -m isa.stage_lint`.
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isa.command import leave_with
from isa.image import VOCABULARY
from isa.instruction import nearest
from isa.stage_sites import SITES

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("compiler", "testbench")
PARAMETER = "stage"

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BINDERS = ("partial", "partialmethod")


@dataclass
class Emitter:
    """A name under which functions take a stage: at which positions, behind `self` in a method;
    None where it must be given by keyword."""

    positions: set[int | None] = field(default_factory=set)
    is_function: bool = False


@dataclass(frozen=True)
class Module:
    """A source file, by its path from the root."""

    path: str
    tree: ast.Module


@dataclass
class Report:
    """What the lint found: problems, as `path:line: text`, and call sites per file."""

    problems: list[str] = field(default_factory=list)
    sites: dict[str, int] = field(default_factory=dict)

    def add(self, module: Module, node: ast.AST, text: str) -> None:
        """Note a problem at `node`."""
        self.problems.append(f"{module.path}:{getattr(node, 'lineno', 0)}: {text}")


def lint(
    root: Path = ROOT, sites: Mapping[str, int] = SITES, folders: Sequence[str] = FOLDERS
) -> Report:
    """Check every source file below `folders` of `root` against the rules and the pinned `sites`.

    Emitters are the functions and methods there with a required parameter called stage, wherever
    they are called from. A call passes a string literal of the vocabulary, or hands on the required
    parameter `stage` of the function that it is in, unchanged.
    """
    report = Report()
    modules = list(_modules(root, folders, report))
    emitters = _emitters(modules)
    for module in modules:
        _check_defaults(module, report)
        _Calls(module, emitters, report).visit(module.tree)
    for path in sorted(sites.keys() | report.sites.keys()):
        found, pinned = report.sites.get(path, 0), sites.get(path, 0)
        if found != pinned:
            report.problems.append(
                f"{path}: {found} calls of stage-taking emitters, {pinned} are pinned in "
                "isa/stage_sites.py; a marker was lost, or --pins gives the new table"
            )
    return report


def _modules(root: Path, folders: Sequence[str], report: Report) -> Iterator[Module]:
    for folder in folders:
        paths = sorted((root / folder).rglob("*.py"))
        if not paths:
            report.problems.append(f"{folder}: no source file; the lint looks in the wrong place")
        for path in paths:
            name = path.relative_to(root).as_posix()
            try:
                yield Module(name, ast.parse(path.read_bytes()))
            except (SyntaxError, ValueError) as error:
                report.problems.append(f"{name}: cannot be parsed: {error}")


def _functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[_Function, str]]:
    """Every function below, with the class that it is directly in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            yield node, owner
        yield from _functions(node, node.name if isinstance(node, ast.ClassDef) else "")


def _required(function: _Function) -> tuple[bool, int | None]:
    """Whether the function has a required parameter called stage, and its position."""
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if PARAMETER in positional:
        place = positional.index(PARAMETER)
        return place < len(positional) - len(arguments.defaults), place
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if argument.arg == PARAMETER:
            return default is None, None
    return False, None


def _emitters(modules: Sequence[Module]) -> dict[str, Emitter]:
    emitters: dict[str, Emitter] = {}
    for module in modules:
        for function, owner in _functions(module.tree):
            required, position = _required(function)
            if not required or isinstance(function, ast.Lambda):
                continue
            static = any(
                isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list
            )
            if owner and not static and position is not None:
                position -= 1
            name = owner if function.name == "__init__" else function.name
            emitter = emitters.setdefault(name, Emitter())
            emitter.positions.add(position)
            emitter.is_function |= not owner
    return emitters


def _check_defaults(module: Module, report: Report) -> None:
    """No parameter or field called stage has a default."""
    for function, _ in _functions(module.tree):
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        with_default = positional[len(positional) - len(arguments.defaults) :]
        keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        with_default += [argument for argument, default in keyword if default is not None]
        if any(argument.arg == PARAMETER for argument in with_default):
            report.add(module, function, "the parameter stage has a default; require it")
    for node in ast.walk(module.tree):
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if (
                isinstance(inner, ast.AnnAssign)
                and isinstance(inner.target, ast.Name)
                and inner.target.id == PARAMETER
                and inner.value is not None
            ):
                report.add(module, inner, "the field stage has a default; require it")


class _Calls(ast.NodeVisitor):
    """Checks the calls of one module; `_scopes` are the functions around the current node."""

    def __init__(self, module: Module, emitters: Mapping[str, Emitter], report: Report) -> None:
        self._module, self._emitters, self._report = module, emitters, report
        self._scopes: list[_Function] = []
        self._called: set[int] = set()

    def generic_visit(self, node: ast.AST) -> None:
        """Keeps track of the functions around."""
        for decorator in getattr(node, "decorator_list", ()):
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else ()
            if any(k.arg == PARAMETER for k in keywords):
                self._add(decorator, "a decorator binds a stage; pass it at the call")
        if isinstance(node, _FUNCTIONS):
            self._scopes.append(node)
            super().generic_visit(node)
            self._scopes.pop()
        else:
            super().generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """A call of an emitter, or of something that binds its arguments."""
        name = _callee(node.func)
        if name in _BINDERS:
            bound = _callee(node.args[0]) if node.args else ""
            if bound in self._emitters or any(k.arg == PARAMETER for k in node.keywords):
                self._add(node, f"{name} binds a stage, or an emitter that takes one; call it")
        elif name in self._emitters:
            self._called.add(id(node.func))
            sites = self._report.sites
            sites[self._module.path] = sites.get(self._module.path, 0) + 1
            self._check(node, name, self._emitters[name])
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """An emitter that is handed around would be called where nobody looks."""
        emitter = self._emitters.get(node.id)
        if (
            emitter is not None
            and emitter.is_function
            and isinstance(node.ctx, ast.Load)
            and id(node) not in self._called
            and node.id != PARAMETER
        ):
            self._add(node, f"{node.id} takes a stage and is passed on uncalled; call it here")

    def visit_alias(self, node: ast.alias) -> None:
        """An emitter under another name would not be recognised."""
        if node.asname not in (None, node.name) and node.name in self._emitters:
            self._add(node, f"{node.name} takes a stage; import it under its own name")

    def _add(self, node: ast.AST, text: str) -> None:
        self._report.add(self._module, node, text)

    def _check(self, node: ast.Call, name: str, emitter: Emitter) -> None:
        given = [k.value for k in node.keywords if k.arg == PARAMETER]
        plain = next(
            (i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)), len(node.args)
        )
        given += [
            node.args[p] for p in emitter.positions if not given and p is not None and p < plain
        ]
        if not given:
            self._add(node, f"{name} is called without a stage that can be read here; pass one")
        for value in given:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                if value.value not in VOCABULARY:
                    hint = nearest(value.value, VOCABULARY)
                    self._add(node, f"{name}: {value.value!r} is not a stage{hint}")
            elif not (isinstance(value, ast.Name) and self._hands_on(value.id)):
                text = ast.unparse(value)[:60]
                self._add(
                    node,
                    f"{name}: stage is {text!r}; pass a string literal, or hand on the parameter "
                    "stage",
                )

    def _hands_on(self, name: str) -> bool:
        """Whether `name` is the required parameter stage of a function around, never rebound."""
        for function in reversed(self._scopes):
            if name != PARAMETER or _rebinds(function):
                return False
            if any(a.arg == name for a in ast.walk(function.args) if isinstance(a, ast.arg)):
                return _required(function)[0]
        return False


def _callee(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _rebinds(function: _Function) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == PARAMETER and not isinstance(n.ctx, ast.Load)
        for n in ast.walk(function)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m isa.stage_lint",
        description=f"Check that every emitter in {' and '.join(FOLDERS)} that takes a stage is "
        "told one, by name, at every call, and that no marked place got lost.",
        epilog="Exit code: 0 nothing found; 1 something was; 2 the root has no such folders.",
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the project (default: this one)")
    parser.add_argument(
        "--pins",
        action="store_true",
        help="print the call sites as the table of isa/stage_sites.py",
    )
    options = parser.parse_args(arguments)
    missing = [name for name in FOLDERS if not (options.root / name).is_dir()]
    if missing:
        print(f"error: {options.root} has no folder {missing[0]}; give --root", file=sys.stderr)
        return 2
    report = lint(options.root)
    if options.pins:
        for path, count in sorted(report.sites.items()):
            print(f'    "{path}": {count},')
        return 0
    for problem in report.problems:
        print(problem)
    if report.problems:
        return 1
    print(f"{sum(report.sites.values())} calls in {len(report.sites)} files name their stage")
    return 0


if __name__ == "__main__":
    leave_with(main)
