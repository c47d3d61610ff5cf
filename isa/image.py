"""The program image: words with their stage, pair and source line."""

import dataclasses
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from isa.image_schema import (
    LEGACY_COMMENTS,
    REMAKE,
    TAG_ORIGINS,
    ImageError,
    checksum,
    pack,
    unpack,
)
from isa.instruction import word_text
from isa.stages import Stage

#: Our own vocabulary, in the order of the hardware tag.
VOCABULARY: tuple[str, ...] = tuple(stage.label for stage in Stage)

#: The per-instruction columns and their element types.
_COLUMNS: dict[str, type[np.generic]] = {
    "words": np.uint32,
    "stages": np.uint8,
    "pairs": np.int32,
    "lines": np.int32,
}

#: Capacities: the machine may have more than the program was made for, not less.
AT_LEAST_FIELDS = frozenset(
    {
        "MRAM_TILES",
        "VRAM_ROWS",
        "FP_MEM_WORDS",
        "INT_MEM_WORDS",
        "LOOP_DEPTH",
        "HBM_BYTES",
        "TOPK_MAX",
    }
)
#: What changes time only, or nothing. IMEM_WORDS is compared with the program's length instead.
IGNORED_FIELDS = frozenset(
    {
        "name",
        "SFU_LANES",
        "IMEM_WORDS",
        "INFLIGHT",
        "HBM_QUEUE",
        "HBM_BEAT_BYTES",
        "HBM_LATENCY",
        "HBM_CYCLES_PER_BEAT",
        "HBM_OUTSTANDING",
        "ISSUE",
        "CLOCK_PERIOD_PS",
    }
)


