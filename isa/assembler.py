"""The assembler: source text to a program image, with stage tags from the comments.

Command line: `python -m isa.assembler FILE -o image.json`.
"""

import argparse
import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isa.command import error_text, leave_with
from isa.config import PRESETS, PlenaConfig, load_config
from isa.image import VOCABULARY, ProgramImage
from isa.image_schema import EXPLICIT_MARKERS, LEGACY_COMMENTS
from isa.instruction import WORD_LIMIT, Instruction, InstructionError, nearest, parse_number
from isa.markers import TagTracker, parse_marker

#: Errors of one file that are reported at once.
ERRORS_SHOWN = 20

_COMMENT = re.compile(r";|//")
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*)\s*:", re.ASCII)
_WORD_DIRECTIVE = ".word"


@dataclass(frozen=True)
class SourceError:
    """One error: where, the text that caused it ("" when none did), and the rule it breaks."""

    source_name: str
    line: int
    token: str
    message: str

    def __str__(self) -> str:
        token = f"{self.token!r}: " if self.token else ""
        return f"{self.source_name}:{self.line}: {token}{self.message}"


class AssemblyError(ValueError):
    """A source that cannot be assembled.

    `errors` holds every error in line order; the text shows the first `ERRORS_SHOWN`.
    """

    def __init__(self, errors: Sequence[SourceError]) -> None:
        shown = [str(e) for e in errors[:ERRORS_SHOWN]]
        if len(errors) > ERRORS_SHOWN:
            shown.append(f"... and {len(errors) - ERRORS_SHOWN} more errors")
        super().__init__("\n".join(shown))
        self.errors = tuple(errors)


@dataclass(frozen=True)
class _Line:
    """A source line taken apart; `comment` is None when there is none."""

    number: int
    labels: tuple[str, ...]
    statement: str
    comment: str | None


