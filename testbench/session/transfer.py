"""What a request loads before the run and dumps after it: parsed and checked before anything
starts, so that a run is never lost to a mistyped option."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

from isa.config import PlenaConfig
from sim.hbm import HbmImageError, HbmMemory
from sim.simulation import Simulation
from testbench.session.dialect import check_dialect, note, noted_npy
from testbench.session.request import RequestError
from testbench.session.stores import STORES, Array, Place
from testbench.session.values import hex_text, npy_bytes, read_values

#: Files that a dump can write, by what their names end in.
DUMP_FORMS = (".npy", ".hex")
HBM_IMAGE = ".npz"


def _split(option: str, text: str) -> tuple[str, str | None]:
    place, equals, path = text.partition("=")
    if equals and not path:
        raise RequestError(f"{option} {text}: name a file after the =")
    return place, path if equals else None


@dataclass(frozen=True)
class Load:
    """`--load MEMORY:FIRST=FILE`, with the values read."""

    option: str
    place: Place
    path: Path
    first: int
    values: Array | None
    """None for an HBM image (.npz), which is in `image`."""
    image: HbmMemory | None = None

    @classmethod
    def parse(cls, text: str, config: PlenaConfig) -> "Load":
        """Reads and checks; RequestError names the option, both sides and the way out."""
        option = f"--load {text}"
        where, file = _split("--load", text)
        if file is None:
            raise RequestError(f"{option}: must be MEMORY:FIRST=FILE")
        place, path = Place.parse(option, where), Path(file)
        if place.count is not None:
            raise RequestError(f"{option}: the file says how much is loaded; leave COUNT out")
        if place.store.write is None:
            names = ", ".join(s.name for s in STORES.values() if s.write is not None)
            raise RequestError(
                f"{option}: {place.store.title} cannot be loaded; load one of {names}, or let the "
                "program set them"
            )
        first = place.first or 0
        if place.store.name == "hbm" and path.suffix.lower() == HBM_IMAGE:
            if first:
                raise RequestError(f"{option}: an HBM image is the whole memory; load it at 0")
            return cls(option, place, path, 0, None, _hbm_image(option, path, config))
        if place.store.name == "hbm":
            check_dialect(option, path, config)
        values = read_values(option, path, place.store, config)
        place.check(config, first, len(values))
        return cls(option, place, path, first, values)

    def apply(self, simulation: Simulation) -> None:
        """Put the values where they belong."""
        if self.image is not None:
            for address, page in self.image.image().items():
                simulation.hbm.write(address, page)
        if self.values is not None and self.place.store.write is not None:
            self.place.store.write(simulation, self.first, self.values)


def _hbm_image(option: str, path: Path, config: PlenaConfig) -> HbmMemory:
    image = HbmMemory(config.HBM_BYTES, config.mx_dialect)
    try:
        with path.open("rb") as file:  # numpy leaves a file open that is no archive
            if not is_zipfile(file):
                raise BadZipFile("not an archive, or cut short")
        image.load(path)
    except (HbmImageError, BadZipFile) as error:
        raise RequestError(f"{option}: {path} is no HBM image of this memory: {error}") from error
    return image


@dataclass(frozen=True)
class Dump:
    """`--dump MEMORY:FIRST:COUNT=FILE`; `path` is None for a dump on the terminal."""

    option: str
    place: Place
    path: Path | None
    first: int
    count: int

    @classmethod
    def parse(cls, text: str, config: PlenaConfig) -> "Dump":
        """Checks everything but the file's folder; RequestError names the option and the way out.

        Without FIRST and COUNT it is the whole memory, with FIRST alone one unit; HBM needs both.
        """
        option = f"--dump {text}"
        where, file = _split("--dump", text)
        place = Place.parse(option, where)
        path = None if file is None else Path(file)
        if path is not None and path.suffix.lower() not in DUMP_FORMS:
            raise RequestError(
                f"{option}: the file's name must end in {' or '.join(DUMP_FORMS)}, which says how "
                "it is written"
            )
        if place.store.name == "hbm" and place.count is None:
            raise RequestError(
                f"{option}: say which bytes, hbm:ADDRESS:COUNT; HBM has {config.HBM_BYTES}"
            )
        first = place.first or 0
        whole = place.store.count(config) if place.first is None else 1
        count = whole if place.count is None else place.count
        place.check(config, first, count)
        return cls(option, place, path, first, count)

    def render(self, simulation: Simulation) -> bytes:
        """The whole file, or the text for the terminal."""
        values, config = (
            self.place.store.read(simulation, self.first, self.count),
            simulation.config,
        )
        coded = self.place.store.name == "hbm"
        if self.path is not None and self.path.suffix.lower() == ".npy":
            return noted_npy(npy_bytes(values), config) if coded else npy_bytes(values)
        head = f"; {note(config)}\n" if coded else ""
        return (head + hex_text(values, self.place.store, self.first)).encode()
