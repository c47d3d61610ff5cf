"""A user's program from any of its forms: source text, program image, or words without source."""

import struct
from dataclasses import dataclass
from pathlib import Path

from isa.assembler import assemble
from isa.config import ConfigError, PlenaConfig, load_config
from isa.disassembler import disassemble, read_hex_words
from isa.image import ProgramImage
from isa.image_schema import ImageError
from testbench.session.request import RequestError

#: The forms, and the file names that say which one it is; anything else is told by its content.
FORMS: dict[str, tuple[str, ...]] = {
    "asm": (".asm", ".s"),
    "image": (".json",),
    "hex": (".hex", ".mem"),
    "bin": (".bin",),
}
WORD_BYTES = 4


@dataclass(frozen=True)
class Program:
    """A program that fits `config`; `source_name` is empty when the words came without source."""

    image: ProgramImage
    config: PlenaConfig
    form: str
    source_name: str

    def source_line(self, pc: int) -> str:
        """`FILE:LINE: text`, or what is known without a source; empty past the end."""
        if not 0 <= pc < len(self.image):
            return ""
        if not self.source_name:
            return "(words without source: line numbers count the words)"
        line = int(self.image.lines[pc])
        return f"{self.source_name}:{line}: {self.image.source[line - 1].strip()}"


def form_of(path: Path, data: bytes) -> str:
    """Which of `FORMS` a file is: by its name, else by its content."""
    for form, suffixes in FORMS.items():
        if path.suffix.lower() in suffixes:
            return form
    if data.lstrip().startswith(b"{"):
        return "image"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "bin"
    if "\0" in text:
        return "bin"
    try:
        return "hex" if read_hex_words(text) else "asm"
    except ValueError:
        return "asm"


def read_program(
    path: Path, *, config: str | None = None, strict: bool = True, form: str = "auto"
) -> Program:
    """Read the program in `path`, for the configuration called `config`.

    Without `config` an image runs on the configuration that it was made for, anything else on
    `default`. `strict` refuses stage names that are not in the vocabulary.

    Raises:
        RequestError, ImageError, AssemblyError, ConfigError: the message names the file, what is
            wrong in it, and the way out.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if form == "auto":
        form = form_of(path, data)
    if form == "image":
        image = _load_image(path, strict)
        machine = _made_for(path, image) if config is None else load_config(config)
        source_name = f"source of {path}"
    else:
        machine = load_config("default" if config is None else config)
        text = _text(path, data, form)
        shown = str(path)
        image = assemble(text, source_name=shown, config=machine, strict=strict)
        source_name = shown if form == "asm" else ""
    if not len(image):
        raise RequestError(f"{path}: holds no instruction, read as {form}; --form says otherwise")
    image.check_config(machine)
    return Program(image, machine, form, source_name)


def _text(path: Path, data: bytes, form: str) -> str:
    """Source text; that of words is their disassembly, which assembles to the same words."""
    if form == "bin":
        if len(data) % WORD_BYTES:
            raise RequestError(
                f"{path}: {len(data)} bytes are no whole number of 32-bit words (little-endian); "
                "the file is cut short, or is not machine code"
            )
        return disassemble(word for (word,) in struct.iter_unpack("<I", data))
    try:
        text = data.decode()
        return text if form == "asm" else disassemble(read_hex_words(text))
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path}: not UTF-8 text, read as {form} ({error}); machine code in binary is --form "
            "bin"
        ) from error
    except ValueError as error:
        raise RequestError(f"{path}: {error}") from error


def _load_image(path: Path, strict: bool) -> ProgramImage:
    try:
        return ProgramImage.load(path, strict=strict)
    except ImageError as error:
        if strict:
            try:
                ProgramImage.load(path, strict=False)
            except ImageError:
                raise error from None
            raise ImageError(f"{error} (here: --no-strict)") from error
        raise


def _made_for(path: Path, image: ProgramImage) -> PlenaConfig:
    if image.config is None:
        return load_config("default")
    try:
        return PlenaConfig(**image.config)
    except (TypeError, ConfigError) as error:
        raise RequestError(
            f"{path}: the configuration that it was made for is not one of this project "
            f"({error}); name one with --config"
        ) from error
