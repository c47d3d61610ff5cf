"""One routed expert over gathered rows: projections, biases, activation, projection, bias."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from compiler.activation import activate, activation_of
from compiler.elementwise import RowGroups, Rows, add_bias
from compiler.errors import CompileError
from compiler.expert_table import ExpertTable, ExpertWeight
from compiler.hbm import Order
from compiler.linear import Panels, linear_projection
from compiler.program import Program
from compiler.registers import Register
from compiler.routed_spec import RoutedSpec
from compiler.row_groups import Beside, has_room
from compiler.row_steps import AT_ONCE, RowSteps, emit_steps
from compiler.vram import VramMatrix
from compiler.weight_panels import Weight


@dataclass(frozen=True, kw_only=True)
class RoutedParameters:
    """The weights of all experts in HBM, and their biases in vector SRAM, one row per expert.

    The tables hold [hidden, intermediate], the same, and [intermediate, hidden] per expert; the
    bias matrices are [experts, intermediate], the same, and [experts, hidden].
    """

    w_gate: ExpertTable
    w_up: ExpertTable
    w_down: ExpertTable
    bias_gate: VramMatrix | None = None
    bias_up: VramMatrix | None = None
    bias_down: VramMatrix | None = None

    @classmethod
    def allocate(
        cls, prog: Program, spec: RoutedSpec, *, order: Order = Order.TILES, prefix: str = ""
    ) -> "RoutedParameters":
        """Tables and bias matrices of `spec`, their names behind `prefix`."""
        hidden, inter = spec.hidden, spec.intermediate

        def table(name: str, rows: int, cols: int) -> ExpertTable:
            full = prefix + name
            return ExpertTable.allocate(prog, full, spec.experts, rows, cols, order=order)

        def bias(name: str, width: int) -> VramMatrix | None:
            return prog.vram.matrix(prefix + name, spec.experts, width) if spec.biases else None

        return cls(
            w_gate=table("w_gate", hidden, inter),
            w_up=table("w_up", hidden, inter),
            w_down=table("w_down", inter, hidden),
            bias_gate=bias("bias_gate", inter),
            bias_up=bias("bias_up", inter),
            bias_down=bias("bias_down", hidden),
        )

    def check(self, spec: RoutedSpec) -> None:
        """CompileError when the biases are not those that `spec` has."""
        given = [b is not None for b in (self.bias_gate, self.bias_up, self.bias_down)]
        if any(b != spec.biases for b in given):
            raise CompileError(
                f"routed experts: biases = {spec.biases}, but biases given = {given} "
                "(pass what the spec has)"
            )


class ExpertBuffers:
    """Vector SRAM of one expert at a time; used again by every expert.

    slot [rows, H] takes the gathered tokens, up [rows, I] the activation, out [rows, H] the result.
    `rows` that only the machine knows need less scratch: its activation goes from group to group.
    """

    def __init__(self, prog: Program, spec: RoutedSpec, rows: Rows) -> None:
        scratch_shape = (AT_ONCE, prog.config.MLEN)
        if isinstance(rows, RowGroups):
            rows = rows.capacity
        else:
            scratch_shape = (rows, spec.intermediate)
        self.slot = prog.vram.matrix("slot", rows, spec.hidden)
        self.gate = prog.vram.matrix("expert gate", rows, spec.intermediate)
        self.up = prog.vram.matrix("expert up", rows, spec.intermediate)
        self.scratch = prog.vram.matrix("expert sigmoid", *scratch_shape)
        self.out = prog.vram.matrix("expert out", rows, spec.hidden)

    def free(self, prog: Program) -> None:
        """Give the space back."""
        prog.vram.free(self.slot, self.gate, self.up, self.scratch, self.out)


class ExpertEmitter:
    """Emits experts one after the other; the weights of the next one are fetched under the last
    products of the one before."""

    def __init__(
        self,
        prog: Program,
        spec: RoutedSpec,
        parameters: RoutedParameters,
        panels: Panels,
        buffers: ExpertBuffers,
    ) -> None:
        parameters.check(spec)
        self._prog, self._spec, self._parameters = prog, spec, parameters
        self._panels, self._buffers = panels, buffers
        self._label = ""

    def _resume(self) -> None:
        self._prog.stage("expert_projection", self._label)

    def weights(self, word: int, label: str) -> tuple[Weight, Weight, Weight]:
        """Gate, up and down weight of expert INT_MEM[word], for `emit`."""
        p = self._parameters
        gate, up, down = (
            ExpertWeight(table, word, label, self._resume) for table in (p.w_gate, p.w_up, p.w_down)
        )
        return gate, up, down

    def fetch_ahead(self, weight: Weight, label: str) -> int:
        """Fetch the first panel of a gate weight before anything else of its expert; returns it."""
        self._label = label
        return self._panels.fetch_ahead(weight)

    def emit(
        self,
        weights: tuple[Weight, Weight, Weight],
        word: int,
        label: str,
        *,
        rows: Rows,
        then: Weight | None = None,
    ) -> None:
        """out = expert(slot) for the expert INT_MEM[word]; stages carry `label`.

        `then` is the gate weight of the expert that comes next.
        """
        prog, panels, b, p = self._prog, self._panels, self._buffers, self._parameters
        gate, up, down = weights
        if isinstance(rows, RowGroups):
            self._gate_up_activation(gate, up, word, label, rows, then=down)
        else:
            self.emit_gate_up((gate, up), word, label, rows=rows, then=down)
            activate(
                prog,
                self._spec.activation,
                stage="expert_activation",
                gate=b.gate,
                up=b.up,
                scratch=b.scratch,
                rows=rows,
            )
        prog.stage("expert_projection", label)
        linear_projection(prog, panels, act=b.up, weight=down, out=b.out, rows=rows, then=then)
        if p.bias_down is not None:
            prog.stage("expert_bias", label)
            add_bias(prog, b.out, p.bias_down, rows=rows, word=word)

    def emit_gate_up(
        self,
        weights: tuple[Weight, Weight],
        word: int,
        label: str,
        *,
        rows: Rows,
        then: Weight | None = None,
    ) -> None:
        """gate = slot @ gate weight and up = slot @ up weight, plus the biases of INT_MEM[word]."""
        gate, up = weights
        b, p = self._buffers, self._parameters
        self._project(gate, b.gate, label, rows, up)
        self._project(up, b.up, label, rows, then)
        self._bias(b.gate, p.bias_gate, word, label, rows)
        self._bias(b.up, p.bias_up, word, label, rows)

    def _project(
        self,
        weight: Weight,
        out: VramMatrix,
        label: str,
        rows: Rows,
        then: Weight | None,
        beside: Beside | None = None,
    ) -> None:
        """out = slot @ weight."""
        prog, self._label = self._prog, label
        prog.stage("expert_projection", label)
        linear_projection(
            prog,
            self._panels,
            act=self._buffers.slot,
            weight=weight,
            out=out,
            rows=rows,
            then=then,
            beside=beside,
        )

    def _bias(
        self, target: VramMatrix, bias: VramMatrix | None, word: int, label: str, rows: Rows
    ) -> None:
        if bias is not None:
            self._prog.stage("expert_bias", label)
            add_bias(self._prog, target, bias, rows=rows, word=word)

    def _gate_up_activation(
        self, gate: Weight, up: Weight, word: int, label: str, rows: RowGroups, then: Weight
    ) -> None:
        """As `emit_gate_up` and the activation; what needs the gate alone goes between the products
        of up, where they leave room."""
        prog, b, p = self._prog, self._buffers, self._parameters
        activation = activation_of(self._spec.activation)
        matrices = {"gate": b.gate, "up": b.up, "scratch": b.scratch}
        detail = f"{self._spec.activation}, {label}"

        @contextmanager
        def beside(row: Register) -> Iterator[Callable[[], None]]:
            with ExitStack() as stack:
                prog.stage("expert_activation", detail)
                steps = RowSteps(prog, activation.gate_steps, matrices, stack)
                steps.start_beside("up", row)
                prog.stage("expert_projection", label)

                def group() -> None:
                    prog.stage("expert_activation", detail)
                    steps.group()

                yield group

        steps = activation.steps
        if has_room(b.slot, self._panels.cap):
            self._project(gate, b.gate, label, rows, up)
            self._bias(b.gate, p.bias_gate, word, label, rows)
            self._project(up, b.up, label, rows, then, beside)
            self._bias(b.up, p.bias_up, word, label, rows)
            steps = activation.up_steps
        else:
            self.emit_gate_up((gate, up), word, label, rows=rows, then=then)
        prog.stage("expert_activation", detail)
        with prog.emitter(f"{self._spec.activation} {b.up.name}"):
            emit_steps(prog, steps, matrices, rows)
