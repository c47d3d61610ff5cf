"""The memories and register files that a request may load or dump, as one table."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from isa.instruction import nearest, parse_number
from sim.simulation import Simulation
from testbench.session.request import RequestError

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Store:
    """One memory: `count` units, each of `shape` elements of `dtype`.

    `field` is the configuration's field that gives the size, empty when it is fixed. `write` is
    None where a program cannot find what the host leaves: register files.
    """

    name: str
    title: str
    unit: str
    field: str
    dtype: type[np.generic]
    bf16: bool
    count: Callable[[PlenaConfig], int]
    shape: Callable[[PlenaConfig], tuple[int, ...]]
    read: Callable[[Simulation, int, int], Array]
    write: Callable[[Simulation, int, Array], None] | None = None

    def size(self, config: PlenaConfig) -> int:
        """Elements of one unit."""
        return int(np.prod(self.shape(config), dtype=np.int64))


def _one(_: PlenaConfig) -> tuple[int, ...]:
    return ()


def _row(config: PlenaConfig) -> tuple[int, ...]:
    return (config.MLEN,)


def _tile(config: PlenaConfig) -> tuple[int, ...]:
    return (config.MLEN, config.MLEN)


def _read_tiles(simulation: Simulation, first: int, count: int) -> Array:
    return np.stack([simulation.memories.read_matrix(first + i) for i in range(count)])


def _write_tiles(simulation: Simulation, first: int, values: Array) -> None:
    for number, tile in enumerate(values, first):
        simulation.memories.write_matrix(number, tile)


def _read_hbm(simulation: Simulation, first: int, count: int) -> Array:
    return np.frombuffer(simulation.hbm.read(first, count), np.uint8)


STORES: dict[str, Store] = {
    store.name: store
    for store in (
        Store(
            *("vram", "vector SRAM", "row", "VRAM_ROWS", np.uint16, True),
            lambda config: config.VRAM_ROWS,
            _row,
            lambda sim, first, count: sim.memories.read_vector(first, count),
            lambda sim, first, values: sim.memories.write_vector(first, values),
        ),
        Store(
            *("mram", "matrix SRAM", "tile", "MRAM_TILES", np.uint16, True),
            lambda config: config.MRAM_TILES,
            _tile,
            _read_tiles,
            _write_tiles,
        ),
        Store(
            *("fp", "FP_MEM", "word", "FP_MEM_WORDS", np.uint16, True),
            lambda config: config.FP_MEM_WORDS,
            _one,
            lambda sim, first, count: sim.memories.read_fp()[first : first + count],
            lambda sim, first, values: sim.memories.write_fp(first, values),
        ),
        Store(
            *("int", "INT_MEM", "word", "INT_MEM_WORDS", np.uint32, False),
            lambda config: config.INT_MEM_WORDS,
            _one,
            lambda sim, first, count: sim.memories.read_int()[first : first + count],
            lambda sim, first, values: sim.memories.write_int(first, values),
        ),
        Store(
            *("hbm", "HBM", "byte", "HBM_BYTES", np.uint8, False),
            lambda config: config.HBM_BYTES,
            _one,
            _read_hbm,
            lambda sim, first, values: sim.hbm.write(first, values),
        ),
        Store(
            *("gp", "gp registers", "register", "", np.uint32, False),
            lambda _: 16,
            _one,
            lambda sim, first, count: sim.memories.read_gp()[first : first + count],
        ),
        Store(
            *("f", "f registers", "register", "", np.uint16, True),
            lambda _: 8,
            _one,
            lambda sim, first, count: sim.memories.read_f()[first : first + count],
        ),
        Store(
            *("a", "a registers", "register", "", np.uint64, False),
            lambda _: 8,
            _one,
            lambda sim, first, count: sim.memories.read_a()[first : first + count],
        ),
    )
}

_PLACE = re.compile(r"([^:]*)(?::([^:]*))?(?::([^:]*))?")


@dataclass(frozen=True)
class Place:
    """`NAME:FIRST:COUNT` of a request; None is what was left out. `option` is for messages."""

    option: str
    store: Store
    first: int | None
    count: int | None

    @classmethod
    def parse(cls, option: str, text: str) -> "Place":
        """The place that `text` names; RequestError says what is wrong with it."""
        found = _PLACE.fullmatch(text)
        name = text.split(":")[0]
        if found is None or name not in STORES:
            hint = "" if name in STORES else nearest(name, STORES)
            raise RequestError(
                f"{option}: {text!r} must be MEMORY, MEMORY:FIRST or MEMORY:FIRST:COUNT, with a "
                f"memory of {', '.join(STORES)}{hint}"
            )
        numbers = []
        for what, token in (("FIRST", found.group(2)), ("COUNT", found.group(3))):
            number = None if token is None else parse_number(token)
            if token is not None and number is None:
                raise RequestError(
                    f"{option}: {what} {token!r} must be a number, decimal or 0x hexadecimal"
                )
            numbers.append(number)
        return cls(option, STORES[name], *numbers)

    def check(self, config: PlenaConfig, first: int, count: int) -> None:
        """RequestError when `count` units from `first` on are not all there."""
        store, size = self.store, self.store.count(config)
        if count < 1:
            raise RequestError(f"{self.option}: COUNT must be at least 1 {store.unit}")
        if first + count > size:
            more = f", or a --config with more {store.field}" if store.field else ""
            raise RequestError(
                f"{self.option}: {count} {store.unit}{'s' * (count > 1)} from {store.unit} "
                f"{first:#x} ({first}) on leave the {store.title}, which has {store.unit}s 0 to "
                f"{size - 1} in configuration {config.name!r}; ask for fewer{more}"
            )
