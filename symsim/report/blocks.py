"""The derivation of one block: its operations, messages, saved tensors, and definitions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from symsim.algebra.expr import ONE, ZERO, Expr, Number, symbol
from symsim.algebra.key import layers_of_model, of_block
from symsim.algebra.kinds import in_words, kind_of
from symsim.algebra.quantity import BYTE, ELEMENT, Definition, Unit
from symsim.algebra.reading import LONGEST
from symsim.algebra.typeset import latex, symbol_latex, width
from symsim.evaluation.numbers import Evaluation
from symsim.ir.block import Op
from symsim.ir.messages import Message, between_ranks, merge
from symsim.ir.operations import OPERATIONS, REDISTRIBUTIONS, UNCOUNTED, Redistribution
from symsim.ir.roles import role_of
from symsim.lowering.remember import Remembered, Saved
from symsim.report import alike, block_time, question
from symsim.report.amounts import human, whole
from symsim.report.document import Code, Column, Emphasis, Equation, Equations, Math, Paragraph, Part, Row, Section, Span, Spans, Table, joined, spans
from symsim.report.ink import Ink
from symsim.report.step import Step


@dataclass
class Blocks:
    """Writes the sections of blocks, in order; a later one names what an earlier one has shown: rows, messages, formulas."""

    result: Evaluation
    ink: Ink
    step: Step | None = None

    def __post_init__(self) -> None:
        self.shown: dict[str, dict[str, tuple[Row, ...]]] = {"operations": {}, "saved": {}, "seconds": {}}
        self.sent: dict[str, list[Message]] = {}
        self.written: dict[tuple[Expr, Unit], str] = {}
        self.modules: dict[tuple[str, Expr], str] = {}
        self.inside: dict[str, list[str]] = {}

    def opening(self) -> Section:
        """What all blocks have in common, the strategy's options and the placement."""
        said = spans(
            "Every distinct block is derived once, as its operations in their order: each is an einsum over named dimensions, the strategy places "
            "those names on a mesh of ranks, and FLOPs, bytes and messages follow by rule: twice the product of an operation's dimensions, the sizes "
            "of its operands, and the redistributions that its placement requires. Sizes are those one rank holds: a dimension on an axis is divided "
            "by its degree. A block's amounts are the sums of the rows of its tables; the value at the given sizes ends a formula.",
        )
        rows = Equations((Equation("X", (r"{\textstyle\sum_n} X_n",)),))
        return Section("Blocks", (Paragraph(said), rows, *question.options(self.result), *question.placement(self.result, self.ink)))

    def section(self, name: str) -> Section:
        remembered = self.result.lowered.blocks[name]
        parts: list[Part] = [Paragraph(self._about(name))]
        parts += self._operations(name, remembered)
        parts += self._messages(name, [m for _, m in between_ranks([*remembered.differentiated.forward_messages, *remembered.backward_messages])], "")
        parts += self._saved(name, remembered, "")
        parts += self._parameters(name)
        parts += self._definitions(name)
        parts += self._seconds(name) if self.step is not None else []
        again = self.result.lowered.checkpointed.get(name)
        if again is not None:
            parts += self._recomputed(name, remembered, again)
        return Section(self._title(name), tuple(parts), 2)

    def _seconds(self, name: str) -> list[Part]:
        assert self.step is not None
        uncounted = UNCOUNTED | REDISTRIBUTIONS
        operations = [op.name for op in self.result.lowered.blocks[name].placed.block.ops if op.kind not in uncounted]
        rows = block_time.rows(self.step, name, {operation: n for n, operation in enumerate(operations, start=1)})
        table = block_time.table(name, self._since("seconds", in_words(name), rows))
        return [table, Equations(tuple(block_time.sums(self.step, self.ink, name)))]

    def _title(self, name: str) -> str:
        if name in self.result.model.layer_kinds:
            return f"{'Encoder' if self.result.model.layer_kinds[name].bidirectional else 'Decoder'} layer: {kind_of(name)}"
        return role_of(name).title

    def _about(self, name: str) -> Spans:
        kinds = self.result.model.layer_kinds
        if name in kinds:
            of = layers_of_model(name)
            layers = self.result.values[of.text]
            said = spans("The model has ", self.ink.valued(of.text, layers), f" layer{'s' if layers != 1 else ''} of this kind.")
            if any(in_words(kind) in self.shown["operations"] for kind in kinds):
                return said
            return spans(
                *said,
                " Operations run in this order; a row in italics is a message (or a local slice) that the placement of the next operation requires. ",
                Math("X_n"),
                " is what one rank computes, ",
                Math("Q_n"),
                " what it reads and writes in HBM, and the last column points into the table of what is kept.",
            )
        if role_of(name).on_stream:
            return spans("Each depth merges the stream with the embedding of the next token, runs one more layer, and uses the model's own head.")
        where = "first stage only" if role_of(name).before else "last stage only"
        return spans(f"On the {where}; the columns are those of a layer.")

    def _operations(self, name: str, remembered: Remembered) -> list[Part]:
        rows, kept = [], _kept(remembered)
        scope, number = "", 0
        block = remembered.placed.block
        sent = between_ranks(remembered.differentiated.forward_messages)
        messages = {i: [m for at, m in sent if at == i] for i, _ in enumerate(block.ops)}
        for index, op in enumerate(block.ops):
            if op.kind in UNCOUNTED - REDISTRIBUTIONS:
                continue
            inside = op.name.split(".")[0] if "." in op.name else ""
            if inside != scope and inside:
                rows.append(Row((inside.replace("_", " "),), "group"))
            scope = inside
            if op.kind in REDISTRIBUTIONS:
                rows.append(self._slice(remembered, op)) if op.kind == "slice" else rows.extend(map(self._message_row, messages[index]))
                continue
            number += 1
            rows.append(self._operation(name, remembered, index, number, kept))
            rows.extend(map(self._message_row, messages[index]))
        self.inside[name] = alike.inside(rows, {b: self.shown["operations"][in_words(b)] for b in self.inside})
        columns = (
            Column(Math("n"), 1.6, True),
            Column("operation", 11),
            Column("dimensions", 10.5),
            Column("placed", 7),
            Column(("FLOPs ", Math("X_n")), 10.5),
            Column(("bytes ", Math("Q_n")), 15.5),
            Column("keeps", 3.5),
        )
        return [
            Table(spans(f"Operations of {in_words(name)}, forward, on one rank."), columns, self._since("operations", in_words(name), tuple(rows)))
        ]

    def _operation(self, name: str, remembered: Remembered, index: int, number: int, kept: Sequence[Saved]) -> Row:
        placed, book = remembered.placed, self.result.derivation
        op = placed.block.ops[index]
        flops, moved = (next(iter(book.of(letter, block=name, operation=op.name)), None) for letter in "XQ")
        keeps = [str(n) for n, item in enumerate(kept, start=1) if op.name in {by.operation for by in item.by}]
        again = alike.AGAIN if index in remembered.recomputed else ""
        return Row(
            (
                str(number),
                spans(Code(op.name.partition(".")[2] or op.name), again),
                self._computes(remembered, op),
                self.ink.placed(placed.block, placed.mesh, placed.iteration[index]),
                self.ink.math(flops.expr) if flops else (),
                self.ink.math(moved.expr) if moved else (),
                ", ".join(keeps),
            ),
            "inner" if "." in op.name else "plain",
        )

    def _computes(self, remembered: Remembered, op: Op) -> Spans:
        block = remembered.placed.block
        tensors = block.tensors
        results = [t for t in op.outputs if tensors[t].kind == "activation"] or list(op.outputs)
        made = self.ink.dimensions(block, tensors[results[0]].dims) if results else ""
        looks_up = OPERATIONS[op.kind].role == "lookup"
        if not op.products and OPERATIONS[op.kind].role not in ("lookup", "exchange", "moves"):
            return spans(Math(made))
        read = [t for t in op.inputs if tensors[t].kind in ("activation", "parameter") or looks_up]
        # a bias is added, not multiplied
        read = [t for t in read if not (tensors[t].kind == "parameter" and tensors[t].role == "bias")]
        if not op.products and not looks_up:
            read = read[:1]
        *before, last = (self.ink.dimensions(block, tensors[t].dims) for t in read)
        return joined([*(spans(Math(d)) for d in before), spans(Math(rf"{last} \to {made}"))])

    def _slice(self, remembered: Remembered, op: Op) -> Row:
        axis = self.ink.math(remembered.placed.mesh.degree(op.of(Redistribution).axis))
        return Row(((), (Emphasis("local slice over "), axis), (), (), (), (), ()), "message")

    def _message_row(self, message: Message) -> Row:
        sizes = Math(f"{self.ink.math(message.send_elements).latex} \\to {self.ink.math(message.receive_elements).latex}")
        return Row(((), (Emphasis(f"{message.row.said} over "), self._group(message)), sizes, (), (), (), ()), "message")

    def _group(self, message: Message) -> Span:
        return self.ink.math(message.group) if message.group.symbols() else Code(message.axis)

    def _messages(self, name: str, messages: Sequence[Message], title: str) -> list[Part]:
        if not messages:
            return []
        others, left = self._shown(name, messages) if not title else ((), list(messages))
        if not title and (rest := alike.once(left, self._run_again(name))) is not None:
            others = (*others, *[" and "] * bool(others), "in backward those of the operations that run again")
            left = rest
        if not left:
            return [Paragraph(spans(f"Messages of {in_words(name)} are ", *others, "."))]
        rows = [message_row(self.ink, m, self.result.numbers) for m in merge(left)]
        return [
            Table(
                spans(
                    f"Messages of {in_words(name)}{title}",
                    *(spans(", beside ", *others) if others else ()),
                    ", one micro-batch. Buffers are what one rank hands in and gets back, not wire bytes.",
                ),
                message_columns(),
                tuple(rows),
            )
        ]

    def _run_again(self, name: str) -> list[Message]:
        """What the operations that backward recomputes send in forward."""
        remembered = self.result.lowered.blocks[name]
        return [m for at, m in between_ranks(remembered.differentiated.forward_messages) if at in remembered.recomputed]

    def _shown(self, name: str, messages: Sequence[Message]) -> tuple[Spans, list[Message]]:
        """Whose messages are among these, in words, and those that no earlier block has shown."""
        whose, left = alike.beside(messages, self.sent)
        others = joined([spans(f"those of {other}") for other in whose], " and ")
        if not whose:
            where, operations, left = alike.at_operations(messages, self.sent)
            others = spans(f"those of {where} at ", *joined([spans(Code(o)) for o in operations])) if operations else ()
        self.sent[in_words(name)] = list(messages)
        return others, left

    def _saved(self, name: str, remembered: Remembered, title: str) -> list[Part]:
        kept = _kept(remembered)
        if not kept:
            return []
        rows = [self._saved_row(n, item, item in remembered.shared) for n, item in enumerate(kept, start=1)]
        if equal := alike.same_as(rows, self.shown["saved"]):
            return [Paragraph(spans(f"For backward{title}, {in_words(name)} keeps the same as {equal}."))]
        columns = (
            Column(Math("n"), 1.6, True),
            Column("tensor", 15),
            Column("kept for", 20),
            Column("type", 3.5),
            Column(("bytes ", Math("A_n")), 12),
            Column("amount", 6, True),
        )
        return [
            Table(
                spans(f"What {in_words(name)} keeps for backward{title}, on one rank, one micro-batch."),
                columns,
                self._since("saved", in_words(name) + title, tuple(rows)),
            )
        ]

    def _saved_row(self, number: int, item: Saved, shared: bool) -> Row:
        by = joined([spans(*(["recompute of "] if by.again else []), Code(by.operation)) for by in item.by])
        return Row(
            (
                str(number),
                self._tensor(item.name),
                (*by, "; once for all layers, not in the sum") if shared else by,
                item.tensor.dtype,
                self.ink.math(item.bytes),
                human(whole(item.bytes.evaluate(self.result.numbers)), BYTE),
            )
        )

    def _tensor(self, name: str) -> Spans:
        """A tensor's name, and in words where it was redistributed (`rows@etp:None`)."""
        plain, *moves = name.split("@")
        said: list[Spans] = []
        for move in moves:
            axis, _, target = move.partition(":")
            said.append(spans(", gathered over " if target == "None" else ", split over ", self.ink.math(self.result.lowered.mesh.degree(axis))))
        return (Code(plain), *(s for part in said for s in part))

    def _since(self, table: str, name: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """The rows, with those that an earlier block has, too, named instead of repeated."""
        made = alike.since(rows, self.shown[table])
        self.shown[table][name] = rows
        return made

    def _parameters(self, name: str) -> list[Part]:
        book, number = self.result.derivation, self.result.numbers
        rows = []
        for whole_model in book.of("N", scope="block", block=name):
            module, held = whole_model.key.module, book[whole_model.key._replace(quantity="P")]
            self.ink.defined.update({whole_model.symbol: None, held.symbol: None})
            rows.append(
                Row(
                    (
                        module.replace("_", " "),
                        Math(
                            f"{self.ink.names[whole_model.symbol]} = {self.ink.math(self._once(whole_model.symbol, whole_model.expr, ELEMENT)).latex}"
                        ),
                        human(number[whole_model.symbol], ELEMENT),
                        Math(f"{self.ink.names[held.symbol]} = {self.ink.math(self._once(held.symbol, held.expr, ELEMENT)).latex}"),
                        human(number[held.symbol], ELEMENT),
                    )
                )
            )
        columns = (
            Column("module", 6.5),
            Column("parameters", 22),
            Column("number", 5, True),
            Column("held by one rank", 22),
            Column("number", 5, True),
        )
        return [Table(spans(f"Parameters of {in_words(name)}."), columns, tuple(rows))] if rows else []

    def _definitions(self, name: str, again: bool = False) -> list[Part]:
        """The block's totals over sizes alone: its operations' own definitions are put in."""
        book = self.result.derivation
        own = self._own(name)
        totals = [book[key] for key in (of_block(letter, name, again) for letter in "FXQGYURZA") if key in book]
        nothing = [d.symbol for d in totals if not d.expr]
        written = [(d, self._by_module(d, own, name)) for d in totals if d.expr]
        edge = max((width(symbol_latex(left, self.ink.names)) for d, parts in written for left in (d.symbol, *parts)), default=0.0)
        made = [e for d, parts in written for e in self._total(d, parts, own, edge)]
        if (key := of_block("A", name, again, part="shared")) in book:
            shared = book[key]
            made.append(self.ink.equation(shared.symbol, shared.expr, self._value(shared.symbol), BYTE))
        if nothing:
            made += self.ink.zeros(nothing)
        return [Equations(tuple(made))]

    def _by_module(self, definition: Definition, own: dict[str, Expr], block: str) -> dict[str, Expr]:
        """What each module has of a total that is too long to be read over sizes, by its symbol; of another nothing."""
        if self._whole(definition, self._over_blocks(definition, inlined(definition.expr, own))).length <= LONGEST:
            return {}
        modules = {op.name: op.module for op in self.result.lowered.blocks[block].placed.block.ops}
        parts: dict[str, Expr] = {}
        for monomial, coefficient in definition.expr.terms.items():
            term = Expr({monomial: coefficient})
            found = [self.result.derivation.definitions[n].key.operation for n in term.symbols() & own.keys()]
            module = modules.get(found[0], "") if len(found) == 1 else ""
            parts[module] = parts.get(module, ZERO) + term
        return {self.ink.parts.of_module(definition, module): part for module, part in parts.items()} if len(parts) > 1 else {}

    def _whole(self, definition: Definition, expression: Expr, edge: float = 0.0) -> Equation:
        rows = definition.key.quantity if definition.key.quantity in "XQA" else ""
        return self.ink.equation(definition.symbol, expression, self._value(definition.symbol), definition.unit, rows, edge)

    def _total(self, definition: Definition, parts: dict[str, Expr], own: dict[str, Expr], edge: float) -> list[Equation]:
        """A total over sizes, or over what its modules have of it and an equation for each of these. edge: em of the longest left side."""
        unit = definition.unit
        if parts:
            total, apart = ZERO, []
            for name, part in parts.items():
                closed = inlined(part, own)
                shown = self.modules.setdefault((definition.key.quantity, closed), name)
                total = total + symbol(shown)
                if shown == name:
                    apart += self.ink.spelled(name, closed, whole(part.evaluate(self.result.numbers)), unit, edge)
            return [self._whole(definition, total, edge), *apart]
        closed = self._once(definition.symbol, inlined(definition.expr, own), unit)
        closed = self._over_blocks(definition, closed)
        made = self._whole(definition, closed, edge)
        return [made] if made.length <= LONGEST else self.ink.spelled(definition.symbol, closed, self._value(definition.symbol), unit, edge)

    def _once(self, name: str, formula: Expr, unit: Unit) -> Expr:
        """The formula, or the symbol that an earlier equation has defined by it, where that is shorter."""
        known = symbol(self.written.setdefault((formula, unit), name))
        return known if known != symbol(name) and self._width(known) < self._width(formula) else formula

    def _width(self, formula: Expr) -> float:
        return width(latex(formula, self.ink.names))

    def _over_blocks(self, definition: Definition, formula: Expr) -> Expr:
        """A total over those of earlier blocks that are inside of this one, and what remains, where all of it is added."""
        book, key, made, rest = self.result.derivation, definition.key, ZERO, formula
        for block in self.inside[key.block]:
            inner = book[key._replace(block=block)].expr if key._replace(block=block) in book else ZERO
            less = rest - inlined(inner, self._own(block))
            if inner and all(coefficient > 0 for coefficient in less.terms.values()):
                made, rest = made + symbol(book[key._replace(block=block)].symbol), less
        return made + rest if self._width(made + rest) < self._width(formula) else formula

    def _own(self, block: str) -> dict[str, Expr]:
        return {d.symbol: d.expr for d in self.result.derivation.of(scope="block", block=block)}

    def _value(self, symbol: str) -> Number:
        return whole(self.result.numbers[symbol])

    def _recomputed(self, name: str, remembered: Remembered, again: Remembered) -> list[Part]:
        repeated = Counter(m for _, m in between_ranks(again.backward_messages))
        before = Counter(m for _, m in between_ranks(remembered.backward_messages))
        beside = before <= repeated
        further = list((repeated - before if beside else repeated).elements())
        forward = [m for _, m in between_ranks(remembered.differentiated.forward_messages)]
        rest = alike.without(further, forward, alike.REPEATED, "backward") if forward else None
        above = [f"those above{' in backward' if rest is not None else ''}"] * beside + ["those of the forward"] * (rest is not None)
        return [
            Paragraph(spans("A layer that is recomputed in full keeps only what follows, and runs its forward again, messages too.")),
            *self._saved(name, again, ", recomputed"),
            *self._messages(name, further if rest is None else rest, f", recomputed, in backward{', beside ' if above else ''}{' and '.join(above)}"),
            *self._definitions(name, again=True),
        ]


def _kept(remembered: Remembered) -> list[Saved]:
    """All that a block keeps, in the order in which its operations ask for it: rows of blocks that begin alike are then the same."""
    places = {op.name: n for n, op in enumerate(remembered.placed.block.ops)}
    return sorted((*remembered.saved, *remembered.shared), key=lambda item: min(places[by.operation] for by in item.by))


def inlined(expression: Expr, own: dict[str, Expr]) -> Expr:
    """The expression with the block's own definitions put in, theirs first."""
    while expression.symbols() & own.keys():
        expression = expression.substitute({s: own[s] for s in expression.symbols() & own.keys()})
    return expression


def message_columns() -> tuple[Column, ...]:
    return (
        Column("phase", 5),
        Column("operation", 7.5),
        Column("over", 2.8),
        Column("calls", 2.6, True),
        Column("handed in, bytes", 8),
        Column("got back, bytes", 8),
        Column("handed in", 5, True),
        Column("tensor", 20.1),
    )


def message_row(ink: Ink, message: Message, numbers: dict[str, Number]) -> Row:
    over = ink.math(message.group) if message.group.symbols() else Code(message.axis)
    calls = ink.math(message.count) if message.count != ONE else Math("1")
    sent = message.send_bytes or message.receive_bytes
    return Row(
        (
            message.phase,
            message.row.said,
            over,
            calls,
            ink.math(message.send_bytes),
            ink.math(message.receive_bytes),
            human(whole(sent.evaluate(numbers)), BYTE),
            _where(message.what),
        )
    )


def _where(what: str) -> Spans:
    """'output of attention.o_proj; ...' with names set as names, and without the operation that the table names already."""
    pieces = re.split(r"((?=\w*[._]\w)[\w.]+)", what)
    return spans(*(Code(alike.operation(p)) if n % 2 else p for n, p in enumerate(pieces)))
