"""The file that explains the mutants which no check notices."""

import fnmatch
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbench.mutation.mutant import ROOT, Mutant

FILE = ROOT / "docs" / "mutation_survivors.toml"


class SurvivorsError(ValueError):
    """The file cannot be used; the message names the entry and the rule."""


@dataclass(frozen=True)
class Explanation:
    """Why mutants survive.

    Attributes:
        keys: of the mutants; `*` and `?` stand for parts of a key.
        source: the line of RTL that they are in, as `file: text`; it must still be there.
        equivalent: no program can tell them from the original, so they do not count.
        reason: why.
    """

    keys: tuple[str, ...]
    source: str
    equivalent: bool
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether this is about the mutant."""
        return any(self.covers_by(key, mutant) for key in self.keys)

    def covers_by(self, key: str, mutant: Mutant) -> bool:
        """Whether this one of its keys is about the mutant."""
        return self.source == mutant.source and fnmatch.fnmatchcase(mutant.key, _literal(key))


def _literal(key: str) -> str:
    """The brackets of a key are no pattern."""
    return key.replace("[", "[[]")


def read(path: Path = FILE) -> list[Explanation]:
    """All explanations.

    Raises:
        SurvivorsError: no TOML, or an entry without one of `keys`, `source`, `equivalent`,
            `reason`.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except tomllib.TOMLDecodeError as error:
        raise SurvivorsError(f"{path}: {error}") from error
    found: list[Explanation] = []
    for number, entry in enumerate(content.get("survivors", []), 1):
        wanted = {"keys", "source", "equivalent", "reason"}
        if entry.keys() != wanted:
            problem = ", ".join(sorted(wanted ^ entry.keys()))
            raise SurvivorsError(
                f"{path}: entry {number} needs exactly {', '.join(sorted(wanted))}; "
                f"missing or unknown: {problem}"
            )
        if not str(entry["reason"]).strip():
            raise SurvivorsError(f"{path}: entry {number} has no reason; say why it survives")
        keys = tuple(entry["keys"])
        found.append(Explanation(keys, entry["source"], entry["equivalent"], entry["reason"]))
    return found


def explanation(known: Iterable[Explanation], mutant: Mutant) -> Explanation | None:
    """The first one that is about the mutant."""
    return next((e for e in known if e.covers(mutant)), None)
