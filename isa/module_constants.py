"""Constants of a module's source, as it would have them after import, without running it.

Whatever is not plainly written down is refused: a wrong guess would pass for agreement.
"""

import ast
from collections.abc import Iterator

#: Methods of a set, list or dictionary that change it.
_MUTATORS = frozenset(
    {
        *("add", "discard", "remove", "pop", "clear", "update", "append", "extend", "insert"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
        *("popitem", "setdefault", "__ior__", "__setitem__", "__delitem__"),
    }
)
_CONSTRUCTORS = ("set", "frozenset")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (
    *(*_FUNCTIONS, ast.ClassDef),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


class ContractError(ValueError):
    """A constant that cannot be read; the message names it, the line and the reason."""


def read_names(module: ast.Module, name: str) -> frozenset[str]:
    """The strings in the collection that the module binds to `name`, the last binding counting.

    Displays of strings (set, list, tuple, keys of a dictionary), `set` and `frozenset` of one,
    unions of sets by `|` and `.union()`, in any nesting.

    Raises:
        ContractError: absent, or anything else.
    """
    value = _value(module, name)
    used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    for constructor in _CONSTRUCTORS:
        bound = list(_bindings(module, constructor)) if constructor in used else []
        if bound:
            raise _refusal(name, bound[0], f"may give {constructor} another meaning")
    return frozenset(_strings(value, name))


def read_text(module: ast.Module, name: str) -> str:
    """The string literal (adjacent ones count as one) that the module binds to `name`.

    Raises:
        ContractError: absent, or anything else.
    """
    value = _value(module, name)
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    raise _refusal(name, value, "is not a string literal; write the text out")


def _refusal(name: str, node: ast.AST, reason: str) -> ContractError:
    return ContractError(f"{name}: line {_line(node)}: {ast.unparse(node)[:60]!r} {reason}")


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _value(module: ast.Module, name: str) -> ast.expr:
    """What the last binding of `name` at module scope assigns."""
    changed = _changed_elsewhere(module, name)
    if changed is not None:
        raise _refusal(name, changed, "may change it; bind it once, to a literal")
    plain = {id(s): _assigned(s, name) for s in module.body}
    bound = [node for node in _bindings(module, name) if not _is_bare_annotation(node)]
    if not bound:
        raise ContractError(f"{name}: {_why_absent(module, name)}")
    value = plain.get(id(bound[-1]))
    if value is None:
        raise _refusal(name, bound[-1], "binds it last, and is no plain assignment at module scope")
    return value


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    """The value of a plain assignment to `name`; None for any other statement."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        for target in _targets(statement):
            if isinstance(target, ast.Name) and target.id == name:
                return statement.value
    return None


def _is_bare_annotation(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is None


def _why_absent(module: ast.Module, name: str) -> str:
    if any(_is_bare_annotation(node) for node in _bindings(module, name)):
        return "is annotated but has no value"
    inner = [n for n in ast.walk(module) if isinstance(n, ast.Name) and n.id == name]
    stored = [n for n in inner if isinstance(n.ctx, ast.Store)]
    if stored:
        return f"line {stored[0].lineno} binds it inside a function or class, not in the module"
    return "the module does not bind it"


def _bindings(module: ast.AST, name: str) -> Iterator[ast.AST]:
    """The statements and other nodes that bind or delete `name` at module scope, in order."""
    for node in _in_scope(module):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            if any(_names_in_target(t, name) for t in _targets(node)):
                yield node
        elif (
            (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and node.name == name
            )
            or (isinstance(node, ast.ExceptHandler) and node.name == name)
            or (isinstance(node, ast.MatchAs | ast.MatchStar) and node.name == name)
            or (isinstance(node, ast.MatchMapping) and node.rest == name)
            or (isinstance(node, ast.alias) and _bound_by_import(node, name))
            or (isinstance(node, ast.For | ast.AsyncFor) and _names_in_target(node.target, name))
            or (isinstance(node, ast.NamedExpr) and node.target.id == name)
            or (
                isinstance(node, ast.withitem)
                and node.optional_vars is not None
                and _names_in_target(node.optional_vars, name)
            )
        ):
            yield node


def _bound_by_import(alias: ast.alias, name: str) -> bool:
    return name == (alias.asname or alias.name.split(".")[0]) or alias.name == "*"


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    assert isinstance(node, ast.AugAssign | ast.AnnAssign)
    return [node.target]


def _names_in_target(target: ast.expr, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
        for n in ast.walk(target)
    )


def _in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below that runs in the same scope, in order of the source."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, _SCOPES):
            # A walrus in a comprehension binds outside of it.
            if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                yield from (n for n in ast.walk(child) if isinstance(n, ast.NamedExpr))
        else:
            yield from _in_scope(child)


def _changed_elsewhere(module: ast.Module, name: str) -> ast.AST | None:
    """What changes the object in place, or rebinds the name from inside a function."""
    for node in ast.walk(module):
        if isinstance(node, ast.Global) and name in node.names:
            return node
        if (
            isinstance(node, ast.Subscript)
            and not isinstance(node.ctx, ast.Load)
            and isinstance(node.value, ast.Name)
            and node.value.id == name
            and not _is_local(module, node, name)
        ):
            return node
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATORS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == name
            and not _is_local(module, node, name)
        ):
            return node
    return None


def _is_local(module: ast.Module, wanted: ast.AST, name: str) -> bool:
    """Whether `wanted` is in a function that has a local called `name`."""
    for function in ast.walk(module):
        if isinstance(function, _FUNCTIONS) and any(n is wanted for n in ast.walk(function)):
            parameters = [a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)]
            if name in parameters or any(True for _ in _bindings(function, name)):
                return True
    return False


def _strings(node: ast.expr, name: str) -> list[str]:
    """The strings of an expression that is a collection; ContractError for any other."""
    if isinstance(node, ast.Set | ast.List | ast.Tuple):
        return [_string(element, name) for element in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        if len(keys) < len(node.keys):
            raise _refusal(name, node, "has ** in it; write every name out")
        return [_string(key, name) for key in keys]
    if _is_set(node):
        if isinstance(node, ast.BinOp):
            return _strings(node.left, name) + _strings(node.right, name)
        assert isinstance(node, ast.Call)
        start = node.func.value if isinstance(node.func, ast.Attribute) else None
        first = [] if start is None else _strings(start, name)
        return first + [text for argument in node.args for text in _strings(argument, name)]
    raise _refusal(name, node, "is computed; write the names out as a set of string literals")


def _is_set(node: ast.expr) -> bool:
    """Whether it is a set for certain, made by a form that `_strings` reads."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and _is_set(node.left) and _is_set(node.right)
    if isinstance(node, ast.Call) and not node.keywords:
        if isinstance(node.func, ast.Name):
            return node.func.id in _CONSTRUCTORS and len(node.args) <= 1
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "union"
            and _is_set(node.func.value)
        )
    return isinstance(node, ast.Set)


def _string(node: ast.expr, name: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _refusal(name, node, "is a member that is no string literal")
