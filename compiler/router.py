"""The router of a layer: logits, choice, V_TOPK and exact route weights, under router_topk.

All tokens run through one loop, so that the program does not grow with them. The results are where
V_TOPK leaves them: the expert of pair p = token * top_k + rank at INT_MEM[indices.start + p], its
weight, in BF16, at FP_MEM[weights.start + p], largest choice first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.arena import Interval
from compiler.errors import require, require_multiple
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import Register
from compiler.router_choice import CorrectedChoice
from compiler.router_groups import RouterGroups
from compiler.router_logits import RouterLogits
from compiler.router_rule import RouterSpec
from compiler.router_token import Start, TokenPointers, point
from compiler.router_weights import ExactWeights
from compiler.topk import emit_topk, set_shape, topk_encoding
from compiler.vram import VramMatrix

Array = npt.NDArray[Any]


class Router:
    """The router of one layer for `tokens` tokens: what it keeps where, and its emitter.

    Attributes:
        indices, weights: the results, tokens * top_k words of INT_MEM and slots of FP_MEM.
        logits: the logits of all tokens, [tokens * blocks, MLEN], token-major; the bias included.
        on_input: the weights scale the experts' inputs (Llama-4), not their outputs.

    Raises:
        CompileError: hidden no multiple of MLEN, tokens < 1, a shape that V_TOPK cannot select, or
            a memory that is too small.
    """

    def __init__(self, prog: Program, spec: RouterSpec, *, tokens: int) -> None:
        require(
            tokens >= 1,
            f"tokens = {tokens}",
            "must be at least 1",
            "leave out a layer without tokens",
        )
        require_multiple("hidden", spec.hidden, prog.config.MLEN, "MLEN")
        topk_encoding(prog.config, spec.experts, spec.top_k)
        self.prog, self.spec, self.tokens = prog, spec, tokens
        rule, pairs = spec.rule, tokens * spec.top_k
        self.indices = prog.int_mem.window("router indices", pairs)
        self.weights = prog.fp_mem.window("router weights", pairs, spare=1)
        self._logits = logits = RouterLogits(prog, spec, tokens)
        self._choice = CorrectedChoice(prog, logits) if rule.correction_bias else None
        self._groups = RouterGroups(prog, logits, self._choice) if rule.groups > 1 else None
        self._exact = None if rule.topk_weights else ExactWeights(prog, logits)

    @property
    def logits(self) -> VramMatrix:
        """The logits of all tokens."""
        return self._logits.rows

    @property
    def on_input(self) -> bool:
        """Whether a weight belongs to the expert's input."""
        return self.spec.rule.on_input

    @property
    def operands(self) -> dict[str, VramMatrix | Interval]:
        """What the host fills: weight, and bias and correction where the rule has them."""
        operands: dict[str, VramMatrix | Interval] = {"weight": self._logits.weight}
        if self._logits.bias is not None:
            operands["bias"] = self._logits.bias
        if self._choice is not None:
            operands["correction"] = self._choice.correction
        return operands

    def place(self, name: str, values: Array) -> tuple[bool, int, Array]:
        """What the host writes for an operand: (in FP_MEM, first slot or vector SRAM row, values).

        BF16 values or their patterns: weight [experts, hidden], bias and correction [experts]; the
        latter come back with zeros for the lanes past the last expert.

        Raises:
            CompileError: another shape.
        """
        operand, experts = self.operands[name], self.spec.experts
        wanted = (experts, self.spec.hidden) if name == "weight" else (experts,)
        require(
            values.shape == wanted,
            f"router {name} {values.shape}",
            f"must be {wanted}",
            "pass the operand of this router",
        )
        if name != "weight":
            values = np.pad(values, (0, self._logits.padded - experts))
        if isinstance(operand, Interval):
            return True, operand.start, values
        return False, operand.first_row, operand.place(values.reshape(operand.rows, operand.cols))

    def emit(self, x: VramMatrix) -> None:
        """Route the rows of x [tokens or more, hidden]; call it once. Scratch is given back.

        Raises:
            CompileError: x of another width, or with fewer rows than tokens.
        """
        spec, prog = self.spec, self.prog
        require(
            x.cols == spec.hidden and x.rows >= self.tokens,
            f"router input {x.name} [{x.rows}, {x.cols}]",
            f"must be [{self.tokens} or more, {spec.hidden}]",
            "pass the matrix that the layer's tokens are in",
        )
        prog.stage("router_topk", f"{spec.top_k} of {spec.experts} experts, {self.tokens} tokens")
        parts = [p for p in (self._groups, self._choice, self._logits, self._exact) if p]
        with prog.emitter("router"):
            for part in parts:
                part.prepare()
            if self._groups is None:
                set_shape(prog, spec.experts, spec.top_k)
            with self._each_token(x) as token:
                self._route(token, x)
        for part in parts:
            part.free()

    @contextmanager
    def _each_token(self, x: VramMatrix) -> Iterator[TokenPointers]:
        prog, mlen = self.prog, self.prog.config.MLEN
        with prog.gps("x row", "logits row", "pair") as (x_row, row, pair):
            load_immediate(prog, x_row, x.base)
            load_immediate(prog, row, self.logits.base)
            load_immediate(prog, pair, 0)
            with loop(prog, self.tokens, "tokens"):
                yield TokenPointers(x=x_row, logits=row, pair=pair)
                add_immediate(prog, x_row, x_row, mlen)
                add_immediate(prog, row, row, self._logits.blocks * mlen)
                add_immediate(prog, pair, pair, self.spec.top_k)

    def _route(self, token: TokenPointers, x: VramMatrix) -> None:
        prog, spec = self.prog, self.spec
        self._logits.emit(token, x)
        ranked: Start = token.logits
        if self._choice is not None:
            ranked = self._choice.emit(token)
        if self._groups is not None:
            ranked = self._groups.emit(ranked)
        with prog.gps("indices", "weights") as (indices, weights):
            add_immediate(prog, indices, token.pair, self.indices.start)
            add_immediate(prog, weights, token.pair, self.weights.start)
            with self._in_register(ranked) as row:
                emit_topk(
                    prog, spec.experts, spec.top_k, logits=row, indices=indices, weights=weights
                )
            if self._exact is not None:
                self._exact.emit(token, indices, weights)

    @contextmanager
    def _in_register(self, start: Start) -> Iterator[Register]:
        if isinstance(start, Register):
            yield start
            return
        with self.prog.gp("ranked rows") as register:
            point(self.prog, register, start)
            yield register
