"""A session: programs from consecutive seeds until a limit or a difference, and its record."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.status import Status

from isa.config import PlenaConfig
from isa.opcodes import BY_MNEMONIC
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.crowded import CrowdedGenerator
from testbench.fuzz.generator import Generator
from testbench.fuzz.record import BLOCK, Record
from testbench.fuzz.run import Check, Outcome, is_runnable
from testbench.fuzz.shrink import shrink

EVERY_OPCODE = frozenset(BY_MNEMONIC)

#: What makes programs, by name.
GENERATORS: dict[str, type[Generator]] = {"plain": Generator, "crowded": CrowdedGenerator}
#: Each of them in turn, from seed to seed.
ALL_GENERATORS = "all"


@dataclass(frozen=True)
class Limits:
    """When a session ends; None is no limit. `count` are seeds, `instructions` of all policies."""

    count: int | None = None
    instructions: int | None = None
    minutes: float | None = None


@dataclass(frozen=True)
class Failure:
    """A program whose runs disagree."""

    seed: int
    case: FuzzCase
    outcome: Outcome


def generator_of(choice: str, seed: int) -> str:
    """The generator that makes the program of a seed: `choice`, or one after the other."""
    return list(GENERATORS)[seed % len(GENERATORS)] if choice == ALL_GENERATORS else choice


def case_of(config: PlenaConfig, seed: int, generator: str = "plain") -> FuzzCase:
    """The program that a generator, or the one whose turn it is, makes of a seed."""
    return GENERATORS[generator_of(generator, seed)](config, seed, EVERY_OPCODE).case("overlap")


@contextmanager
def _shown(record: Record, limits: Limits) -> Iterator[Callable[[], None]]:
    """A status line on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with Status("", console=Console(stderr=True)) as status:

        def update() -> None:
            goal = f" of {limits.instructions:,}" if limits.instructions else ""
            status.update(
                f"{record.config}: seed {record.next_seed}, {record.total:,}{goal} instructions"
            )

        yield update


def run_session(
    config: PlenaConfig,
    check: Check,
    record: Record,
    limits: Limits,
    save: Callable[[], None] = lambda: None,
) -> Failure | None:
    """Run the programs behind those of `record`, which counts them; the first difference.

    `save` is called after every block of programs, and at the end.
    """
    deadline = time.monotonic() + 60 * limits.minutes if limits.minutes else None
    end = None if limits.count is None else record.first_seed + limits.count
    failure = None
    with _shown(record, limits) as update:
        while failure is None:
            seed = record.next_seed
            if (
                (end is not None and seed >= end)
                or (limits.instructions is not None and record.total >= limits.instructions)
                or (deadline is not None and time.monotonic() > deadline)
            ):
                break
            case = case_of(config, seed, record.generator)
            outcomes = check(case) if is_runnable(case) else []
            if outcomes and outcomes[-1].failure:
                generator = generator_of(record.generator, seed)
                failure = Failure(seed, case, outcomes[-1])
                record.failures.append(f"seed {seed}, {generator}: {outcomes[-1].failure}")
                break
            record.add(seed, outcomes)
            update()
            if (record.next_seed - record.first_seed) % BLOCK == 0:
                save()
    save()
    return failure


def verify(
    config: PlenaConfig, check: Check, kept: Record, limits: Limits, fresh: Record
) -> Failure | str | None:
    """Run the programs of `kept` again, all or the first `limits.count`, into `fresh`.

    Returns a failure of a program, or the first block that came out differently; None when all is
    as it was.
    """
    count = kept.next_seed - kept.first_seed
    if limits.count is not None:
        count = min(count, -(-limits.count // BLOCK) * BLOCK)
    limits = Limits(count, None, limits.minutes)
    failure = run_session(config, check, fresh, limits)
    if failure is not None:
        return failure
    for old, new in zip(kept.blocks, fresh.blocks, strict=False):
        if old.seeds == new.seeds and old.digest != new.digest:
            last = old.first_seed + old.seeds - 1
            return (
                f"seeds {old.first_seed} to {last} came out differently: digest {new.digest}, "
                f"recorded {old.digest}; the programs, their cycles or their results have changed"
            )
    return None


def save_failure(failure: Failure, check: Check, folder: Path, *, small: bool) -> FuzzCase:
    """Shrink (when `small`) and save a failing case with its report; the case that was saved."""

    def failing(case: FuzzCase) -> str:
        return check(case)[-1].failure if is_runnable(case) else ""

    case, report = failure.case, failure.outcome.failure
    if small:
        case = shrink(case, lambda c: bool(failing(c)))
        report = failing(case) or report
    case.save(folder, report)
    return case
