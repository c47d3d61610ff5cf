"""The record of a session: which programs ran and what each block of them left, so that a later
session can go on behind it, or run it again and compare."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isa.config import PlenaConfig
from isa.image import write_atomically
from isa.opcodes import OPCODES
from testbench.fuzz.run import Outcome

SCHEMA = 1
#: Programs whose outcomes one digest stands for.
BLOCK = 100
_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = ("isa", "rtl", "sim", "testbench/fuzz")


class RecordError(ValueError):
    """A record that cannot be used here; the message says why, and the way out."""


def sources_digest() -> str:
    """A hash of every source that a program and its outcome follow from."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".h"):
                digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass
class Block:
    """Consecutive seeds: `digest` covers cause, instructions, cycles and final state of each
    run."""

    first_seed: int
    seeds: int = 0
    digest: str = ""

    def add(self, seed: int, outcomes: Sequence[Outcome]) -> None:
        """The next seed, with its runs; none when its program does not end soon enough."""
        self.seeds += 1
        text = [self.digest, str(seed)]
        for outcome in outcomes:
            final = outcome.final.digest if outcome.final else ""
            ends = [(r.cause.name, r.pc, r.word, r.operand, r.precise) for r in outcome.results]
            text.append(f"{ends} {outcome.instructions} {outcome.cycles} {final}")
        self.digest = hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


@dataclass
class Record:
    """What a session ran, and with what; totals per issue policy.

    A file that names no generator is of `plain`: once there was no other.
    """

    config: str
    config_digest: str
    policies: tuple[str, ...]
    check: str
    sources: str
    first_seed: int
    generator: str = "plain"
    programs: int = 0
    instructions: dict[str, int] = field(default_factory=dict)
    cycles: dict[str, int] = field(default_factory=dict)
    ended_by: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    engines: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @classmethod
    def new(
        cls,
        config: PlenaConfig,
        policies: Sequence[str],
        check: str,
        first_seed: int,
        generator: str,
    ) -> "Record":
        """An empty record of these sources."""
        digest, policies = sources_digest(), tuple(policies)
        return cls(config.name, config.digest, policies, check, digest, first_seed, generator)

    @property
    def next_seed(self) -> int:
        """The first seed that is not in it."""
        return self.first_seed + sum(block.seeds for block in self.blocks)

    @property
    def total(self) -> int:
        """Instructions of all policies."""
        return sum(self.instructions.values())

    def add(self, seed: int, outcomes: Sequence[Outcome]) -> None:
        """Count one program; no outcomes: it was left out."""
        if not self.blocks or self.blocks[-1].seeds == BLOCK:
            self.blocks.append(Block(seed))
        self.blocks[-1].add(seed, outcomes)
        self.programs += bool(outcomes)
        for issue, outcome in zip(self.policies, outcomes, strict=False):
            self.instructions[issue] = self.instructions.get(issue, 0) + outcome.instructions
            self.cycles[issue] = self.cycles.get(issue, 0) + outcome.cycles
            self.seconds += outcome.seconds
            self.ended_by[outcome.cause.name] += 1
            self.executed.update({OPCODES[c].mnemonic: n for c, n in outcome.codes.items()})

    def text(self) -> str:
        """For a person: what ran, how it ended, and what never ran."""
        seeds = f"seeds {self.first_seed} to {self.next_seed - 1}" if self.blocks else "no seed"
        each = ", ".join(
            f"{self.instructions[p]:,} instructions and {self.cycles[p]:,} cycles under {p}"
            for p in self.instructions
        )
        causes = ", ".join(f"{cause} {n}" for cause, n in self.ended_by.most_common())
        missing = [op.mnemonic for op in OPCODES.values() if not self.executed[op.mnemonic]]
        rate = self.total / max(self.seconds, 1e-9)
        return (
            f"{self.config}: {self.programs:,} programs ({seeds}, generator {self.generator}), "
            f"{self.total:,} instructions in {self.seconds:.1f} s of CPU ({rate:,.0f} per second)\n"
            f"{each or 'nothing ran'}\n"
            f"ended by: {causes or 'nothing'}\nnever executed: {', '.join(missing) or 'no opcode'}"
        )

    def save(self, path: Path) -> None:
        """Write it; whole or not at all."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "what": "random programs in lock step",
            **vars(self),
            "blocks": [vars(block) for block in self.blocks],
            "next_seed": self.next_seed,
            "total_instructions": self.total,
        }
        content["seconds"] = round(self.seconds, 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read one back.

        Raises:
            RecordError: it is not a record of this version.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise RecordError(f"{path}: schema {content['schema']}, not {SCHEMA}: make it anew")
            content.setdefault("generator", "plain")
            fields = {f.name: content[f.name] for f in dataclasses.fields(cls)}
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, RecordError):
                raise
            raise RecordError(f"{path}: not a record of python -m testbench.fuzz") from error
        fields["policies"] = tuple(fields["policies"])
        fields["blocks"] = [Block(**block) for block in fields["blocks"]]
        fields["ended_by"], fields["executed"] = (
            Counter(fields["ended_by"]),
            Counter(fields["executed"]),
        )
        return cls(**fields)

    def check_same(self, other: "Record", path: Path) -> None:
        """RecordError unless a session described by `other` may go on with this one."""
        for name, what in (
            ("config_digest", "configuration"),
            ("policies", "issue policies"),
            ("check", "kind of check"),
            ("first_seed", "first seed"),
            ("generator", "generator"),
            ("sources", "sources"),
        ):
            if getattr(self, name) != getattr(other, name):
                raise RecordError(
                    f"{path}: was made with another {what} ({getattr(self, name)}, now "
                    f"{getattr(other, name)}); give another file, or --verify {path}"
                )
