"""The ports that a host in hardware would use: the program goes in and the counters come out
through them."""

from isa.assembler import assemble
from isa.config import PRESETS
from isa.stages import Stage
from isa.traps import Trap
from rtl.profile import COUNTERS
from sim.simulation import Simulation
from tests.conftest import engine_for, needs_compiler

TINY = PRESETS["tiny"]
PROGRAM = """
    S_ADDI_INT gp1, gp0, 8
    ; @stage=router_topk
    C_LOOP_START gp2, 3
    V_ADD_VV gp1, gp0, gp0, 0
    ; @stage=gather
    S_ST_INT gp1, gp0, 5
    C_LOOP_END gp2
    ; @stage=non_moe
    H_STORE_V gp1, gp0, a0, 0, 0
    M_MM 0, gp0, gp0
    S_LUI_INT gp15, 0xFFFFF
"""

pytestmark = needs_compiler


def simulation() -> Simulation:
    engine = engine_for(TINY, "compiled")
    return Simulation(engine.config, assemble(PROGRAM, config=TINY), engine=engine)


def test_a_program_written_through_the_port_runs():
    sim = simulation()
    engine, top, image = sim.engine, sim.engine.top, sim.image
    depth = len(image.words)
    loaded = engine.read_memory(top.dispatcher.imem, 0, depth)
    engine.write_memory(top.dispatcher.imem, 0, [0] * depth)
    for pc, (word, stage) in enumerate(zip(image.words, image.stages, strict=True)):
        engine.set(top.imem_write_en, 1)
        engine.set(top.imem_write_address, pc)
        engine.set(top.imem_write_word, int(word))
        engine.set(top.imem_write_stage, int(stage))
        engine.step()
    engine.set(top.imem_write_en, 0)
    engine.set(top.imem_write_address, 1)
    engine.set(top.imem_write_word, 0xFFFF_FFFF)  # without the enable nothing is written
    engine.step()
    assert engine.read_memory(top.dispatcher.imem, 0, depth) == loaded
    assert sim.run().cause is Trap.DONE
    assert sim.memories.read_gp()[15] == 0xFFFF_F000


def test_the_last_word_and_address_bits_are_written():
    sim = simulation()
    engine, top = sim.engine, sim.engine.top
    for address in [0, *(1 << bit for bit in range(14)), TINY.IMEM_WORDS - 1]:
        word, stage = (address * 0x9E3779B1) & 0xFFFF_FFFF, address % len(Stage)
        engine.set(top.imem_write_en, 1)
        engine.set(top.imem_write_address, address)
        engine.set(top.imem_write_word, word)
        engine.set(top.imem_write_stage, stage)
        engine.step()
        assert engine.read_memory(top.dispatcher.imem, address, 1) == [word | stage << 32]
    engine.set(top.imem_write_en, 0)


def test_counters_are_read_through_the_port_with_all_their_bits():
    sim = simulation()
    engine, top = sim.engine, sim.engine.top
    before: dict[tuple[int, int], int] = {}
    for number, counter in enumerate(top.profile.counters.values()):
        for stage, count in enumerate(counter.counts):
            before[number, stage] = (1 << 48) - 1 - (3 << (number * 16 + stage) % 47)
            engine.set(count, before[number, stage])
    engine.set(top.profile.overlap, 0xAAAA_5555_F00F)
    result = sim.run()
    counted = list(result.counters.values())
    assert sum(map(sum, counted)) > 0

    def read(counter: int, stage: int) -> int:
        engine.set(top.profile_counter, counter)
        engine.set(top.profile_stage, stage)
        engine.step()
        engine.step()
        return engine.get(top.profile_value)

    clean = simulation().run()
    for (number, stage), start in before.items():
        engine.set(
            list(top.profile.counters.values())[number].counts[stage], counted[number][stage]
        )
        more = list(clean.counters.values())[number][stage]
        assert counted[number][stage] == (start + more) % (1 << 48), (number, stage)
        assert read(number, stage) == counted[number][stage], (number, stage)
    engine.set(top.profile.overlap, result.overlap_cycles)
    assert read(len(COUNTERS), 0) == result.overlap_cycles
    assert result.overlap_cycles == 0xAAAA_5555_F00F + clean.overlap_cycles
