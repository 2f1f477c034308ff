"""Totals: of the model, of every pipeline stage, and of one step's messages; and where they go, as bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from symsim.algebra.expr import Expr, Number, Symbol
from symsim.algebra.key import Key, layers, of_block
from symsim.algebra.kinds import kind_of
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, Unit
from symsim.cost.count import multiplicity
from symsim.evaluation.json_object import flops_by_module
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.traffic import stage_messages
from symsim.ir.block import MODULES
from symsim.ir.collectives import COLLECTIVES
from symsim.lowering.remember import Saved
from symsim.pipeline.stages import Stage
from symsim.report.amounts import exact, human, percent, whole
from symsim.report.document import Bar, Code, Column, Equations, Math, Paragraph, Part, Picture, Row, Section, Span, Table, joined, spans
from symsim.report.ink import Ink

_ATTENTION = frozenset({"attention", "linear_attention", "lightning_attention", "compressed_attention"})
STREAM = "residual stream"
_WIDTHS = {ELEMENT: 6, FLOP: 9.2, BYTE: 7.8}
_STAGE_TOTALS = ("P_stage_dense", "P_stage_expert", "P_stage", "X_stage", "Y_stage", "Z_stage", "A_stage", "Q_stage", "U_stage")


class Totals:
    """Numbers of a result that several outputs show."""

    def __init__(self, result: Evaluation):
        self.result = result

    def stage_numbers(self, stage: int) -> Mapping[str, Number]:
        return self.result.stage_numbers(self.result.stages[stage])

    @cached_property
    def messages(self) -> dict[int, list[tuple[str, str, str, str, Expr, int, int, int]]]:
        """By the first of equal stages: (phase, op, axis, per, group, calls, bytes handed in, bytes got back), equal kinds of calls together."""
        return {first: self._messages_of(self.result.stages[first], self.stage_numbers(first)) for first, *_ in self.result.alike}

    @property
    def busiest(self) -> int:
        """The stage whose rank sends and receives most, the first of equal ones."""
        return max(self.messages, key=lambda n: sum(m[6] + m[7] for m in self.messages[n]))

    def _messages_of(self, stage: Stage, numbers: Mapping[str, Number]) -> list[tuple[str, str, str, str, Expr, int, int, int]]:
        found: dict[tuple[str, str, str, str], tuple[Expr, int, int, int]] = {}
        for m in stage_messages(self.result, stage):
            key = (m.phase, m.op, m.axis, m.per)
            calls = int(m.count.evaluate(numbers))
            _, count, sent, received = found.get(key, (m.group, 0, 0, 0))
            found[key] = (
                m.group,
                count + calls,
                sent + calls * whole(m.send_bytes.evaluate(numbers)),
                received + calls * whole(m.receive_bytes.evaluate(numbers)),
            )
        order = {"forward": 0, "backward": 1, "step": 2}
        return [(*key, *value) for key, value in sorted(found.items(), key=lambda e: order.get(e[0][0], 3))]

    @cached_property
    def alike(self) -> list[tuple[list[int], int]]:
        """Stages with equal numbers together: (their indices, the one that speaks for them)."""
        classes: dict[object, list[int]] = {}
        for members in self.result.alike:
            numbers, messages = self.stage_numbers(members[0]), self.messages[members[0]]
            classes.setdefault((tuple(numbers[t] for t in _STAGE_TOTALS), tuple(m[:4] + m[5:] for m in messages)), []).extend(members)
        return [(sorted(members), min(members)) for members in classes.values()]

    @property
    def fullest(self) -> int:
        """The stage whose rank keeps most."""
        return max((first for first, *_ in self.result.alike), key=lambda n: self.stage_numbers(n)["A_stage"])

    def in_words(self, module: str) -> str:
        """A module of a table or a picture; what is counted as attention is named by all that stands in its place."""
        if module != "attention":
            return module.replace("_", " ")
        mixers = {mixer for kind in self.result.model.layer_kinds.values() for mixer in kind.mixers}
        others = sorted(mixers - _ATTENTION)
        return " + ".join([*(["attention"] if len(others) < len(mixers) else []), *(mixer.replace("_", " ") for mixer in others)])

    def bar(self, label: str, amounts: Mapping[str, Number], unit: Unit) -> Bar:
        """Amounts by module."""
        total = sum(amounts.values())
        parts = tuple((self.in_words(m), float(n / total), human(whole(n), unit)) for m, n in amounts.items() if n)
        return Bar(label, human(whole(total), unit), parts)

    def parameters(self) -> dict[str, int]:
        return {m: int(self.result.numbers[key.text]) for m in MODULES if (key := Key("N", module=m)) in self.result.derivation}

    @cached_property
    def flops(self) -> dict[str, dict[str, int]]:
        return flops_by_module(self.result)

    def saved(self, stage: int) -> dict[str, Number]:
        """Bytes that one micro-batch keeps on a rank of the stage, by the module that made them: the terms of A_stage."""
        numbers, lowered = self.stage_numbers(stage), self.result.lowered
        items: dict[str, Iterable[Saved]] = {}
        for again, blocks in ((False, lowered.blocks), (True, lowered.checkpointed)):
            for name, block in blocks.items():
                items |= {of_block("A", name, again).text: block.saved, of_block("A", name, again, part="shared").text: block.shared}
        found: dict[str, Number] = {}
        for monomial, coefficient in self.result.derivation.definitions["A_stage"].expr.terms.items():
            times, kept = coefficient, ""
            for atom, power in monomial:
                name = atom.name if isinstance(atom, Symbol) else ""
                if name in items:
                    kept = name
                else:
                    times = times * numbers[name] ** power
            for item in items[kept] if times else ():
                module = item.tensor.module or STREAM
                found[module] = found.get(module, 0) + times * item.bytes.evaluate(self.result.numbers)
        order = {m: n for n, m in enumerate((STREAM, *MODULES))}
        return dict(sorted(found.items(), key=lambda e: order.get(e[0], len(order))))

    def picture(self) -> Picture:
        flops = {m: f["forward"] + f["backward"] + f["recompute"] for m, f in self.flops.items()}
        saved = self.saved(self.fullest)
        bars = (
            self.bar("FLOPs of a micro-batch", flops, FLOP),
            self.bar("parameters", self.parameters(), ELEMENT),
            self.bar(f"saved bytes, stage {self.fullest}" if len(self.result.stages) > 1 else "saved bytes", saved, BYTE),
        )
        return Picture(
            spans(
                "Where the matrix products of one micro-batch (forward, backward and recomputed, the whole model), the parameters, and the bytes "
                "one micro-batch keeps on one rank of the fullest stage go."
            ),
            bars,
        )


def contents(result: Evaluation, numbers: Mapping[str, Number]) -> str:
    """What a stage runs: 'embedding + 3 dense'."""
    held = [f"{numbers[layers(k).text]} {kind_of(k)}" for k in result.model.kind_names() if numbers[layers(k).text]]
    return " + ".join([*(["embedding"] if numbers["first_i"] else []), *held, *(["head"] if numbers["loss_i"] else [])]) or "\u2013"


def ranges(indices: list[int]) -> str:
    """[1, 2, 3, 5] -> '1-3, 5', with an en dash."""
    runs: list[list[int]] = []
    for n in indices:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}\u2013{b}" for a, b in runs)


_MOST = 32  # rows of a table of stages


def thinned(stages: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Of many rows of stages as many as are read: those at both ends, and between them some at even distances."""
    if len(stages) <= _MOST:
        return list(stages)
    end = _MOST // 4
    between = len(stages) - 2 * end
    return [*stages[:end], *(stages[end + (2 * k + 1) * between // _MOST] for k in range(_MOST // 2)), *stages[-end:]]


def left_out(stages: Sequence[tuple[int, ...]]) -> str:
    """A sentence on the rows that `thinned` leaves out; empty where there are none."""
    count = len(stages) - _MOST
    return f" {count:,} rows between these are left out: numbers change from stage to stage." if count > 0 else ""


def of_model(result: Evaluation, ink: Ink, totals: Totals) -> list[Section]:
    """The chapter on the model: its parameters, and its FLOPs."""
    return [_parameters(result, ink, totals), _flops(result, ink, totals)]


def in_short(result: Evaluation, ink: Ink, totals: Totals) -> list[Section]:
    """A stage and the model, each with the formula it begins with and its table."""
    return [_stages(result, ink, totals, 1, short=True), _parameters(result, ink, totals, short=True)]


def of_stage(result: Evaluation, ink: Ink, totals: Totals, level: int = 2) -> list[Section]:
    """What stages hold and compute, and the messages of the busiest. level: 1 where nothing is above them."""
    return [_stages(result, ink, totals, level), _messages(result, ink, totals)]


def _equations(result: Evaluation, ink: Ink, names: Iterable[str]) -> Equations:
    """What is nothing comes last, in one."""
    book, number = result.derivation.definitions, result.numbers
    known = [n for n in names if n in book]
    nothing = [n for n in known if number.get(n) == 0]
    made = tuple(e for n in known if n not in nothing for e in ink.spelled(n, book[n].expr, number.get(n), book[n].unit))
    return Equations((*made, *ink.zeros(nothing)))


def _parameters(result: Evaluation, ink: Ink, totals: Totals, short: bool = False) -> Section:
    number = result.numbers
    rows = [Row((totals.in_words(m), exact(n), human(n, ELEMENT), percent(float(n / number["N"])))) for m, n in totals.parameters().items()]
    rows.append(Row(("all", exact(number["N"]), human(number["N"], ELEMENT), percent(1.0)), "total"))
    if "N_active" in number:
        rows.append(Row(("active", exact(number["N_active"]), human(number["N_active"], ELEMENT), percent(float(number["N_active"] / number["N"])))))
    said = ["The model's parameters are those of its modules, which every block that has the module counts, times the layers of that kind; "]
    said.append("tied tables count once.")
    if "N_active" in number:
        said.append(" Active are those one token meets: of the experts, ")
    routed: list[Span] = [ink.symbol("K"), " of ", ink.symbol("E"), "."] if "N_active" in number else []
    columns = (Column("module", 12), Column("parameters", 14, True), Column("about", 8, True), Column("share", 7, True))
    names = [*(Key("N", module=m).text for m in MODULES), "N_active"]
    return Section(
        "The model",
        (
            Paragraph(spans(*said, *routed)),
            _equations(result, ink, ["N"]),
            Table(spans("Parameters by module (B: ", Math("10^9"), ")."), columns, tuple(rows)),
            *([] if short else [_equations(result, ink, names)]),
        ),
    )


def _flops(result: Evaluation, ink: Ink, totals: Totals) -> Section:
    kinds = [k for k in ("forward", "backward", "recompute") if k != "recompute" or result.numbers["R"]]
    rows = [Row((totals.in_words(m), *(exact(f[k]) for k in kinds), human(sum(f.values()), FLOP))) for m, f in totals.flops.items()]
    summed = {k: sum(f[k] for f in totals.flops.values()) for k in kinds}
    rows.append(Row(("all", *(exact(summed[k]) for k in kinds), human(sum(summed.values()), FLOP)), "total"))
    columns = (Column("module", 10), *(Column({"recompute": "run again"}.get(k, k), 14, True) for k in kinds), Column("together", 8, True))
    times = multiplicity(result.lowered)
    ink.note(*times.values())
    said = Paragraph(
        spans(
            "Counted are matrix products, 2 FLOP a multiply-add, of one micro-batch over the whole model. A linear map has two "
            "transposes in backward, for the input and for the weight, so backward costs twice "
            "forward; attention's backward is its own kernel (assumption ",
            Code("attention_kernel"),
            ").",
        )
    )
    names = ["F", "G", "R", "F_outside", "G_outside", "R_outside"]
    return Section("FLOPs", (said, _equations(result, ink, names), Table(spans("FLOPs by module, one micro-batch."), columns, tuple(rows))), 2)


def _stages(result: Evaluation, ink: Ink, totals: Totals, level: int, short: bool = False) -> Section:
    book = result.derivation.definitions
    held = [d.symbol for d in result.derivation.of("L", scope="stage")]
    summed = [n for n in ("P_output", *_STAGE_TOTALS) if n in book and (n != "Z_stage" or result.numbers["R"])]
    sources = dict.fromkeys(book[n].source for n in (*held, *summed) if book[n].source)
    said = spans(
        "A rank of stage ",
        ink.symbol("i"),
        " runs the layers of its stage; the first stage also looks the tokens up, the last computes the loss. "
        "What it keeps is for one micro-batch; how many are in flight is the schedule's. Stages with equal numbers share a row.",
        *([" Layers of a stage: ", *joined([(ink.sources.cited(s),) for s in sources]), "."] if sources else []),
    )
    opening = ["X_stage"] if level == 1 else []
    parts: list[Part] = [Paragraph(said)]
    for names in (opening, [] if short else [n for n in (*held, *summed) if n not in opening]):
        parts += [Equations(tuple(e for n in names for e in (ink.counted(n) if n in held else ink.spelled(n, book[n].expr))))] if names else []
    parts.append(_stage_table(result, ink, totals))
    return Section("A stage" if opening else "What a stage holds", tuple(parts), level)


def _stage_table(result: Evaluation, ink: Ink, totals: Totals) -> Table:
    book = result.derivation.definitions
    shown = [n for n in ("P_stage", "X_stage", "Y_stage", "Z_stage", "A_stage", "Q_stage", "U_stage") if n != "Z_stage" or result.numbers["R"]]
    rows = []
    for members, first in totals.alike:
        numbers = totals.stage_numbers(first)
        rows.append(Row((ranges(members), exact(len(members)), contents(result, numbers), *(human(whole(numbers[n]), book[n].unit) for n in shown))))
    columns = (
        Column(ink.symbol("i"), 6),
        Column("stages", 4.2, True),
        Column("each runs", 7),
        *(Column(ink.symbol(n), _WIDTHS[book[n].unit], True) for n in shown),
    )
    return Table(spans("What stages hold, and one rank of each, one micro-batch."), columns, tuple(rows))


def _messages(result: Evaluation, ink: Ink, totals: Totals) -> Section:
    busiest = totals.busiest
    rows = []
    for phase, op, axis, per, group, calls, sent, received in totals.messages[busiest]:
        over: Span = ink.math(group) if group.symbols() else Code(axis)
        rows.append(
            Row(
                (
                    phase,
                    COLLECTIVES[op].said,
                    over,
                    str(int(group.evaluate(result.numbers))),
                    str(calls),
                    human(sent, BYTE),
                    human(received, BYTE),
                    f"a {'micro-batch' if per == 'microbatch' else per}",
                )
            )
        )
    columns = (
        Column("phase", 7),
        Column("operation", 10),
        Column("over", 6),
        Column("ranks", 4, True),
        Column("calls", 5, True),
        Column("handed in", 9, True),
        Column("got back", 9, True),
        Column("in", 9),
    )
    where = f" of stage {busiest}, the busiest" if len(result.stages) > 1 else ""
    parts: list[Part] = [
        Paragraph(
            spans(
                "A rank's messages are those of its blocks, of the pipeline's boundary, and of the gradients at the end of the step. Sums over "
                "calls of the local buffers follow; wire bytes depend on the algorithm that carries them."
            )
        )
    ]
    if rows:
        parts.append(Table(spans(f"Messages of one rank{where}."), columns, tuple(rows)))
    else:
        parts.append(Paragraph(spans("There are none: one rank holds the whole model.")))
    return Section("Messages of a stage", tuple(parts), 2)
