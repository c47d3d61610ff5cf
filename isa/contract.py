"""What a compiler outside this repository says about stages, read from its source.

Command line: `python -m isa.contract PATH [--note-file FILE]` (attribution.md, "The contract with
compilers outside this repository").
"""

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isa.command import error_text, leave_with
from isa.module_constants import ContractError, read_names, read_text
from isa.stages import Stage

STAGES_NAME = "MOE_STAGES"
NOTE_NAME = "SHARED_VS_ROUTED_NOTE"

#: Means that nobody said, which no compiler says: it may be in the set or not.
OPTIONAL = frozenset({Stage.OTHER.label})


@dataclass(frozen=True)
class Contract:
    """The stage names and the caveat that a compiler declares."""

    stages: frozenset[str]
    note: str


def read_contract(source: bytes | str) -> Contract:
    """The contract in a module's source, which is parsed and never run.

    Raises:
        ContractError: no Python, or a constant that is absent or not plainly written down; the
            message names constant, line and reason.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ContractError(f"not Python source: {error}") from error
    return Contract(read_names(module, STAGES_NAME), read_text(module, NOTE_NAME))


def problems(contract: Contract, note: bytes | None = None) -> list[str]:
    """What does not agree with our vocabulary, in both directions, and with the bytes of `note`."""
    ours = frozenset(stage.label for stage in Stage)
    found = [
        f"{STAGES_NAME} has {name!r}, which is not in our vocabulary"
        for name in sorted(contract.stages - ours)
    ]
    found += [
        f"{STAGES_NAME} lacks {name!r} of our vocabulary"
        for name in sorted(ours - contract.stages - OPTIONAL)
    ]
    if note is not None:
        theirs = contract.note.encode("utf-8", "surrogatepass")
        if theirs != note:
            found.append(_difference(theirs, note))
    return found


def _difference(theirs: bytes, note: bytes) -> str:
    place = next(
        (i for i, pair in enumerate(zip(theirs, note, strict=False)) if pair[0] != pair[1]),
        min(len(theirs), len(note)),
    )
    around = slice(max(place - 20, 0), place + 20)
    return (
        f"{NOTE_NAME} has {len(theirs)} bytes, the note file {len(note)}; they differ from byte "
        f"{place} on: {theirs[around]!r} against {note[around]!r}"
    )


def in_ci() -> bool:
    """Whether the environment variable CI is set (to anything but 0, false or nothing)."""
    return os.environ.get("CI", "").strip().lower() not in ("", "0", "false")


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m isa.contract`."""
    parser = argparse.ArgumentParser(
        prog="python -m isa.contract",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"Compare {STAGES_NAME} and {NOTE_NAME} of a compiler's source file with the "
        "stage vocabulary\nof this project. The file is parsed, never run.",
        epilog="""\
examples:
  python -m isa.contract ../upstream/compiler/moe_stages.py
  python -m isa.contract ../upstream/compiler/moe_stages.py --note-file note.txt

exit code: 0 they agree, or the file does not exist (skipped; in CI that is a failure); 1 they do
not agree, or a constant is not plainly written down; 2 a file cannot be read""",
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="the compiler's source file")
    parser.add_argument(
        "--note-file",
        metavar="FILE",
        type=Path,
        help=f"what {NOTE_NAME} must be, byte for byte (a last newline counts)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    path: Path = options.path
    if not path.exists():
        if in_ci():
            print(f"FAIL: {path} does not exist, and CI is set: check it out first")
            return 1
        print(f"SKIP: {path} does not exist; check the compiler out there to compare with it")
        return 0
    try:
        source = path.read_bytes()
        note = None if options.note_file is None else options.note_file.read_bytes()
    except OSError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return 2
    try:
        contract = read_contract(source)
    except ContractError as error:
        print(f"FAIL: {path}: {error}")
        return 1
    found = problems(contract, note)
    for problem in found:
        print(f"FAIL: {path}: {problem}")
    if found:
        return 1
    compared = "not compared (no --note-file)" if note is None else "equal in every byte"
    print(f"{path}: {len(contract.stages)} stages agree; {NOTE_NAME} {compared}")
    return 0


if __name__ == "__main__":
    leave_with(main)
