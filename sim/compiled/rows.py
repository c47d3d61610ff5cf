"""C for rows of equal leaves: operands into arrays, one loop, results back."""

from collections.abc import Sequence

from sim.compiled.emitting import UnitWriter
from sim.compiled.leaf import LANES
from sim.compiled.netlist import LeafCell
from sim.compiled.scalar import ctype, literal
from sim.compiled.schedule import Unit
from sim.compiled.terms import Term
from sim.compiled.wide import StorageEmitter

__all__ = ["RowWriter"]


class RowWriter(UnitWriter):
    """Units of kind leaf."""

    def _leaf(self, unit: Unit) -> str:
        e = self.start()
        function = self._leaves[unit.leaves[0].leaf.key]
        count = len(unit.leaves)
        padded = -(-count // LANES) * LANES
        arguments: list[str] = []
        for port, width in function.inputs.items():
            kind = ctype(width)
            e.line(f"{kind} in_{port}[{padded}] __attribute__((aligned(64)));")
            arguments.append(f"in_{port}")
            self._gather(e, f"in_{port}", [c.inputs[port] for c in unit.leaves])
            if count < padded:
                e.line(f"for (int i = {count}; i < {padded}; i++) in_{port}[i] = 0;")
        for port, width in function.outputs.items():
            e.line(f"{ctype(width)} out_{port}[{padded}] __attribute__((aligned(64)));")
            arguments.append(f"out_{port}")
        e.line(f"{function.name}({padded}, {', '.join(arguments)});")
        for port in function.outputs:
            self._scatter(e, unit, port, unit.leaves)
        return self._function(f"unit_{unit.index}", e.lines, f"{count} {function.title}")

    def _address(self, term: Term) -> tuple[int, int] | None:
        """Byte address and load size of an operand that one load fetches."""
        if term.op != "ref":
            return None
        net, start = term.attr
        whole, slot = self.netlist.nets[net].width, self.layout.slots[net]
        if start == 0 and term.width == whole and slot.size <= 8:
            return slot.at, slot.size
        if start % 8 == 0 and term.width in (8, 16, 32, 64):
            return slot.at + start // 8, term.width // 8
        return None

    def _gather(self, e: StorageEmitter, array: str, terms: Sequence[Term]) -> None:
        places = [self._parts(t) for t in terms]
        if len(terms) >= 4 and all(p is not None for p in places):
            rows = [p for p in places if p is not None]
            if all([(s, at) for _, s, at in r] == [(s, at) for _, s, at in rows[0]] for r in rows):
                self._gather_rows(e, array, rows, terms[0].width)
                return
        for i, term in enumerate(terms):
            e.line(f"{array}[{i}] = {e.scalar(term)};")

    def _parts(self, term: Term) -> list[tuple[int, int, int]] | None:
        """(address or constant, load size or 0, first bit) of the parts of an operand, if each is
        one load."""
        parts: list[tuple[int, int, int]] = []
        at = 0
        for part in term.args if term.op == "cat" else (term,):
            if part.op == "const":
                if part.attr or term.op != "cat":
                    parts.append((part.attr, 0, at))
            else:
                place = self._address(part)
                if place is None:
                    return None
                parts.append((*place, at))
            at += part.width
        return parts

    def _gather_rows(
        self, e: StorageEmitter, array: str, rows: Sequence[list[tuple[int, int, int]]], width: int
    ) -> None:
        count = len(rows)
        inner = min(
            (self._run([r[k][0] for r in rows]) for k in range(len(rows[0]))), default=count
        )
        texts: list[str] = []
        for k, (_, size, at) in enumerate(rows[0]):
            column = [r[k][0] for r in rows]
            index = self._index(column, inner)
            if size == 0:
                text = literal(column[0], width) if len(set(column)) == 1 else None
                text = text or f"({ctype(width)}){self.tables.table('u64', column)}[i]"
            else:
                index = index or f"{self.tables.table('i32', column)}[i]"
                text = f"({ctype(width)})L{8 * size}({index})"
            texts.append(f"({text} << {at})" if at else text)
        value = " | ".join(texts)
        if inner == count:
            e.line(f"for (int i = 0; i < {count}; i++) {array}[i] = {value};")
        else:
            e.line(
                f"for (int j = 0; j < {count // inner}; j++) for (int k = 0; k < {inner}; k++) "
                f"{{ int i = {inner} * j + k; {array}[i] = {value}; }}"
            )

    @staticmethod
    def _run(column: Sequence[int]) -> int:
        """Length of the equally spaced runs that make up a column (all of it if there are none)."""
        count = len(column)
        step = column[1] - column[0]
        run = next((i for i in range(2, count) if column[i] - column[i - 1] != step), count)
        return run if count % run == 0 else count

    def _index(self, column: Sequence[int], inner: int) -> str | None:
        """The column's elements as an expression of i (one run), or of j and k."""
        count = len(column)
        step = column[1] - column[0]
        outer = column[inner] - column[0] if inner < count else 0
        for i, value in enumerate(column):
            if value != column[0] + step * (i % inner) + outer * (i // inner):
                return None
        if inner == count:
            return f"{column[0]} + {step} * i"
        return f"{column[0]} + {outer} * j + {step} * k"

    def _scatter(
        self, e: StorageEmitter, unit: Unit, port: str, leaves: Sequence[LeafCell]
    ) -> None:
        nets = [c.outputs[port] for c in leaves]
        slots = [self.layout.slots[n] for n in nets]
        wake = self.wakes.text(set().union(*(self.wakes.bits(n, itself=unit.looped) for n in nets)))
        size = slots[0].size
        kind = "u64" if size == 8 else "u32"
        changed = e.name("changed")
        e.line(f"{kind} {changed} = 0;")
        if all(s.at == slots[0].at + size * i for i, s in enumerate(slots)):
            place = f"S{8 * size}({slots[0].at} + {size} * i)"
            e.line(
                f"for (int i = 0; i < {len(nets)}; i++) "
                f"{{ {changed} |= {place} ^ out_{port}[i]; {place} = (u{8 * size})out_{port}[i]; }}"
            )
        else:
            for i, slot in enumerate(slots):
                place = f"S{8 * size}({slot.at})"
                e.line(f"{changed} |= {place} ^ out_{port}[{i}];")
                e.line(f"{place} = (u{8 * size})out_{port}[{i}];")
        if wake:
            e.line(f"if ({changed}) {{ {wake} }}")