def _column(name: str, values: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """`values` as a read-only array of one dimension; ImageError when one does not fit `dtype`."""
    bounds = np.iinfo(dtype)  # type: ignore[type-var]
    if isinstance(values, np.ndarray) and values.dtype == dtype:
        array = values.copy()
    else:
        numbers = values.tolist() if isinstance(values, np.ndarray) else list(values)
        for pc, value in enumerate(numbers):
            if type(value) is not int or not bounds.min <= value <= bounds.max:
                limits = f"must be an integer {bounds.min} to {bounds.max}"
                raise ImageError(f"{name}[{pc}] = {value!r}: {limits}; {REMAKE}")
        array = np.array(numbers, dtype=dtype)
    if array.ndim != 1:
        raise ImageError(f"{name}: must have one dimension, not {array.ndim}; {REMAKE}")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramImage:
    """A program ready to load: four columns with one element per pc, and what they refer to.

    `words` uint32; `stages` uint8, indices into `vocabulary`; `pairs` int32, -1 for none; `lines`
    int32, from 1, into `source`. `symbols` maps labels to pcs, the program's length included.
    `config` holds the fields of the configuration that the program was made for, None when it was
    made for none. `emitters` is free metadata of the compiler, JSON values only. The assembler and
    `load` always give our own vocabulary, so that their `stages` are `Stage` values. Columns are
    converted and made read-only; images with equal content are equal.

    Raises:
        ImageError: columns of unequal length, or an element that is out of range.
    """

    words: npt.NDArray[np.uint32]
    stages: npt.NDArray[np.uint8]
    pairs: npt.NDArray[np.int32]
    lines: npt.NDArray[np.int32]
    source: tuple[str, ...]
    vocabulary: tuple[str, ...] = VOCABULARY
    symbols: dict[str, int] = field(default_factory=dict)
    tag_origin: str = LEGACY_COMMENTS
    unresolved_stage_markers: tuple[str, ...] = ()
    config: dict[str, Any] | None = None
    emitters: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, dtype in _COLUMNS.items():
            object.__setattr__(self, name, _column(name, getattr(self, name), dtype))
        for name in ("source", "vocabulary", "unresolved_stage_markers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in _COLUMNS:
            length = len(getattr(self, name))
            if length != len(self):
                raise ImageError(f"{name} has {length} elements for {len(self)} words; {REMAKE}")
        if self.tag_origin not in TAG_ORIGINS:
            raise ImageError(
                f"tag_origin {self.tag_origin!r}: must be one of {', '.join(TAG_ORIGINS)}"
            )
        self._check_range("stages", self.stages, 0, len(self.vocabulary) - 1, "the vocabulary")
        self._check_range("pairs", self.pairs, -1, np.iinfo(np.int32).max, "the pair numbers")
        self._check_range("lines", self.lines, 1, len(self.source), "the source")
        for name, pc in self.symbols.items():
            if not 0 <= pc <= len(self):
                raise ImageError(
                    f"symbol {name!r} = {pc}: must be 0 to {len(self)}, the length; {REMAKE}"
                )

    def _check_range(
        self, name: str, column: npt.NDArray[Any], low: int, high: int, of: str
    ) -> None:
        bad = np.flatnonzero((column < low) | (column > high))
        if bad.size:
            pc = int(bad[0])
            raise ImageError(f"{name}[{pc}] = {column[pc]}: {of} has {low} to {high}; {REMAKE}")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the content, as the file carries it; equal for equal images."""
        return checksum(self._content())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramImage) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def _content(self) -> dict[str, Any]:
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in content.items()}

    def stage_counts(self) -> dict[str, int]:
        """Words per stage name, in vocabulary order, without the stages that have none."""
        counts = np.bincount(self.stages, minlength=len(self.vocabulary)).tolist()
        return {name: n for name, n in zip(self.vocabulary, counts, strict=True) if n}

    def check_config(self, config: PlenaConfig) -> None:
        """Refuse a machine on which this program would not mean the same.

        Sizes and formats must be equal, capacities (`AT_LEAST_FIELDS`) at least those that the
        program was made for, and what changes time only is ignored. A field that neither set names
        must be equal.

        Raises:
            ImageError: too long for IMEM_WORDS, or a field differs; both values are named.
        """
        if len(self) > config.IMEM_WORDS:
            raise ImageError(
                f"the program has {len(self)} words, configuration {config.name!r} has "
                f"IMEM_WORDS = {config.IMEM_WORDS}; raise it or roll loops"
            )
        if self.config is None:
            return
        machine = dataclasses.asdict(config)
        for name in sorted((self.config.keys() | machine.keys()) - IGNORED_FIELDS):
            made_for = self.config.get(name, "(absent)")
            has = machine.get(name, "(absent)")
            capacity = name in AT_LEAST_FIELDS and isinstance(made_for, int)
            if made_for == has or (capacity and made_for <= has):
                continue
            raise ImageError(
                f"{name}: the program was made for {made_for} "
                f"(configuration {self.config.get('name')!r}), the machine has {has} "
                f"(configuration {config.name!r}) and needs "
                f"{'at least as much' if capacity else 'the same'}; {REMAKE} for this machine"
            )

    def listing(self) -> str:
        """The program as text: pc, word, stage, pair, instruction, source line, with labels."""
        width = max(map(len, self.vocabulary))
        labels: dict[int, list[str]] = {}
        for name, pc in self.symbols.items():
            labels.setdefault(pc, []).append(f"{name}:")
        head = f"{'pc':>6}  {'word':8}  {'stage':{width}}  {'pair':>4}  {'instruction':40}"
        rows = [f"{head}  line: source"]
        for pc in range(len(self)):
            rows += labels.get(pc, [])
            word, line = int(self.words[pc]), int(self.lines[pc])
            stage = self.vocabulary[self.stages[pc]]
            pair = "-" if self.pairs[pc] < 0 else str(self.pairs[pc])
            rows.append(
                f"{pc:6d}  {word:08X}  {stage:{width}}  {pair:>4}  {word_text(word):40}  "
                f"{line}: {self.source[line - 1].strip()}"
            )
        return "\n".join([*rows, *labels.get(len(self), []), ""])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the image file; the old file stays whole until the new one is complete.

        The format is the JSON of `isa.image_schema`.

        Raises:
            ImageError: a value that JSON cannot carry, in `emitters`.
            OSError: the file cannot be written.
        """
        write_atomically(path, pack(self._content()))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, strict: bool = True) -> "ProgramImage":
        """Read an image file, with its stages mapped by name into our own vocabulary.

        A stage name that we do not know is an error when `strict`; else it keeps the stage before
        it and is listed in `unresolved_stage_markers`. The same holds for names that the assembler
        left unresolved.

        Raises:
            ImageError: unreadable, damaged or inconsistent; the message names file and reason.
        """
        try:
            image = cls(**unpack(Path(path).read_bytes()))
            return image._with_own_vocabulary(strict)
        except OSError as error:
            raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ImageError as error:
            raise ImageError(f"{path}: {error}") from error

    def _with_own_vocabulary(self, strict: bool) -> "ProgramImage":
        unresolved = list(self.unresolved_stage_markers)
        unresolved += [n for n in self.vocabulary if n not in VOCABULARY and n not in unresolved]
        if strict and unresolved:
            raise ImageError(
                f"stage names that are not in the vocabulary: {', '.join(unresolved)}; correct "
                "the markers, or load with strict=False to keep the stage before them"
            )
        return dataclasses.replace(
            self,
            stages=_own_stages(self.vocabulary, self.stages),
            vocabulary=VOCABULARY,
            unresolved_stage_markers=tuple(unresolved),
        )


def _own_stages(vocabulary: Sequence[str], stages: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Indices into `vocabulary` as `Stage` values; an unknown name repeats the stage before it."""
    known = np.array([VOCABULARY.index(n) if n in VOCABULARY else -1 for n in vocabulary])
    mapped = known[stages]
    source = np.maximum.accumulate(np.where(mapped >= 0, np.arange(len(mapped)), -1))
    return np.where(source >= 0, mapped[source], Stage.OTHER.value).astype(np.uint8)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file through a temporary one beside it, so that nobody ever sees half of it.

    Raises:
        OSError: about `path`, whichever file the cause was about.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)
