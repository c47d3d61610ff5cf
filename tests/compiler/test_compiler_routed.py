"""The routed lowerings as programs: stages and labels, addresses, buffers, and their errors."""

import re

import numpy as np
import pytest

from compiler import CompileError, Order, Program
from compiler.expert_table import ExpertTable
from compiler.hbm import ADDRESS_WORD
from compiler.linear import Form
from compiler.linear import linear_projection as project
from compiler.loops import loop, loop_to
from compiler.registers import GP0
from compiler.routed_experts import Accumulation
from compiler.routed_pairs import HbmGather
from compiler.routed_program import RoutedProgram, compile_routed_experts
from compiler.routed_spec import Lowering, RoutedSpec, Routing
from compiler.weight_panels import StaticWeight, WeightPanels
from isa import BRANCH_OF, PRESETS, Branch, Instruction, Stage
from isa.traps import Trap
from sim.hbm import HbmDevice
from sim.machine import Machine
from sim.numerics.bf16 import to_bits
from testbench.reference.data import order_sensitive
from testbench.reference.matrix import linear_projection
from testbench.reference.routed_data import RoutedData, routed_data
from testbench.routed_case import routed_case
from testbench.workload import store_tensor

TINY, DEFAULT = PRESETS["tiny"], PRESETS["default"]
SPEC = RoutedSpec(experts=8, top_k=2, hidden=8, intermediate=8)
OSS = RoutedSpec(
    experts=4,
    top_k=2,
    hidden=16,
    intermediate=8,
    activation="gpt_oss_clamp_gated",
    biases=True,
)
SCALED = RoutedSpec(experts=4, top_k=1, hidden=16, intermediate=8, scale_input=True)
MARKER = re.compile(r"; @stage=(\w+)(?: .*?\bpair=(\d+))?")


def compiled(spec: RoutedSpec = SPEC, tokens: int = 3, **options) -> RoutedProgram:
    options = {"lowering": Lowering.PAIR, "order": Accumulation.PAIR} | options
    return compile_routed_experts(TINY, spec, tokens=tokens, **options)


def expert_major(spec: RoutedSpec, experts: list[list[int]], **options) -> RoutedProgram:
    options = {"lowering": Lowering.EXPERT, "order": Accumulation.EXPERT} | options
    return compiled(spec, len(experts), known=np.array(experts), **options)


def under(program: RoutedProgram) -> list[tuple[str, int | None, str]]:
    """(nearest marker above, its pair, mnemonic) of every instruction."""
    stage, pair, lines = "none", None, []
    for line in program.image.source:
        if found := MARKER.match(line):
            stage, pair = found[1], None if found[2] is None else int(found[2])
        elif line.startswith("    "):
            lines.append((stage, pair, line.split()[0]))
    return lines


@pytest.mark.parametrize("spec", [SPEC, OSS])
def test_every_step_of_a_pair_is_under_its_stage_and_label(spec):
    program = compiled(spec, 3)
    seen = under(program)
    assert {s for s, _, m in seen if m == "H_PREFETCH_M"} == {"expert_weight_prefetch"}
    assert {s for s, _, m in seen if m in ("M_MM", "M_MM_WO")} == {"expert_projection"}
    assert {s for s, _, m in seen if m == "C_SET_ADDR_REG"} == {"expert_weight_address"}
    assert {s for s, _, m in seen if m == "V_EXP_V"} == {"expert_activation"}
    for stage in ("expert_weight_prefetch", "expert_projection", "scatter_combine", "gather"):
        assert {p for s, p, _ in seen if s == stage} >= set(range(6))
    assert ("expert_bias" in {s for s, _, _ in seen}) == spec.biases
    assert seen[-1][0] == "scatter_combine"
    shared = {stage.label for stage in Stage if BRANCH_OF[stage] is Branch.SHARED}
    assert not shared & {s for s, _, _ in seen}


