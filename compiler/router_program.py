"""Programs around a router alone, or around V_TOPK alone, for their testbenches."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from compiler.arena import Interval
from compiler.counts import IssueCounts, count_issued
from compiler.errors import require
from compiler.immediates import load_immediate
from compiler.program import Program
from compiler.router import Router
from compiler.router_rule import RouterSpec
from compiler.topk import TopkEncoding, emit_topk, topk_encoding
from compiler.vram import VramMatrix
from isa import PlenaConfig, ProgramImage


@dataclass(frozen=True, kw_only=True)
class RouterProgram:
    """A router over the rows of `x`, all operands placed by the host in BF16.

    `fp_mem` is the initial FP_MEM, to be loaded before the operands.
    """

    config: PlenaConfig
    spec: RouterSpec
    tokens: int
    image: ProgramImage
    x: VramMatrix
    router: Router = field(repr=False)
    fp_mem: npt.NDArray[np.uint16]
    issued: IssueCounts = field(repr=False)


def compile_router(config: PlenaConfig, spec: RouterSpec, *, tokens: int) -> RouterProgram:
    """Compile the routing of `tokens` tokens whose hidden states are in vector SRAM.

    Raises:
        CompileError: hidden no multiple of MLEN, tokens < 1, a shape that V_TOPK cannot select, or
            a memory that is too small; the message names the numbers.
    """
    prog = Program(config, f"router_{tokens}x{spec.hidden}_{spec.top_k}_of_{spec.experts}")
    x = prog.vram.matrix("x", max(1, tokens), spec.hidden, preloaded=True)
    router = Router(prog, spec, tokens=tokens)
    router.emit(x)
    prog.end_region()
    image = prog.build()
    return RouterProgram(
        config=config,
        spec=spec,
        tokens=tokens,
        image=image,
        x=x,
        router=router,
        fp_mem=prog.fp_mem.initial(),
        issued=count_issued(image),
    )


@dataclass(frozen=True, kw_only=True)
class SelectionProgram:
    """V_TOPK over logits [tokens * blocks, MLEN] that the host places, token-major.

    Results as `Router` leaves them.
    """

    config: PlenaConfig
    experts: int
    top_k: int
    tokens: int
    encoding: TopkEncoding
    image: ProgramImage
    logits: VramMatrix
    indices: Interval
    weights: Interval

    @property
    def blocks(self) -> int:
        """Rows of logits of one token."""
        return self.logits.rows // self.tokens


def compile_selection(
    config: PlenaConfig, experts: int, top_k: int, *, tokens: int
) -> SelectionProgram:
    """Compile lowering.md section 3, "Selection, per token", token by token.

    Raises:
        CompileError: tokens < 1, or a shape that V_TOPK cannot select.
    """
    require(tokens >= 1, f"tokens = {tokens}", "must be at least 1", "select for one token")
    encoding = topk_encoding(config, experts, top_k)
    prog = Program(config, f"select_{top_k}_of_{experts}")
    blocks = -(-experts // config.MLEN)
    logits = prog.vram.matrix("logits", tokens * blocks, config.MLEN, preloaded=True)
    indices = prog.int_mem.window("indices", tokens * top_k)
    weights = prog.fp_mem.window("weights", tokens * top_k)
    prog.stage("router_topk", f"{top_k} of {experts} experts, {tokens} tokens")
    with prog.gps("weights", "logits row", "indices") as (weight, row, index):
        for token in range(tokens):
            load_immediate(prog, weight, weights.start + token * top_k)
            load_immediate(prog, row, logits.row_address(token * blocks))
            load_immediate(prog, index, indices.start + token * top_k)
            emit_topk(prog, experts, top_k, logits=row, indices=index, weights=weight)
    prog.end_region()
    return SelectionProgram(
        config=config,
        experts=experts,
        top_k=top_k,
        tokens=tokens,
        encoding=encoding,
        image=prog.build(),
        logits=logits,
        indices=indices,
        weights=weights,
    )
