"""The one error of the compiler."""

import difflib
from collections.abc import Iterable


class CompileError(ValueError):
    """A program that cannot be built as asked; the message names field, value, rule and way out."""


def require(holds: bool, subject: str, rule: str, way_out: str) -> None:
    """Raise `CompileError` "subject: rule (way out)" unless `holds`."""
    if not holds:
        raise CompileError(f"{subject}: {rule} ({way_out})")


def require_multiple(field: str, value: int, step: int, step_name: str) -> None:
    """Raise `CompileError` unless `value` is a positive multiple of `step`, called `step_name`."""
    padded = max(1, -(-value // step)) * step
    require(
        value > 0 and value % step == 0,
        f"{field} = {value}",
        f"must be a positive multiple of {step_name} = {step}",
        f"pad the tensors with zeros to {padded}, or use a configuration with another {step_name}",
    )


def unknown_name(what: str, name: str, known: Iterable[str]) -> CompileError:
    """The error for a `name` that is not one of `known`; it names the nearest and lists all."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return CompileError(f"{what} {name!r}: unknown{hint} (known: {', '.join(names)})")