@pytest.mark.parametrize("order", Accumulation)
@pytest.mark.parametrize("spec", [SPEC, OSS, SCALED])
def test_every_step_of_an_expert_that_the_machine_chooses_is_under_its_stage(spec, order):
    """Also what is woven between the products, and what is fetched for the next expert."""
    program = compiled(spec, 5, lowering=Lowering.EXPERT, order=order)
    stages = {
        "H_PREFETCH_M": {"expert_weight_prefetch"},
        "C_SET_ADDR_REG": {"expert_weight_address"},
        "M_MM": {"expert_projection"},
        "M_MM_WO": {"expert_projection"},
        "V_EXP_V": {"expert_activation"},
        "V_RECI_V": {"expert_activation"},
        "V_ADD_VV": {"scatter_combine", *({"expert_bias"} if spec.biases else ())},
        "S_LD_FP": {"expert_route_weight", "expert_activation"},
        "S_MAP_V_FP": {"accumulator_init", "gather"},
    }
    seen = under(program)
    for mnemonic, expected in stages.items():
        assert {s for s, _, m in seen if m == mnemonic} == expected, mnemonic
    assert {pair for _, pair, _ in seen} == {None}, "a turn of the loop has no pair of its own"
    exponential = next(i for i, (_, _, m) in enumerate(seen) if m == "V_EXP_V")
    around = {m for _, _, m in seen[exponential - 8 : exponential + 8]}
    assert {"M_MM", "M_MM_WO"} <= around


def test_the_address_of_a_matrix_is_computed_once_per_pair():
    addresses = [m for _, _, m in under(compiled(OSS, 3)) if m == "C_SET_ADDR_REG"]
    assert len(addresses) == 3 * 6


def test_expert_major_fetches_every_chosen_expert_once():
    program = expert_major(SPEC, [[3, 0], [3, 5], [0, 3]])
    assert sum(m == "H_PREFETCH_M" for _, _, m in under(program)) == 3 * 3
    projection = [
        line
        for line in program.image.source
        if "@stage=expert_projection pair=0 first of 3" in line
    ]
    assert projection, "pair 0 is the first of the three that chose expert 3"


def test_buffers_are_used_again():
    """Vector SRAM does not grow with the pairs, and the sort does not grow the program."""
    assert len({compiled(SPEC, tokens).vram["x"].first_row for tokens in (1, 2, 40)}) == 1
    device = {"lowering": Lowering.EXPERT, "order": Accumulation.EXPERT}
    sizes = [len(compiled(SPEC, tokens, **device).image.words) for tokens in (8, 64)]
    assert abs(sizes[0] - sizes[1]) < 8, "only immediates grow"


@pytest.mark.parametrize(
    ("hidden", "inter", "tiles", "first"),
    [(1, 1, 16, 1), (3, 5, 16, 5), (2, 6, 16, 6), (4, 5, 16, None), (1, 1, 2, None)],
)
def test_a_third_panel_lies_in_tiles_that_no_chunk_fills(hidden, inter, tiles, first):
    """Shapes in tiles: gate is [hidden, inter], down the other way round."""
    prog = Program(TINY.replace(MRAM_TILES=tiles), "panels")
    gate = StaticWeight(prog.hbm.tensor("gate", hidden * 8, inter * 8))
    down = StaticWeight(prog.hbm.tensor("down", inter * 8, hidden * 8))
    with prog.a("weights") as address:
        panels = WeightPanels(prog, address)
        spare = panels.spare_panel(gate, down)
        assert spare == (None if first is None else 2)
        if spare is not None:
            assert panels.base(spare) == first * prog.config.tile_elements
            assert panels.base(spare) + hidden * prog.config.tile_elements <= panels.base(1)
            panels.place(gate, spare)
            prog.stage("expert_weight_prefetch")
            assert [panels.fetch_ahead(gate), panels.first(gate)] == [spare, spare]
            assert [panels.first(down) for _ in range(3)] == [0, 1, 0], "the two go on in turn"


def test_experts_of_a_table_lie_apart_on_boundaries():
    prog = Program(TINY, "tables")
    table = ExpertTable.allocate(prog, "w", 5, 8, 16, order=Order.ROWS)
    bases = [table.of(e).base for e in range(5)]
    assert all(base % 64 == 0 for base in bases)
    assert set(np.diff(bases)) == {table.stride}
    assert table.stride >= table.tensor.footprint
    behind = prog.hbm.tensor("behind", 8, 8)
    assert behind.base >= bases[-1] + table.tensor.footprint
    with pytest.raises(CompileError, match=r"w: expert 5: must be 0 to 4"):
        table.of(5)


def address_on_the_machine(table: ExpertTable, prog: Program, expert: int) -> int:
    """What `ExpertTable.set_address` leaves in the address register."""
    word = prog.int_mem.window("expert", 1)
    with prog.a("weights") as register:
        table.set_address(prog, register, word.start)
        index = register.index
    machine = Machine(prog.config, prog.build(), HbmDevice(prog.config))
    machine.memories.write_int(0, prog.int_mem.initial())
    machine.memories.write_int(word.start, [expert])
    assert machine.run().cause is Trap.DONE
    return int(machine.memories.read_a()[index])


