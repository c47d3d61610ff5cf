"""Memories full of garbage around what a router's host loads."""

import numpy as np

from compiler.arena import Interval
from testbench.router_case import RouterCase, RouterMemories


def load_into_garbage(case: RouterCase, memories: RouterMemories, seed: int) -> None:
    """Load a case; rows and slots that it has no value for get random patterns, NaN among them."""
    config = case.program.config
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 1 << 16, (config.VRAM_ROWS, config.MLEN)).astype(np.uint16)
    memories.write_vector(0, rows)
    case.load(memories)
    # Constants other than zero, and the operands, are what FP_MEM holds now; slot 0 must stay 0.
    slots = memories.read_fp()
    free = slots == 0
    free[0] = False
    for operand in case.program.router.operands.values():
        if isinstance(operand, Interval):
            free[operand.start : operand.end] = False
    memories.write_fp(0, np.where(free, rows.reshape(-1)[: len(slots)], slots))
