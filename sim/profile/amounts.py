"""The additive amounts of a stage or pair, and the fields that a profile shows for them.

Everything is summed in picoseconds, instructions and bytes; cycles and fractions are views that are
made last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from isa.opcodes import Unit

#: The bucket of the resource proxies that a unit's busy time goes to. V_TOPK is a vector
#: instruction by name, so that its unit belongs to the vector bucket.
PROXY_OF: dict[Unit, str] = {
    Unit.MATRIX: "matrix",
    Unit.VECTOR: "vector",
    Unit.TOPK: "vector",
    Unit.SCALAR: "scalar",
    Unit.HBM: "dma",
    Unit.CONTROL: "other",
}
PROXIES = ("matrix", "vector", "scalar", "dma", "other")
PICOS_PER_SECOND = 10**12


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """What was spent; `proxies` are picoseconds of busy units per bucket."""

    instructions: int = 0
    wall_picos: int = 0
    hbm_read: int = 0
    hbm_written: int = 0
    proxies: dict[str, int]

    @classmethod
    def total(cls, parts: Iterable["Amounts"]) -> "Amounts":
        """The sum."""
        found = list(parts)
        return cls(
            instructions=sum(part.instructions for part in found),
            wall_picos=sum(part.wall_picos for part in found),
            hbm_read=sum(part.hbm_read for part in found),
            hbm_written=sum(part.hbm_written for part in found),
            proxies={name: sum(part.proxies[name] for part in found) for name in PROXIES},
        )

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> "Amounts":
        """The amounts behind the fields of a stage or pair in a profile."""
        return cls(
            instructions=fields["instructions"],
            wall_picos=fields["wall_picos"],
            hbm_read=fields["physical_hbm_bytes_read"],
            hbm_written=fields["physical_hbm_bytes_written"],
            proxies=dict(fields["resource_proxy_picos"]),
        )

    def fields(self, whole: "Amounts", period_picos: int) -> dict[str, Any]:
        """The fields of a stage or pair; fractions are of `whole`, and 0 of nothing is 0."""
        return {
            "instructions": self.instructions,
            "wall_picos": self.wall_picos,
            "wall_cycles": cycles_of(self.wall_picos, period_picos),
            "seconds": self.wall_picos / PICOS_PER_SECOND,
            "instruction_fraction": fraction(self.instructions, whole.instructions),
            "time_fraction": fraction(self.wall_picos, whole.wall_picos),
            "logical_bytes_read": None,
            "logical_bytes_written": None,
            "physical_hbm_bytes_read": self.hbm_read,
            "physical_hbm_bytes_written": self.hbm_written,
            "hbm_bytes_read": self.hbm_read,
            "hbm_bytes_written": self.hbm_written,
            "resource_proxy_picos": self.proxy_picos(),
            "resource_proxy_cycles": self.proxy_cycles(period_picos),
        }

    def proxy_picos(self) -> dict[str, int]:
        """Picoseconds per bucket."""
        return {name: self.proxies[name] for name in PROXIES}

    def proxy_cycles(self, period_picos: int) -> dict[str, int]:
        """The same in cycles."""
        return {name: cycles_of(p, period_picos) for name, p in self.proxy_picos().items()}


def proxies_of(busy_picos: Mapping[Unit, int]) -> dict[str, int]:
    """Busy picoseconds of each unit, summed by bucket."""
    picos: dict[str, int] = dict.fromkeys(PROXIES, 0)
    for unit, busy in busy_picos.items():
        picos[PROXY_OF[unit]] += busy
    return picos


def cycles_of(picos: int, period_picos: int) -> int:
    """Whole clock periods that `picos` touches: rounded up, so a view and not for sums."""
    return -(-picos // period_picos)


def fraction(part: int, whole: int) -> float:
    """`part` of `whole`, 0.0 when there is no whole."""
    return part / whole if whole else 0.0