@pytest.mark.parametrize("at", [0, ADDRESS_WORD - 192, 3 * ADDRESS_WORD - 64, 2 * ADDRESS_WORD])
def test_addresses_across_a_4_gib_line(at):
    for expert in range(4):
        prog = Program(TINY, "lines")
        table = ExpertTable.allocate(prog, "w", 4, 8, 8, at=at)
        assert address_on_the_machine(table, prog, expert) == table.of(expert).base


def test_a_table_that_fits_does_not_cross_a_4_gib_line():
    prog = Program(TINY, "line")
    prog.hbm.tensor("before", 8, 8, at=ADDRESS_WORD - 256)
    table = ExpertTable.allocate(prog, "w", 3, 8, 8)
    assert table.tensor.base == ADDRESS_WORD
    assert table.high_words is None


def trips(extent: int, inner: int = 1) -> int:
    """How often the body of a loop to the end of `extent` runs, at 8 a turn; its body uses every
    register that is free."""
    prog = Program(TINY, "trips")
    word, count = prog.int_mem.window("extent", 1), prog.int_mem.window("count", 1)
    prog.stage("gather")
    with prog.gps("held before", "pointer") as (_, pointer):
        prog.emit("S_ADDI_INT", pointer, GP0, 1000)
        with loop_to(prog, pointer, word.start, "outer"):
            with loop(prog, inner, "inner"):
                with prog.gps(*(f"clobbered {i}" for i in range(10))) as registers:
                    for register in registers:
                        prog.emit("S_ADDI_INT", register, register, 77)
                with prog.gp("count") as counted:
                    prog.emit("S_LD_INT", counted, GP0, count.start)
                    prog.emit("S_ADDI_INT", counted, counted, 1)
                    prog.emit("S_ST_INT", counted, GP0, count.start)
            prog.emit("S_ADDI_INT", pointer, pointer, 8)
    machine = Machine(TINY, prog.build(), HbmDevice(TINY))
    machine.memories.write_int(word.start, [extent])
    assert machine.run().cause is Trap.DONE
    assert machine.memories.read_int()[word.start] == extent
    return int(machine.memories.read_int()[count.start])


@pytest.mark.parametrize(("turns", "inner"), [(1, 1), (2, 1), (7, 3), (40, 2)])
def test_a_loop_to_an_end_runs_as_often_as_its_pointer_needs(turns, inner):
    assert trips(8 * turns, inner) == turns * inner


