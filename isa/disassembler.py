"""The disassembler: words to source that assembles to the same words.

Command line: `python -m isa.disassembler FILE`.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import SupportsIndex

from isa.command import error_text, leave_with
from isa.image import ProgramImage, write_atomically
from isa.image_schema import ImageError
from isa.instruction import word_text

_HEX_WORD = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,8})")
_COMMENT = re.compile(r"(;|//|#).*")


def disassemble(words: Iterable[SupportsIndex]) -> str:
    """Source text, one line per word; assembling it gives the same words back.

    A word that is no instruction becomes `.word`, with the trap that it would cause as a comment.
    """
    return "".join(f"{word_text(word)}\n" for word in words)


def read_hex_words(text: str) -> list[int]:
    """The words of a text with one hexadecimal number a line, comments left out.

    Raises:
        ValueError: a line that is no number of 1 to 8 hexadecimal digits, by its number.
    """
    words: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        token = _COMMENT.sub("", line).strip()
        if not token:
            continue
        found = _HEX_WORD.fullmatch(token)
        if found is None:
            raise ValueError(
                f"line {number}: {token[:40]!r} is not a word of 1 to 8 hexadecimal digits; "
                "give an image of isa.assembler, or one word a line"
            )
        words.append(int(found.group(1), 16))
    return words


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m isa.disassembler`."""
    parser = argparse.ArgumentParser(
        prog="python -m isa.disassembler",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Print a program as PLENA source that assembles to the same words.",
        epilog="""\
FILE is a program image (JSON, made by isa.assembler), or text with one hexadecimal word a line:
  FFFFC062        ; S_ADDI_INT gp1, gp0, 262143
  0x00000034      ; C_BREAK

examples:
  python -m isa.disassembler layer.json
  python -m isa.disassembler words.hex -o words.asm
  python -m isa.disassembler layer.json --listing     (with stage tags and source lines)
exit code: 0 when every word is printed, 2 when the file cannot be read""",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="image, or words in hexadecimal")
    parser.add_argument(
        "-o", "--output", metavar="SOURCE", type=Path, help="file to write (default: print)"
    )
    parser.add_argument(
        "--listing",
        action="store_true",
        help="with stage, pair and source line of every word; images only",
    )
    return parser


def _render(path: Path, *, listing: bool) -> str:
    data = path.read_bytes()
    if data.lstrip().startswith(b"{"):
        image = ProgramImage.load(path, strict=False)
        return image.listing() if listing else disassemble(image.words)
    if listing:
        raise ValueError("not an image; --listing needs one, since words alone carry no tags")
    return disassemble(read_hex_words(data.decode()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        if options.output is not None and options.output.resolve() == options.file.resolve():
            raise ValueError("the output would overwrite the input")
        text = _render(options.file, listing=options.listing)
        if options.output is None:
            sys.stdout.write(text)
        else:
            write_atomically(options.output, text.encode())
    except UnicodeDecodeError as error:
        print(f"error: {options.file}: neither an image nor text ({error})", file=sys.stderr)
    except OSError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
    except ValueError as error:
        print(f"error: {options.file}: {error}", file=sys.stderr)
    else:
        return 0
    return 2


if __name__ == "__main__":
    leave_with(main)
