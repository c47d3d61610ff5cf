"""The whole design as C: layout of the storage, a function per unit, and the loops that call
them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sim.compiled.layout import Layout
from sim.compiled.leaf import LeafFunction
from sim.compiled.netlist import Net, Netlist
from sim.compiled.schedule import Schedule, Unit, schedule
from sim.compiled.terms import Term
from sim.compiled.units import UnitEmitter

__all__ = ["PRELUDE", "Program", "make_program"]

PRELUDE = (Path(__file__).parent / "prelude.h").read_text(encoding="utf-8")

_DRIVER = """
typedef void (*unit)(u8 *);
static const unit first_half[] = {{{units}}};
static const unit second_half[] = {{{commits}}};

/* Runs what has an input that changed, in order; 1 if that never ends. */
FAR int settle(u8 *M) {{
  u64u *flags = P64(0);
  i64 patience = 64000 * {comb_words};
  for (;;) {{
    for (int w = 0; w < {comb_words}; w++) {{
      while (flags[w]) {{
        if (--patience < 0) return 1;
        int bit = __builtin_ctzll(flags[w]);
        flags[w] &= flags[w] - 1;
        first_half[64 * w + bit](M);
      }}
    }}
    u64 left = 0;
    for (int w = 0; w < {comb_words}; w++) left |= flags[w];
    if (!left) return 0;
  }}
}}

FAR void edge(u8 *M) {{
  u64u *flags = P64(0);
  for (int w = {comb_words}; w < {comb_words} + {sync_words}; w++) {{
    u64 due = flags[w];
    flags[w] = 0;
    for (; due; due &= due - 1) first_half[64 * w + __builtin_ctzll(due)](M);
  }}
  for (int w = 0; w < {sync_words}; w++) {{
    u64 due = flags[{comb_words} + {sync_words} + w];
    flags[{comb_words} + {sync_words} + w] = 0;
    for (; due; due &= due - 1) second_half[64 * w + __builtin_ctzll(due)](M);
  }}
}}

EXPORT int plena_settle(u8 *M) {{ return settle(M); }}
EXPORT int plena_step(u8 *M, i64 cycles) {{
  int bad = 0;
  for (i64 i = 0; i < cycles && !bad; i++) {{
    edge(M);
    bad = settle(M);
  }}
  return bad;
}}
"""


@dataclass
class Program:
    """Sources of a design, and the description that the host needs to work with its storage.

    Attributes:
        sources: C file name -> text.
        layout: where everything is.
        wakes: net -> flags to raise when the host changes it.
        groups: (count, leaf) of each loop over leaves, for reports.
    """

    netlist: Netlist
    schedule: Schedule
    layout: Layout
    sources: dict[str, str]
    leaf_functions: list[LeafFunction]
    groups: list[tuple[int, str]]
    emitter: UnitEmitter

    @property
    def flag_words(self) -> tuple[int, int]:
        """Words of flags for combinational and for clocked units."""
        return _flag_words(self.schedule)


def _flag_words(plan: Schedule) -> tuple[int, int]:
    return max(1, -(-len(plan.comb) // 64)), max(1, -(-len(plan.sync) // 64))


def _place(netlist: Netlist, plan: Schedule, layout: Layout) -> None:
    """Operands and results of leaves first, so that rows of leaves read and write arrays."""

    def nets_of(terms: Iterable[Term]) -> Iterable[int]:
        for term in terms:
            yield from (
                p.attr[0] for p in (term.args if term.op == "cat" else (term,)) if p.op == "ref"
            )

    leaves = [u for u in plan.comb if u.kind == "leaf"]
    for unit in leaves:
        for port in unit.leaves[0].outputs:
            layout.place(c.outputs[port] for c in unit.leaves)
    for unit in leaves:
        for port in unit.leaves[0].inputs:
            layout.place(nets_of(c.inputs[port] for c in unit.leaves))
    for unit in plan.sync:
        layout.place(sorted(unit.drives, key=lambda n: -min(8, netlist.nets[n].width)))
    layout.place(range(len(netlist.nets)))
    layout.place_next()
    layout.place_memories(netlist.memories)


def make_program(netlist: Netlist, host: Callable[[UnitEmitter], str] | None = None) -> Program:
    """Schedules the design and writes its C; `host` makes more C for the end of the main file."""
    plan = schedule(netlist)
    comb_words, sync_words = _flag_words(plan)
    for number, unit in enumerate(plan.sync):
        unit.index = 64 * comb_words + number
    layout = Layout(netlist.nets, comb_words + 2 * sync_words)
    _place(netlist, plan, layout)
    leaves: dict[object, LeafFunction] = {}
    for cell in netlist.leaves:
        if cell.leaf.key not in leaves:
            leaves[cell.leaf.key] = LeafFunction(
                cell.leaf, f"leaf_{len(leaves)}_{type(cell.leaf).__name__}"
            )
    emitter = UnitEmitter(netlist, plan, layout, leaves, 64 * sync_words)
    bodies = [emitter.unit(u) for u in plan.units]
    extra = host(emitter) if host is not None else ""
    main = "\n".join(
        [
            PRELUDE,
            '#define EXPORT __attribute__((visibility("default")))',
            *(f"{f.prototype};" for f in leaves.values()),
            *emitter.tables.text,
            "",
            *bodies,
            _DRIVER.format(
                units=_table(plan.units, "unit_"),
                commits=_table(plan.sync, "commit_", skip="write"),
                comb_words=comb_words,
                sync_words=sync_words,
            ),
            extra,
        ]
    )
    sources = {"design.c": main}
    if leaves:
        sources["leaves.c"] = "\n".join([PRELUDE, *(f.emit() for f in leaves.values())])
    groups = [
        (len(u.leaves), leaves[u.leaves[0].leaf.key].title) for u in plan.comb if u.kind == "leaf"
    ]
    return Program(netlist, plan, layout, sources, list(leaves.values()), groups, emitter)


def _table(units: list[Unit], prefix: str, skip: str = "") -> str:
    """Functions by flag."""
    start = units[0].index // 64 * 64 if units and prefix == "commit_" else 0
    size = max((u.index for u in units), default=-1) + 1 - start
    names = ["0"] * max(size, 1)
    for unit in units:
        if unit.kind != skip:
            names[unit.index - start] = f"{prefix}{unit.index}"
    return ", ".join(names)


def initial(net: Net) -> int:
    """The bit pattern a net begins with."""
    return net.init & ((1 << net.width) - 1)
