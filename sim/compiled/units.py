"""C functions for the units of a schedule."""

from collections.abc import Iterable, Sequence

from sim.compiled.layout import Layout
from sim.compiled.leaf import LANES, LeafFunction
from sim.compiled.lower import Branch, Deposit, Statement
from sim.compiled.netlist import LeafCell, Netlist, ReadPort, WritePort, is_unconditional
from sim.compiled.scalar import ctype, literal, mask_of
from sim.compiled.schedule import Reads, Schedule, Unit, filtered
from sim.compiled.terms import Term
from sim.compiled.wide import StorageEmitter, Tables, words

__all__ = ["UnitEmitter", "Wakes"]


class Wakes:
    """Flags to raise when a net or a memory has changed: a bit per unit, in words of 64."""

    def __init__(self, schedule: Schedule) -> None:
        self._of_net: dict[int, set[int]] = {}
        self._of_memory: dict[int, set[int]] = {}
        for unit in schedule.units:
            for net in unit.reads:
                self._of_net.setdefault(net, set()).add(unit.index)
            for memory in unit.memories:
                self._of_memory.setdefault(memory, set()).add(unit.index)
        self._drivers = {net: unit.index for unit in schedule.comb for net in unit.drives}

    def bits(self, net: int, *, itself: bool = False) -> frozenset[int]:
        """Units to wake for a net; its own driver only if asked for."""
        found = self._of_net.get(net, set())
        return frozenset(found if itself else found - {self._drivers.get(net, -1)})

    @staticmethod
    def text(units: Iterable[int]) -> str:
        """Statements that raise the flags."""
        masks: dict[int, int] = {}
        for index in units:
            masks[index // 64] = masks.get(index // 64, 0) | 1 << index % 64
        return " ".join(f"S64({8 * word}) |= {mask:#x}ull;" for word, mask in sorted(masks.items()))

    def net(self, net: int, *, itself: bool = False) -> str:
        """Statements for a changed net."""
        return self.text(self.bits(net, itself=itself))

    def memory(self, memory: int) -> str:
        """Statements for a changed memory."""
        return self.text(self._of_memory.get(memory, ()))

    def units_of(self, net: int) -> frozenset[int]:
        """All readers of a net."""
        return frozenset(self._of_net.get(net, ()))

    def units_of_memory(self, memory: int) -> frozenset[int]:
        """All readers of a memory."""
        return frozenset(self._of_memory.get(memory, ()))


class UnitEmitter:
    """Writes `static void unit_<index>(u8 *M)` for each unit, and `commit_<index>` for the second
    half of clocked ones."""

    def __init__(
        self,
        netlist: Netlist,
        schedule: Schedule,
        layout: Layout,
        leaves: dict[object, LeafFunction],
        commit: int,
    ) -> None:
        self.netlist, self.layout, self._leaves = netlist, layout, leaves
        self._reads: Reads = schedule.reads
        self._commit = commit  # from the flag of a clocked unit to the one that asks for its commit
        self.wakes = Wakes(schedule)
        self.tables = Tables()

    def start(self) -> StorageEmitter:
        """For the lines of one more function."""
        return StorageEmitter(self.layout, self.tables)

    @staticmethod
    def _function(name: str, lines: Sequence[str], note: str = "") -> str:
        comment = f" /* {note} */" if note else ""
        return "\n".join([f"static void {name}(u8 *M) {{{comment}", *lines, "}", ""])

    def unit(self, unit: Unit) -> str:
        """The functions of a unit."""
        if unit.kind == "comb":
            return self._comb(unit)
        if unit.kind == "leaf":
            return self._leaf(unit)
        if unit.kind == "show":
            return self._show(unit)
        if unit.kind == "sync":
            return self._sync(unit)
        if unit.kind == "fetch":
            return self._fetch(unit)
        return self._write(unit)

    # Combinational logic

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

    def _settle(self, e: StorageEmitter, index: int, name: str, *, itself: bool) -> None:
        slot, wake = self.layout.slots[index], self.wakes.net(index, itself=itself)
        if slot.size <= 8:
            place = f"S{8 * slot.size}({slot.at})"
            e.line(
                f"if ({place} != {name}) {{ {place} = {name}; {wake} }}"
                if wake
                else f"{place} = {name};"
            )
        else:
            n = slot.size // 8
            copy = f"w_copy(P64({slot.at}), {name}, {n});"
            e.line(f"if (!w_eq(P64({slot.at}), {name}, {n})) {{ {copy} {wake} }}" if wake else copy)

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

    # Leaves

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

    # Registers

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

    def _init(self, e: StorageEmitter, index: int, name: str) -> None:
        net = self.netlist.nets[index]
        if net.width <= 64:
            e.line(f"{name} = {literal(net.init, net.width)};")
        else:
            e.wide_into(self.netlist.factory.const(net.init, net.width), name)

    def _committer(self, unit: Unit) -> str:
        """Moves next values to current ones, where they differ, and wakes the readers."""
        e = self.start()
        runs: list[tuple[int, int, int, frozenset[int]]] = []
        for index in sorted(unit.drives, key=lambda n: self.layout.slots[n].at):
            slot, wake = self.layout.slots[index], self.wakes.units_of(index)
            last = runs[-1] if runs else None
            if (
                last
                and last[0] + last[2] == slot.at
                and last[1] + last[2] == slot.next
                and last[3] == wake
            ):
                runs[-1] = last[0], last[1], last[2] + slot.size, wake
            else:
                runs.append((slot.at, slot.next, slot.size, wake))
        for at, following, size, wake in runs:
            text = self.wakes.text(wake)
            if size in (1, 2, 4, 8):
                now, later = f"S{8 * size}({at})", f"S{8 * size}({following})"
                e.line(f"if ({now} != {later}) {{ {now} = {later}; {text} }}")
            elif size % 8 == 0:
                pair = f"P64({at}), P64({following}), {size // 8}"
                e.line(f"if (!w_eq({pair})) {{ w_copy({pair}); {text} }}")
            else:
                pair = f"M + {at}, M + {following}, {size}"
                e.line(f"if (memcmp({pair})) {{ memcpy({pair}); {text} }}")
        return self._function(f"commit_{unit.index}", e.lines)

    # Memories

    def _row(self, memory: int, e: StorageEmitter, address: str) -> str:
        base, size = self.layout.memories[memory]
        return f"{base} + {size} * (u64){address}"

    def _in_range(self, memory: int, address: Term, text: str) -> str:
        depth = self.netlist.memories[memory].depth
        return "1" if depth >= 1 << address.width else f"{text} < {depth}u"

    def _show(self, unit: Unit) -> str:
        e = self.start()
        (port,) = unit.ports
        name = f"v{port.net}"
        self._declare_row(e, port.net, name)
        self._read_row(e, port, name)
        self._settle(e, port.net, name, itself=unit.looped)
        return self._function(f"unit_{unit.index}", e.lines, self.netlist.nets[port.net].name)

    def _declare_row(self, e: StorageEmitter, net: int, name: str) -> None:
        width = self.netlist.nets[net].width
        e.line(f"{ctype(width)} {name};" if width <= 64 else f"u64 {name}[{words(width)}];")

    def _read_row(self, e: StorageEmitter, port: ReadPort, name: str) -> None:
        """The stored row into a variable or the words at a pointer; zeros beyond the end."""
        width = self.netlist.nets[port.net].width
        address = e.scalar(port.address) if port.address.width else "0"
        row = self._row(port.memory, e, address)
        _, size = self.layout.memories[port.memory]
        fits = self._in_range(port.memory, port.address, address)
        if width <= 64:
            e.line(f"{name} = {fits} ? L{8 * size}({row}) : 0;")
        elif fits == "1":
            e.line(f"w_copy({name}, P64({row}), {words(width)});")
        else:
            e.line(f"if ({fits}) w_copy({name}, P64({row}), {words(width)});")
            e.line(f"else w_zero({name}, {words(width)});")

    def _fetch(self, unit: Unit) -> str:
        e = self.start()
        commit = self.wakes.text([unit.index + self._commit])
        nets = [self.netlist.nets[p.net] for p in unit.ports]
        targets: list[str] = []
        for net in nets:
            slot = self.layout.slots[net.index]
            targets.append(
                f"S{8 * slot.size}({slot.next})" if slot.size <= 8 else f"P64({slot.next})"
            )
        if self.netlist.reset is not None:
            with e.block(f"if ({e.scalar(self.netlist.reset)})"):
                for net, target in zip(nets, targets, strict=True):
                    if not net.reset_less:
                        self._init(e, net.index, target)
                e.line(commit)
        with e.block(f"if ({e.scalar(unit.ports[0].en)})"):
            for port, net, target in zip(unit.ports, nets, targets, strict=True):
                self._read_row(e, port, target)
                for number in port.transparent_for:
                    write = self.netlist.memories[port.memory].writes[number]
                    if port.address.width:
                        text = f"if ({e.scalar(port.address)} == {e.scalar(write.address)})"
                    else:
                        text = "if (1)"
                    with e.block(text):
                        self._merge(e, write, target, net.width)
            e.line(commit)
        return self._function(f"unit_{unit.index}", e.lines, nets[0].name) + self._committer(unit)

    def _write(self, unit: Unit) -> str:
        e = self.start()
        if len({w.memory for w in unit.writes}) > 1:
            # All have one enable.
            en = unit.writes[0].en
            enabled = e.scalar(en) if en.width <= 64 else f"w_any({e.wide(en)}, {words(en.width)})"
            with e.block(f"if ({enabled})"):
                for write in unit.writes:
                    self._write_port(e, write)
        else:
            for write in unit.writes:
                en = write.en
                enabled = (
                    e.scalar(en) if en.width <= 64 else f"w_any({e.wide(en)}, {words(en.width)})"
                )
                with e.block(f"if ({enabled})"):
                    self._write_port(e, write)
        return self._function(
            f"unit_{unit.index}", e.lines, self.netlist.memories[unit.writes[0].memory].name
        )

    def _write_port(self, e: StorageEmitter, write: WritePort) -> None:
        memory = self.netlist.memories[write.memory]
        _, size = self.layout.memories[memory.index]
        address = e.scalar(write.address) if write.address.width else "0"
        row = self._row(memory.index, e, address)
        target = f"S{8 * size}({row})" if size <= 8 else f"P64({row})"
        with e.block(f"if ({self._in_range(memory.index, write.address, address)})"):
            self._merge(e, write, target, memory.width)
            e.line(self.wakes.memory(memory.index))

    def _merge(self, e: StorageEmitter, write: WritePort, target: str, width: int) -> None:
        """Writes the enabled groups of bits of a row."""
        groups, grain = write.en.width, write.granularity
        if groups == 1:
            enabled = e.scalar(write.en)
            if width <= 64:
                e.line(f"if ({enabled}) {target} = {e.scalar(write.data)};")
            else:
                e.line(f"if ({enabled}) w_copy({target}, {e.wide(write.data)}, {words(width)});")
        elif width <= 64:
            en, mask = e.scalar(write.en), e.name("mask")
            kind = ctype(width)
            e.line(f"{kind} {mask} = 0;")
            one = f"if ({en} >> i & 1) {mask} |= {mask_of(grain, width)} << {grain} * i;"
            e.line(f"for (int i = 0; i < {groups}; i++) {one}")
            e.line(f"{target} = ({target} & ~{mask}) | ({e.scalar(write.data)} & {mask});")
        else:
            en, data = e.wide(write.en), e.wide(write.data)
            if groups <= 64:
                whole = f"{en}[0] == {mask_of(groups, 64)}"
                e.line(f"if ({whole}) w_copy({target}, {data}, {words(width)});")
                head = "else "
            else:
                head = ""
            one = f"{en}[i / 64] >> (i % 64) & 1"
            if grain % 8 == 0:
                step = grain // 8
                to, origin = (f"(u8 *)({p}) + {step} * i" for p in (target, data))
                copy = f"memcpy({to}, {origin}, {step});"
            else:
                copy = f"w_move({target}, {data}, {grain} * i, {grain});"
            e.line(f"{head}for (int i = 0; i < {groups}; i++) if ({one}) {copy}")
