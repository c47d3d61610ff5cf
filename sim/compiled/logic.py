"""C for combinational logic and for registers."""

from collections.abc import Sequence

from sim.compiled.emitting import UnitWriter
from sim.compiled.lower import Branch, Deposit, Statement
from sim.compiled.netlist import is_unconditional
from sim.compiled.scalar import ctype, literal
from sim.compiled.schedule import Unit, filtered
from sim.compiled.terms import Term
from sim.compiled.wide import StorageEmitter, words

__all__ = ["LogicWriter"]


class LogicWriter(UnitWriter):
    """Units of kind comb and sync."""

    def _layers(self, unit: Unit) -> list[tuple[list[int], bool]]:
        """The unit's nets, each after those it reads; the last layer is marked if it reads
        itself."""
        left = dict.fromkeys(unit.drives)
        needs: dict[int, set[int]] = {}
        for net in left:
            needs[net] = self._reads.statements(filtered(unit.statements, {net})) & left.keys()
        layers: list[tuple[list[int], bool]] = []
        while left:
            ready = [n for n in left if not needs[n] & left.keys()]
            if not ready:
                layers.append((list(left), True))
                break
            layers.append((ready, False))
            for net in ready:
                del left[net]
        return layers

    def _comb(self, unit: Unit) -> str:
        e = self.start()
        for nets, loops in self._layers(unit):
            statements = (
                filtered(unit.statements, set(nets))
                if len(nets) < len(unit.drives)
                else unit.statements
            )
            names: dict[int, str] = {}
            for index in nets:
                net = self.netlist.nets[index]
                names[index] = name = f"v{index}"
                first = next(s for s in statements if self._drives(s, index))
                whole = is_unconditional(first, net)
                if net.width <= 64:
                    init = "" if whole else f" = {literal(net.init, net.width)}"
                    e.line(f"{ctype(net.width)} {name}{init};")
                else:
                    e.line(f"u64 {name}[{words(net.width)}];")
                    if not whole:
                        e.wide_into(self.netlist.factory.const(net.init, net.width), name)
            self._statements(e, statements, names)
            for index in nets:
                self._settle(e, index, names[index], itself=loops or unit.looped)
            if not loops and not unit.looped:
                e.local |= {n: v for n, v in names.items() if self.netlist.nets[n].width <= 64}
        return self._function(f"unit_{unit.index}", e.lines, self.netlist.nets[unit.drives[0]].name)

    @staticmethod
    def _drives(statement: Statement, net: int) -> bool:
        return bool(filtered((statement,), {net}))

    def _statements(
        self, e: StorageEmitter, statements: Sequence[Statement], names: dict[int, str]
    ) -> None:
        """Emits statements; `names` has the C lvalue of each narrow net and a pointer for each wide
        one."""
        if e.touch and any(not isinstance(s, Branch) for s in statements):
            e.line(e.touch)
        for statement in statements:
            if isinstance(statement, Branch):
                self._branch(e, statement, names)
                continue
            net = self.netlist.nets[statement.net]
            name, value = names[statement.net], statement.value
            if isinstance(statement, Deposit):
                if net.width <= 64:
                    e.line(f"{name} = {e.deposit_scalar(name, net.width, statement.at, value)};")
                else:
                    e.deposit(name, net.width, statement.at, value)
            elif net.width > 64:
                e.store(name, net.width, statement.start, value)
            elif value.width == net.width:
                e.line(f"{name} = {e.scalar(value)};")
            else:
                keep = literal(
                    ((1 << net.width) - 1) & ~(((1 << value.width) - 1) << statement.start),
                    net.width,
                )
                text = e.as_width(value, net.width)
                text = f"({text} << {statement.start})" if statement.start else text
                e.line(f"{name} = ({name} & {keep}) | {text};")

    def _branch(self, e: StorageEmitter, branch: Branch, names: dict[int, str]) -> None:
        plain = [p for patterns, _ in branch.cases for p in patterns or ()]
        if len(branch.cases) > 3 and branch.test.width <= 32 and not any("-" in p for p in plain):
            self._switch(e, branch, names)
        else:
            self._chain(e, branch.test, branch.cases, names)

    def _switch(self, e: StorageEmitter, branch: Branch, names: dict[int, str]) -> None:
        with e.block(f"switch ({e.scalar(branch.test)})"):
            seen: set[str] = set()
            for patterns, body in branch.cases:
                if patterns is None:
                    labels = "default:"
                else:
                    fresh = [p for p in dict.fromkeys(patterns) if p not in seen]
                    seen.update(fresh)
                    labels = " ".join(f"case {int(p or '0', 2)}u:" for p in fresh)
                if labels:
                    with e.block(labels):
                        self._statements(e, body, names)
                        e.line("break;")
                if patterns is None:
                    break

    def _chain(
        self,
        e: StorageEmitter,
        test: Term,
        cases: Sequence[tuple[tuple[str, ...] | None, tuple[Statement, ...]]],
        names: dict[int, str],
    ) -> None:
        if not cases or not any(body for _, body in cases):
            return
        (patterns, body), rest = cases[0], cases[1:]
        condition = (
            self.netlist.factory.one
            if patterns is None
            else self.netlist.factory.match(test, patterns)
        )
        if condition.op == "const":
            if condition.attr:
                self._statements(e, body, names)
            else:
                self._chain(e, test, rest, names)
            return
        text = e.scalar(condition)
        more = any(b for _, b in rest)
        if body:
            with e.block(f"if ({text})"):
                self._statements(e, body, names)
            if more:
                with e.block("else"):
                    self._chain(e, test, rest, names)
        else:
            with e.block(f"if (!{text})"):
                self._chain(e, test, rest, names)

    def _sync(self, unit: Unit) -> str:
        e = self.start()
        names: dict[int, str] = {}
        for index in unit.drives:
            slot = self.layout.slots[index]
            names[index] = (
                f"S{8 * slot.size}({slot.next})" if slot.size <= 8 else f"P64({slot.next})"
            )
        e.line("u32 touched = 0;")
        e.touch = "touched = 1;"
        self._statements(e, unit.statements, names)
        if self.netlist.reset is not None:
            with e.block(f"if ({e.scalar(self.netlist.reset)})"):
                for index in unit.drives:
                    net = self.netlist.nets[index]
                    if not net.reset_less:
                        self._init(e, index, names[index])
                e.line("touched = 1;")
        e.line(f"if (touched) {{ {self.wakes.text([unit.index + self._commit])} }}")
        return self._function(
            f"unit_{unit.index}", e.lines, self.netlist.nets[unit.drives[0]].name
        ) + self._committer(unit)
