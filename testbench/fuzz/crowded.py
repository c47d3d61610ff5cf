"""Random programs that fill the scoreboard, and change the stage as they go."""

from dataclasses import replace

from isa.stages import Stage
from testbench.fuzz.addresses import ROW_WINDOW, TILE_WINDOW
from testbench.fuzz.case import FuzzCase, Line
from testbench.fuzz.generator import Generator


class CrowdedGenerator(Generator):
    """The patterns of `Generator`, behind transfers that the memory takes hundreds of cycles for,
    so that the instructions of a pattern meet in every slot; each pattern has a stage.

    The transfers go to rows and tiles that the patterns do not use.
    """

    def case(self, issue: str) -> FuzzCase:
        """The program with its data, and a device that answers late."""
        case = super().case(issue)
        late = self.rng.choice((0, 40, 150, 300))
        capacity = self.rng.choice((None, None, 12))
        device = replace(case.device, extra_latency=late, capacity=capacity)
        return replace(case, device=device)

    def pattern(self) -> None:
        """Append a stage marker, maybe a crowd, and a pattern."""
        self.emitter.items.append(Line(f"; @stage={self.rng.choice(list(Stage)).label}"))
        if self.rng.random() < (0.1 if self.emitter._depth else 0.6):
            self.crowd()
        super().pattern()

    def crowd(self) -> None:
        """Transfers, one behind the other, each in a slot of its own until the memory answers."""
        e, rng, c = self.emitter, self.rng, self.config
        if len(e._locked | {0}) > 11:
            return
        before = set(e._locked)
        room = (c.VRAM_ROWS // 2 - ROW_WINDOW) // c.v_prefetch
        offset = e.set_gp(rng.randrange(0, 512, c.MX_BLOCK))
        e._locked.add(offset)
        row = e.set_gp((c.VRAM_ROWS // 2 + rng.randrange(room) * c.v_prefetch) * c.MLEN)
        e._locked.add(row)
        tile = e.set_gp(rng.randrange(TILE_WINDOW, c.MRAM_TILES) * c.tile_elements)
        e._locked.add(tile)
        for _ in range(rng.randrange(1, c.INFLIGHT + 1)):
            base = rng.randrange(7)
            kind = rng.randrange(4)
            if kind == 0:
                e.line("H_PREFETCH_M", tile, offset, base, 0, rng.randrange(2))
            elif kind == 1:
                e.line("H_STORE_V", row, offset, base, 0, 0)
            else:
                e.line("H_PREFETCH_V", row, offset, base, rng.randrange(2), 0)
            if rng.random() < 0.2:
                self.anything()
        e._locked.clear()
        e._locked.update(before)