ERRORS = {
    "more per token than experts": (
        lambda: RoutedSpec(experts=2, top_k=3, hidden=8, intermediate=8),
        "top_k = 3: must be at most experts = 2",
    ),
    "unknown activation": (
        lambda: RoutedSpec(experts=2, top_k=1, hidden=8, intermediate=8, activation="gelu"),
        "activation 'gelu': unknown",
    ),
    "width": (
        lambda: compiled(RoutedSpec(experts=2, top_k=1, hidden=12, intermediate=8)),
        "hidden = 12: must be a positive multiple of MLEN = 8",
    ),
    "no tokens": (lambda: compiled(SPEC, 0), "tokens = 0: must be at least 1"),
    "expert out of range": (
        lambda: expert_major(SPEC, [[0, 1], [2, 8]]),
        r"routing\[1\]\[1\] = 8: must be 0 to 7",
    ),
    "expert twice": (
        lambda: expert_major(SPEC, [[0, 1], [5, 5]]),
        r"routing\[1\]\[1\] = 5: token 1 already chose this expert",
    ),
    "routing of another shape": (
        lambda: expert_major(SPEC, [[0], [1]]),
        r"routing \(2, 1\): must be \(2, 2\)",
    ),
    "INT_MEM": (
        lambda: compiled(
            RoutedSpec(experts=384, top_k=8, hidden=8, intermediate=8),
            16,
            lowering=Lowering.EXPERT,
            order=Accumulation.EXPERT,
        ),
        "INT_MEM: .* needs .* raise INT_MEM_WORDS",
    ),
    "pair-major in expert order": (
        lambda: compiled(order=Accumulation.EXPERT),
        "pair-major adds in pair order",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_lowered_says_why(name):
    build, message = ERRORS[name]
    with pytest.raises(CompileError, match=message):
        build()


def test_a_gathered_tensor_needs_slack():
    prog = Program(TINY, "slack")
    x = prog.hbm.tensor("x", 4, 8)
    with prog.a("tokens") as base:
        with pytest.raises(CompileError, match=r"x: slack_rows = 0: .* \(use slack_rows = 3\)"):
            HbmGather.of(prog, x, base, Routing.allocate(prog, 4, 2))


def test_default_counts_of_products():
    """Emitted and executed alike: T*k*3 tiles pair-major, 3 per chosen expert expert-major."""
    spec = RoutedSpec(experts=8, top_k=2, hidden=64, intermediate=64)
    program = compile_routed_experts(
        DEFAULT, spec, tokens=4, lowering=Lowering.PAIR, order=Accumulation.PAIR
    )
    mnemonics = [Instruction.decode(int(w)).opcode.mnemonic for w in program.image.words]
    assert mnemonics.count("H_PREFETCH_M") == 24


@pytest.mark.parametrize(
    ("rows", "depth", "width", "cap"),
    [(1, 1, 1, 1), (3, 4, 2, 2), (5, 3, 2, 2), (8, 2, 1, 1), (21, 5, 2, 4)],
)
def test_the_seeds_form_has_the_bits_of_the_buffered_one(rows, depth, width, cap):
    act, weight = order_sensitive(rows, depth * 8, width * 8, seed=rows)
    want = linear_projection(act, weight, 8, cap)
    for form in Form:
        prog = Program(TINY, form.name)
        matrix = prog.vram.matrix("act", rows, depth * 8)
        out = prog.vram.matrix("out", rows, width * 8)
        tensor = prog.hbm.tensor("w", depth * 8, width * 8)
        prog.stage("shared_expert_projection")
        with prog.a("weights") as address:
            panels = form.panels(prog, address, cap)
            project(prog, panels, act=matrix, weight=tensor, out=out, rows=rows)
        hbm = HbmDevice(TINY)
        store_tensor(hbm, tensor, weight)
        machine = Machine(TINY, prog.build(), hbm)
        # Whatever is behind the rows may be there, as long as it stays out of them.
        machine.memories.write_vector(0, np.full((TINY.VRAM_ROWS, 8), 0x7FC0, np.uint16))
        machine.memories.write_vector(matrix.first_row, matrix.place(act))
        assert machine.run().cause is Trap.DONE
        got = out.gather(machine.memories.read_vector(out.first_row, out.memory_rows))
        assert np.array_equal(got, to_bits(want))


def test_the_seeds_form_needs_a_known_number_of_rows():
    with pytest.raises(CompileError, match="the seed's form takes a number of rows"):
        compiled(SPEC, 4, lowering=Lowering.EXPERT, order=Accumulation.EXPERT, form=Form.SEED)


def any_routing(spec: RoutedSpec, choice: str) -> RoutedData:
    return routed_data(
        7,
        spec.hidden,
        spec.intermediate,
        experts=spec.experts,
        top_k=spec.top_k,
        biased=spec.biases,
        choice=choice,
    )


@pytest.mark.parametrize("order", Accumulation)
@pytest.mark.parametrize("spec", [SPEC, OSS])
def test_a_sort_begins_anew_and_fillers_add_nothing(spec, order):
    """Three routings, one behind the other in the same memories, which begin full of garbage."""
    program = compiled(spec, 7, lowering=Lowering.EXPERT, order=order)
    rng = np.random.default_rng(1)
    hbm = HbmDevice(TINY)
    machine = Machine(TINY, program.image, hbm)
    memories, total, routing = machine.memories, program.vram["accumulator"], program.routing
    memories.write_int(0, program.int_mem)
    for choice in ("skewed", "one", "random"):
        data = any_routing(spec, choice)
        case = routed_case(program, data)
        memories.write_vector(0, rng.integers(0, 1 << 16, (TINY.VRAM_ROWS, 8)).astype(np.uint16))
        garbage = rng.integers(0, 1 << 16, TINY.FP_MEM_WORDS).astype(np.uint16)
        garbage[0] = 0
        memories.write_fp(0, np.where(program.fp_mem == 0, garbage, program.fp_mem))
        for tensor, values in case.tensors:
            store_tensor(hbm, tensor, values)
        for matrix, values in case.matrices:
            memories.write_vector(matrix.first_row, matrix.place(values))
        x = program.vram["x"]
        for block in range(x.blocks):
            memories.write_vector(x.row_address(7, block) // 8, np.full((1, 8), 0x7FC0, np.uint16))
        memories.write_fp(routing.weights.start, data.route_weights.reshape(-1))
        memories.write_int(routing.indices.start, data.experts.reshape(-1))
        assert machine.run().cause is Trap.DONE
        got = total.gather(memories.read_vector(total.first_row, total.memory_rows))
        assert np.array_equal(got, case.reference), choice
        for block in range(total.blocks):
            spare = memories.read_vector(total.row_address(7, block) // 8, 1)
            assert not np.any(spare & 0x7FFF), "a filler has weight 0"
