"""The units whose mutants are tested, as data: the modules, memories and leaves that belong to
each."""

from dataclasses import dataclass

from isa.config import PRESETS

#: Small, and with two heads, so that nothing of the per-head logic is a constant.
CONFIG = PRESETS["tiny"].replace(name="two heads", HLEN=4)


@dataclass(frozen=True)
class MachineUnit:
    """A part of the machine: the modules at these paths below the top, and what is inside them.

    The longest path that fits decides where a module belongs; "" is the top itself. `kinds`: of
    programs that its mutants run, too: "sweeps" go on behind their traps, "traffic" keeps the
    scoreboard full, and "ports" as well, with large numbers in the counters.
    """

    name: str
    summary: str
    modules: tuple[str, ...]
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeafUnit:
    """Leaves by class name: the arithmetic that every instance of them shares."""

    name: str
    summary: str
    leaves: tuple[str, ...]


_SWEEPS, _TRAFFIC, _PORTS = ("sweeps",), ("traffic",), ("ports",)

MACHINE_UNITS: tuple[MachineUnit, ...] = (
    MachineUnit(
        "decode", "opcode, fields, traps", ("dispatcher.decoder", "dispatcher.verdict"), _SWEEPS
    ),
    MachineUnit(
        "registers",
        "register files, state registers, integer arithmetic, top-k policy",
        tuple(f"dispatcher.{name}" for name in ("gp", "f", "a", "integer", "policy", "records")),
        _SWEEPS,
    ),
    MachineUnit(
        "addresses", "address sums, ranges and footprints", ("dispatcher.resolver",), _SWEEPS
    ),
    MachineUnit(
        "scoreboard", "conflicts, ages, slots", ("dispatcher.scoreboard",), _TRAFFIC + _PORTS
    ),
    MachineUnit("dispatch", "fetch, issue, loops, run state", ("dispatcher",), _SWEEPS),
    MachineUnit("matrix", "sequencer and multiplier array", ("matrix",)),
    MachineUnit("accumulator", "accumulator banks and write-out", ("matrix.accumulator",)),
    MachineUnit("heads", "per-head accumulators", ("matrix.heads", "matrix.head_write_out")),
    MachineUnit("matrix_sram", "skewed banks", ("matrix_sram",)),
    MachineUnit("vector", "lanes, reductions, operand fetch", ("vector", "vector_sram")),
    MachineUnit("topk", "ranking and softmax", ("topk",)),
    MachineUnit("scalar", "BF16 scalars, word memories", ("scalar",)),
    MachineUnit("hbm_walk", "requests to memory", ("hbm", "hbm.beats", "hbm.rows"), _SWEEPS),
    MachineUnit(
        "hbm_load",
        "answers to SRAM rows",
        ("hbm.responses", "hbm.assembler", "hbm.decoder", "hbm.collect_queue", "hbm.step_queue"),
    ),
    MachineUnit("hbm_store", "SRAM rows to bytes", ("hbm.encoder", "hbm.store_queue")),
    MachineUnit("profile", "counters, and the events at the top", ("", "profile"), _PORTS),
)

LEAF_UNITS: tuple[LeafUnit, ...] = (
    LeafUnit("leaf_add", "BF16 and FP32 addition", ("FloatAdd",)),
    LeafUnit("leaf_mul", "BF16 and FP32 multiplication", ("FloatMul",)),
    LeafUnit("leaf_exp", "exponential", ("BF16Exp",)),
    LeafUnit("leaf_reciprocal", "reciprocal", ("BF16Reciprocal",)),
    LeafUnit("leaf_sqrt", "square root", ("BF16Sqrt",)),
    LeafUnit("leaf_select", "maximum, minimum, rounding", ("BF16MinMax", "RoundToBF16")),
    LeafUnit("leaf_mx", "MX conversion", ("MxDecode", "MxEncode", "MxBlockScale")),
)


def unit_of(path: tuple[str, ...]) -> str:
    """The machine unit that the module at a path below the top belongs to.

    Amaranth adds `$n` to a name that is taken already; that does not matter here.
    """
    parts = [part.split("$")[0] for part in path]
    for length in range(len(parts), -1, -1):
        where = ".".join(parts[:length])
        for unit in MACHINE_UNITS:
            if where in unit.modules:
                return unit.name
    raise AssertionError(f"no unit for {path}")  # "" fits everything