def _split_source(text: str) -> list[str]:
    """Source lines without their ends: LF or CRLF only, so that numbers agree with editors."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _take_apart(number: int, line: str) -> _Line:
    found = _COMMENT.search(line)
    code = line[: found.start()] if found else line
    comment = line[found.end() :] if found else None
    labels: list[str] = []
    while label := _LABEL.match(code):
        labels.append(label.group(1))
        code = code[label.end() :]
    return _Line(number, tuple(labels), code.strip(), comment)


def _word(statement: str) -> int:
    mnemonic, *rest = statement.split(maxsplit=1)
    if mnemonic != _WORD_DIRECTIVE:
        return Instruction.parse(statement).encode()
    word = parse_number(rest[0]) if rest else None
    if word is None or word > WORD_LIMIT:
        raise InstructionError(
            statement, f"{_WORD_DIRECTIVE} takes one number, 0 to 0x{WORD_LIMIT:08X}"
        )
    return word


def assemble(
    text: str,
    *,
    source_name: str = "<source>",
    config: PlenaConfig | None = None,
    strict: bool = True,
) -> ProgramImage:
    """Assemble a program; with `config`, for that machine, whose IMEM_WORDS bounds the length.

    A line is `label: MNEMONIC operand, operand ; comment`, each part optional. `;` and `//` open a
    comment, numbers are decimal or 0x hexadecimal, `.word N` is a raw word, trailing flags may be
    left out. Stage markers and pair labels in comments tag the instructions that follow them; an
    unknown stage name is an error when `strict`, else it changes nothing and is listed in
    `unresolved_stage_markers`.

    Raises:
        AssemblyError: every error of the source, in line order.
    """
    source = _split_source(text)
    lines = [_take_apart(number, line) for number, line in enumerate(source, start=1)]
    explicit = any(ln.comment is not None and parse_marker(ln.comment) is not None for ln in lines)
    tags = TagTracker(explicit)
    errors: list[SourceError] = []
    symbols: dict[str, int] = {}
    words: list[int] = []
    stages: list[int] = []
    pairs: list[int] = []
    numbers: list[int] = []
    for line in lines:
        try:
            for label in line.labels:
                if label in symbols:
                    raise InstructionError(label, "the label is defined twice; rename one")
                symbols[label] = len(words)
            if line.statement:
                words.append(0)  # counted even when it is wrong, so that later labels stay right
                stages.append(tags.stage)
                pairs.append(-1 if tags.pair is None else tags.pair)
                numbers.append(line.number)
                words[-1] = _word(line.statement)
        except InstructionError as error:
            errors.append(SourceError(source_name, line.number, error.token, error.rule))
        try:
            _feed_comment(tags, line.comment, strict)
        except InstructionError as error:
            errors.append(SourceError(source_name, line.number, error.token, error.rule))
    if config is not None and len(words) > config.IMEM_WORDS:
        message = _too_long(stages, config)
        errors.append(SourceError(source_name, numbers[config.IMEM_WORDS], "", message))
    if errors:
        raise AssemblyError(sorted(errors, key=lambda error: error.line))
    return ProgramImage(
        words=np.array(words, np.uint32),
        stages=np.array(stages, np.uint8),
        pairs=np.array(pairs, np.int32),
        lines=np.array(numbers, np.int32),
        source=tuple(source),
        symbols=symbols,
        tag_origin=EXPLICIT_MARKERS if explicit else LEGACY_COMMENTS,
        unresolved_stage_markers=tuple(tags.unresolved),
        config=None if config is None else dataclasses.asdict(config),
    )


def _feed_comment(tags: TagTracker, comment: str | None, strict: bool) -> None:
    if comment is None:
        return
    try:
        unknown = tags.feed(comment)
    except ValueError as error:
        raise InstructionError(comment.strip(), str(error)) from error
    if strict and unknown is not None:
        raise InstructionError(
            unknown,
            f"not a stage name{nearest(unknown, VOCABULARY)}; use one of: {', '.join(VOCABULARY)}",
        )


def _too_long(stages: Sequence[int], config: PlenaConfig) -> str:
    share = ", ".join(f"{VOCABULARY[stage]} {n}" for stage, n in Counter(stages).most_common(5))
    return (
        f"the program has {len(stages)} words, configuration {config.name!r} has IMEM_WORDS = "
        f"{config.IMEM_WORDS}; roll loops or raise it; most words by stage: {share}"
    )


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m isa.assembler`."""
    parser = argparse.ArgumentParser(
        prog="python -m isa.assembler",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Assemble PLENA source into a program image.",
        epilog="""\
source syntax:
  loop:  C_LOOP_START gp1, 8            ; label, mnemonic, operands, comment
         S_ADDI_INT gp2, gp2, 0x40      // decimal or hexadecimal, unsigned
         C_LOOP_END gp1
         .word 0x00000034               ; a raw word
  ; @stage=gather pair=3                ; tags what follows: stage, routed pair

examples:
  python -m isa.assembler layer.asm -o layer.json --config small
  python -m isa.assembler layer.asm --listing

exit code: 0 when the source is assembled, 2 when anything is wrong (nothing is written then)""",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="source text, UTF-8")
    parser.add_argument(
        "-o", "--output", metavar="IMAGE", type=Path, help="image file to write (JSON)"
    )
    parser.add_argument(
        "--listing", action="store_true", help="print addresses, words, tags and source"
    )
    parser.add_argument(
        "--config",
        metavar="NAME",
        help=f"machine to assemble for: {', '.join(PRESETS)}, or a TOML file; bounds the length "
        "and is recorded in the image (default: none)",
    )
    parser.add_argument(
        "--no-strict",
        dest="strict",
        action="store_false",
        help="let unknown stage names keep the stage before them, and list them in the image",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        if options.output is not None and options.output.resolve() == options.file.resolve():
            raise ValueError(f"{options.output}: the image would overwrite its source")
        text = options.file.read_bytes().decode()
        image = assemble(
            text,
            source_name=str(options.file),
            config=None if options.config is None else load_config(options.config),
            strict=options.strict,
        )
        if options.output is not None:
            image.save(options.output)
    except UnicodeDecodeError as error:
        print(f"error: {options.file}: not UTF-8 text ({error})", file=sys.stderr)
    except OSError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
    else:
        print(image.listing() if options.listing else summary(image))
        return 0
    return 2


def summary(image: ProgramImage) -> str:
    """One line about an image: its length, the origin of its tags, its words per stage."""
    counts = ", ".join(f"{name} {n}" for name, n in image.stage_counts().items()) or "none"
    return f"{len(image)} words, tags from {image.tag_origin}: {counts}"


if __name__ == "__main__":
    leave_with(main)
