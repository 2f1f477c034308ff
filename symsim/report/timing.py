"""The chapter on time: the system, the closed forms of kernels, seconds of every block, its messages, stages and the step."""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Call, Expr, expr, symbol
from symsim.algebra.key import Key, Scope, of_block
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import BYTE, SECOND, Definition
from symsim.algebra.typeset import width
from symsim.cost.run import PART as RUN
from symsim.cost.step_time import PHASES, STAGE_TIMES
from symsim.evaluation.interval import moves
from symsim.inputs import curves
from symsim.inputs.spreads import KINDS, OF_STEP, stored
from symsim.ir.collectives import carried_by
from symsim.pipeline.schedules import schedule_of
from symsim.report import machine
from symsim.report.amounts import THIN, human, percent, plain, rate, seconds
from symsim.report.document import Bar, Code, Column, Equation, Equations, Math, Paragraph, Picture, Row, Section, Span, Spans, Table, joined, spans
from symsim.report.ink import LINE, Ink, in_units
from symsim.report.kernels import block_kernels
from symsim.report.step import ROUNDING, Step, stage_seconds
from symsim.report.totals import ranges

_DIMENSIONS = {
    "rows": "rows of the first operand and of the result",
    "columns": "columns of the second operand and of the result",
    "depth": "columns of the first operand and rows of the second, summed over",
    "groups": "equal products of one grouped kernel",
    "w_in": "bytes an element of the operands",
    "w_out": "bytes an element of the result",
    "sequences": "sequences on one rank",
    "heads": "query heads on one rank",
    "queries": "queries of a sequence on one rank",
    "keys": "keys that a query could see without a mask",
    "size": "size of a head",
    "bytes": "bytes read and written",
}
_LEAST_MOVE = 5e-4
_COLUMNS = ("forward", "input gradients", "weight gradients")


def sections(step: Step, ink: Ink) -> list[Section]:
    blocks = step.result.lowered.blocks
    return [
        _opening(step, ink),
        machine.section(step, ink),
        _closed_forms(ink),
        *(_block(step, ink, name) for name in blocks),
        _messages(step, ink),
        _stages(step, ink),
        _step(step, ink),
        *_uncertainty(step, ink),
    ]


def _opening(step: Step, ink: Ink) -> Section:
    parts = tuple((p.name, p.share, seconds(p.seconds)) for p in step.parts if p.seconds)
    said = f"Where the time of a step goes on {step.system.name}. {step.why_slowest}"
    return Section("Time", (Picture(spans(said), (Bar("one step", seconds(step.number("t_step")), parts),)),))


def answer(step: Step) -> Table:
    """What a reader asks first."""
    numbers = step.result.step_numbers
    rows = [
        ("one step", seconds(numbers["t_step"])),
        *_interval_row(step),
        ("tokens a second", f"{plain(step.number('tokens_per_second'))}"),
        ("tokens a second on each accelerator", plain(step.number("tokens_per_second") / numbers["world"])),
        (f"MFU, of {rate(float(numbers['Phi']), 'FLOP/s')} an accelerator", percent(step.number("mfu"))),
        ("HFU, recomputation included", percent(step.number("hfu"))),
        (f"peak memory, of {human(step.capacity, BYTE)}", human(step.peak(step.fullest), BYTE)),
        ("verdict", step.verdict),
    ]
    for name, what in (
        ("cost_per_trillion_tokens", "cost of a trillion tokens, USD"),
        ("energy_per_trillion_tokens", "energy of a trillion tokens, MWh"),
    ):
        if name in numbers:
            rows.append((what, plain(step.number(name))))
    caption = f"The step on {step.system.name}. {step.above_peak}".rstrip()
    return Table(spans(caption), (Column("result", 24), Column("value", 24)), tuple(Row(r) for r in rows))


def _interval_row(step: Step) -> list[tuple[str, str]]:
    found = step.interval
    return [] if found is None else [(f"between, in {percent(found.level)} of cases", f"{seconds(found.low)} to {seconds(found.high)}")]


def _uncertainty(step: Step, ink: Ink) -> list[Section]:
    """By kind of numbers how far they may be off, what the step changes by, and the share of its interval."""
    found = step.interval
    if found is None:
        return []
    spreads, made = stored(), moves(step.result)
    rows, told = [], set[str]()
    for (kind, tag), move in sorted(made.items(), key=lambda item: -found.shares.get(item[0][0], 0.0)):
        if abs(move) > _LEAST_MOVE:
            known = "" if kind in OF_STEP else tag
            share = percent(found.shares.get(kind, 0.0)) if kind not in told else ""
            rows.append(Row((KINDS[kind], known, percent(spreads.of(kind, tag)), f"{move:.3f}", share)))
            told.add(kind)
    for kind in ("machine", "run"):
        rows.append(Row((KINDS[kind], "", percent(spreads.of(kind, "estimated")), "1", percent(found.shares[kind]))))
    columns = (Column("numbers", 22), Column("known as", 8), Column("spread", 7, True), Column("moves", 6, True), Column("of the variance", 8, True))
    said = (
        f"In {percent(found.level)} of cases a step takes between {seconds(found.low)} and {seconds(found.high)}. A kind of numbers is off by its "
        "spread, all of the kind together, kinds apart; a step moves by the elasticity of its formula (moves). Spreads are "
        f"estimated from {spreads.source}. What was measured of a machine is known better than what was estimated or borrowed."
    )
    return [Section("How far it may be off", (Paragraph(spans(said)), Table(spans("Kinds of numbers."), columns, tuple(rows))), 2)]


def _closed_forms(ink: Ink) -> Section:
    """The formulas of `curves`, over the dimensions of one kernel in words."""
    rows, columns, depth, groups, read, written, peak = (symbol(x) for x in ("rows", "columns", "depth", "groups", "w_in", "w_out", "Phi"))
    heads = [symbol(x) for x in ("sequences", "heads", "queries", "keys", "size", "size")]
    moved = symbol("bytes")
    forms = {
        "product": curves.gemm(rows, columns, depth, kind="forward", peak=peak, width_in=read, width_out=written),
        "grouped": curves.gemm(rows, columns, depth, groups=groups, kind="forward", peak=peak, width_in=read, width_out=written, grouped=True),
        "attention": curves.attention(*heads, causal=True, backward=False, peak=peak, moved=moved),
        "attention\u2032": curves.attention(*heads, causal=True, backward=True, peak=peak, moved=moved),
        "moved": curves.memory_bound(symbol("bytes"), kind="elementwise"),
    }
    ink.own |= _DIMENSIONS
    said = Paragraph(
        spans(
            "A matrix product of rows \u00d7 depth with depth \u00d7 columns is cut into tiles of "
            f"{curves.TILE} \u00d7 {curves.TILE}, as many at a time as there are multiprocessors; it computes while its operands cross HBM, and a "
            "share of the shorter of the two is not hidden; a weight gradient reads its result, too. Flash attention works through the pairs of "
            "query and key that the mask leaves (backward: the second form) and through ",
            ink.symbol("kappa_fa"),
            f" keys beyond its edge, or walks along one row; of a window queries see that many keys at most; heads smaller than {curves.HEAD} take a "
            "share of their time for the softmax, which does not shrink with them; heads whose keys and values differ in size take a share ",
            ink.symbol("zeta_fa"),
            " of that difference longer. Everything else moves bytes. An operation's own dimensions stand for the words in the tables below.",
        )
    )
    named = tuple(Row((ink.symbol(name), meaning)) for name, meaning in _DIMENSIONS.items())
    table = Table(spans("Dimensions of a kernel."), (Column("symbol", 8), Column("meaning", 40)), named)
    equations = Equations(tuple(e for title, formula in forms.items() for e in _form(ink, title, formula)))
    return Section("Kernels in closed form", (said, equations, table), 2)


def _form(ink: Ink, title: str, formula: Expr) -> list[Equation]:
    """A kernel's seconds, with what its maximum compares as equations of their own."""
    mark = "b" if title.endswith("\u2032") else ""
    title = title.rstrip("\u2032")
    apart: dict[Expr, str] = {}
    compared = _compared(formula)
    while compared:
        argument = compared.pop(0)
        found = argument.symbols()
        part = "busy" if {"B_hbm", "Phi"} <= found else "memory" if "B_hbm" in found else "compute" if "Phi" in found else "walk"
        apart[argument] = ink.local(f"{title} {mark} {part}", _superscript(mark) + rf"_{{\mathrm{{{title}}},\mathrm{{{part}}}}}")
        compared += [a for a in _compared(argument) if a not in apart and a not in compared] if part == "busy" else []
    name = ink.local(f"{title} {mark}", _superscript(mark) + rf"_{{\mathrm{{{title}}}}}")
    return [ink.equation(name, _replaced(formula, apart)), *(ink.equation(n, _replaced(argument, apart)) for argument, n in apart.items())]


def _compared(formula: Expr) -> list[Expr]:
    """The arguments of a formula's maxima and minima, each once."""
    calls = [a for monomial in formula.terms for a, _ in monomial if isinstance(a, Call) and a.function in ("max", "min")]
    return list(dict.fromkeys(a for call in calls for a in call.arguments))


def _superscript(mark: str) -> str:
    return f"t^{{{mark}}}" if mark else "t"


def _replaced(formula: Expr, apart: dict[Expr, str]) -> Expr:
    """The formula with symbols for the arguments of its maxima and minima."""
    total = ZERO
    for monomial, coefficient in formula.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            if isinstance(atom, Call) and all(a in apart for a in atom.arguments):
                atom = Call(atom.function, tuple(symbol(apart[a]) for a in atom.arguments))
            term = term * Expr({((atom, 1),): 1}) ** power
        total = total + term
    return total


def _block(step: Step, ink: Ink, name: str) -> Section:
    """A table with a row an operation: seconds and bound of its kernels, and its share of the block's kernels."""
    result = step.result
    found = block_kernels(result, name)
    whole = sum(k.seconds for k in found)
    rows = []
    for operation in dict.fromkeys(k.operation for k in found):
        kernels = [k for k in found if k.operation == operation]
        cells: list[Span | Spans] = []
        for column in _COLUMNS:
            inside = [k for k in kernels if _column(k.phase) == column]
            cells.append(seconds(sum(k.seconds for k in inside)) if inside else "")
            cells.append(max(inside, key=lambda k: k.seconds).bound if inside else "")
        rows.append(Row((Code(operation), *cells, percent(sum(k.seconds for k in kernels) / whole))))
    headings = [c for title in ("forward", "inputs", "weights") for c in (Column(title, 6, True), Column("bound", 4.8))]
    table = Table(
        spans(
            f"Seconds of the kernels of {in_words(name)} on one rank, forward and for the gradients of inputs and of weights, and what bounds each."
        ),
        (Column("operation", 13), *headings, Column("share", 5, True)),
        tuple(rows),
    )
    return Section(f"Seconds of {in_words(name)}", (table, Equations(tuple(_sums(step, ink, name)))), 2)


def _column(phase: str) -> str:
    return "forward" if phase == "forward" else "weight gradients" if phase == "wgrad" else "input gradients"


def _sums(step: Step, ink: Ink, name: str) -> list[Equation]:
    """t^f = sum over the table's column = value; where the host may be slower, the larger of the two."""
    book, numbers = step.result.derivation, step.result.numbers
    made, nothing = [], []
    for definition in (book[key] for key in _parts_of(name) if key in book):
        if not definition.expr:
            nothing.append(definition.symbol)
            continue
        host = _host(definition.expr)
        left, text = ink.names[definition.symbol], r"{\textstyle\sum_n} t_n"
        ending = f" = {in_units(human(numbers[definition.symbol], SECOND))}"
        rest: list[Equation] = []
        if host is not None:
            if width(rf"{left} = \max({text}, {ink.math(host).latex}){ending}") > LINE:
                host, rest = ink.taken_out(definition.symbol, host)
            text = rf"\max({text}, {ink.math(host).latex})"
        ink.defined[definition.symbol] = None
        made += [Equation(left, (text + ending,)), *rest]
    return [*made, ink.zeros(nothing)] if nothing else made


def _parts_of(name: str) -> list[Key]:
    """A block's seconds, and those of its being run again as it is recomputed in full."""
    return [of_block("t", name, again, phase=phase) for again in (False, True) for phase in PHASES]


def _host(formula: Expr) -> Expr | None:
    """The second argument where the formula is max(kernels, host)."""
    if len(formula.terms) != 1:
        return None
    ((monomial, _),) = formula.terms.items()
    atom = monomial[0][0]
    return atom.arguments[1] if isinstance(atom, Call) and atom.function == "max" and len(atom.arguments) == 2 else None


def _messages(step: Step, ink: Ink) -> Section:
    """What a second of a message is made of, then every block's messages by axis: their seconds and what stays exposed."""
    book, numbers = step.result.derivation, step.result.numbers
    network = book.of(scope="network")
    rows = []
    for name in step.result.lowered.blocks:
        for again, words in ((False, in_words(name)), (True, f"{in_words(name)}, run again")):
            for phase in ("forward", "backward"):
                keys = [of_block("c", name, again, phase=phase, axis=axis) for axis in step.axes]
                rows += [_message_row(step, ink, words, book[key]) for key in keys if key in book]
        own = [of_block("c", name, phase="backward", axis=axis, part="own") for axis in step.axes]
        rows += [_own_row(step, ink, in_words(name), book[key]) for key in own if key in book]
    columns = (Column("block", 9), Column("over", 5), Column("in", 6), Column("seconds", 16), Column("beside", 16), Column("exposed", 16))
    about = Paragraph(
        spans(
            "A collective of buffer S over n ranks takes S (n \u2013 1)/n times the seconds a byte of its ring, and its latency; an all-reduce the "
            "shorter of twice that and a tree; an all-to-all sends each part directly. The equations of one group stand for those of all.",
        )
    )
    if not network:
        return Section("Seconds of messages", (Paragraph(spans("Nothing is sent.")),), 2)
    spelled = _first_of_each(network)
    equations = [e for d in spelled for e in ink.spelled(d.symbol, d.expr, numbers[d.symbol], d.unit if d.unit == SECOND else None)]
    table = Table(
        spans("Messages of each block, one micro-batch, one rank: what they take, what runs beside them, and what of them that does not hide."),
        columns,
        tuple(rows),
    )
    return Section("Seconds of messages", (about, Equations(tuple(equations)), _network(step, ink, network), *([table] if rows else [])), 2)


def _first_of_each(network: list[Definition]) -> list[Definition]:
    """Definitions to spell out: every group's members, and one of each other form (the rest differ in the group alone)."""
    seen: dict[tuple[str, bool, str], Definition] = {}
    exchanges = carried_by("exchange")
    for d in network:
        alone = d.symbol if d.key.quantity == "mu" else ""
        seen.setdefault((d.key.quantity, d.key.operation in exchanges, alone), d)
    return list(seen.values())


def _network(step: Step, ink: Ink, network: list[Definition]) -> Table:
    """Values of all of them: seconds a byte (and the bandwidth that is), and latencies."""
    rows = []
    for d in network:
        if d.key.quantity == "mu":
            continue
        value = float(step.result.numbers[d.symbol])
        ink.defined[d.symbol] = None
        words = in_units(seconds(value)) if d.unit == SECOND else rf"{value * 1e12:.4g}\,\mathrm{{ps}}"
        rows.append(Row((Math(f"{ink.names[d.symbol]} = {words}"), d.meaning, rate(1 / value, "B/s") if d.unit != SECOND and value else "")))
    columns = (Column("value", 18), Column("meaning", 26), Column("bandwidth", 9, True))
    return Table(spans("Seconds a byte (in picoseconds), and latencies, of every group and collective."), columns, tuple(rows))


def _message_row(step: Step, ink: Ink, block: str, definition: Definition) -> Row:
    book, numbers = step.result.derivation, step.result.numbers
    exposed = book[definition.key._replace(quantity="e")]
    beside = [d.meaning for d in sorted(book.of("t"), key=lambda d: d.symbol) if d.symbol in exposed.expr.symbols()]
    cells = []
    for d in (definition, exposed):
        ink.defined[d.symbol] = None
        cells.append(Math(f"{ink.names[d.symbol]} = {in_units(seconds(numbers[d.symbol]))}"))
    hidden: Spans = joined([spans(text) for text in beside], "; ") if beside else spans("nothing")
    return Row((Code(block), Code(definition.key.axis), definition.key.phase, cells[0], hidden, cells[1]))


def _own_row(step: Step, ink: Ink, block: str, definition: Definition) -> Row:
    """What of a backward's messages is not for bringing back what forward had; its share of what shows is the same."""
    ink.defined[definition.symbol] = None
    words = in_units(seconds(step.result.numbers[definition.symbol]))
    return Row((Code(block), Code(definition.key.axis), "backward alone", Math(f"{ink.names[definition.symbol]} = {words}"), "", ""))


def _timed(step: Step, scope: Scope) -> list[Definition]:
    return [d for d in step.result.derivation.of(scope=scope) if "second" in str(d.unit)]


def _stages(step: Step, ink: Ink) -> Section:
    """Equations of stage i, with the values of the slowest, and a row of numbers for every stage."""
    slowest = {**step.result.numbers, **step.stage(step.slowest)}
    defined = [*_timed(step, "pipeline"), *_timed(step, "stage")]
    nothing = [d.symbol for d in defined if not d.expr]
    widest = max(width(ink.names[d.symbol]) for d in defined)
    equations: list[Equation] = []
    buckets = step.result.derivation.definitions.get("n_bucket")
    if buckets is not None:
        equations += ink.spelled("n_bucket", buckets.expr, slowest["n_bucket"], beside=widest)
    for d in defined:
        if d.expr:
            equations += ink.spelled(d.symbol, d.expr, slowest[d.symbol], SECOND, beside=widest)
    if nothing:
        equations.append(ink.zeros(nothing))
    found = stage_seconds(step)
    shown = [n for n in STAGE_TIMES if any(f[n] for f in found.values())]
    classes: dict[tuple[str, ...], list[int]] = {}
    for stages, f in found.items():
        classes.setdefault(tuple(seconds(f[k]) for k in shown), []).extend(stages)
    rows = tuple(Row((ranges(sorted(members)), *cells)) for cells, members in classes.items())
    columns = (Column(ink.symbol("i"), 9), *(Column(n.replace("_", " "), 10, True) for n in shown))
    said = f"Values are those of stage {step.slowest}, whose micro-batch takes longest." if step.depth > 1 else "There is one stage."
    table = Table(spans("Seconds of one rank of every stage: one micro-batch, and what follows the pipeline (tail)."), columns, rows)
    return Section("Seconds of a stage", (Paragraph(spans(said)), Equations(tuple(equations)), table), 2)


def _step(step: Step, ink: Ink) -> Section:
    """Equations of the step but those of the pipeline, which the schedule's chapter shows."""
    book, numbers = step.result.derivation.definitions, step.result.step_numbers
    equations: list[Equation] = []
    for d in book.values():
        if d.key.scope == "step" and d.key.part != RUN and d.unit != BYTE and d.symbol not in PIPELINE:
            # sums that cancel leave a rest of rounding
            value = float(numbers[d.symbol])
            value = value if abs(value) > ROUNDING * float(numbers["t_step"]) else 0.0
            equations += ink.spelled(d.symbol, d.expr, value, SECOND) if d.unit == SECOND else [_ratio(ink, d, value)]
    rows = [Row((p.name, seconds(p.seconds), percent(p.share))) for p in step.parts if p.seconds]
    rows.append(Row(("one step", seconds(numbers["t_step"]), percent(1.0)), "total"))
    table = Table(spans("Parts of a step."), (Column("part", 26), Column("time", 8, True), Column("share", 7, True)), tuple(rows))
    pairs = schedule_of(step.result.strategy).placement == "mirrored"
    said = Paragraph(
        spans(
            "A step is the pipeline and what follows it on the stage with the longest tail. Sums and maxima go over the ranks ",
            Math("i"),
            "; a bar says at which of them a value is taken: where the number below it is the largest. ",
            _MIRRORED if pairs else "",
            "Cost and energy are those of ",
            _TRILLION,
            " tokens.",
        )
    )
    return Section("Seconds of the step", (said, Equations(tuple(equations)), table), 2)


_MIRRORED = "A line above is the mean over a stage and its mirror image, which one rank holds and half of the micro-batches pass each. "
_TRILLION = Math(r"10^{12}")
_OF_TOKENS = {
    "tokens_per_second": ("r", "tokens/s"),
    "cost_per_trillion_tokens": ("c", "USD"),
    "energy_per_trillion_tokens": ("e", "MWh"),
}
PIPELINE = ("t_pipeline", "t_bubble", "exposed_pp")


def _ratio(ink: Ink, definition: Definition, value: float) -> Equation:
    """Of numbers that are no times; what is counted in tokens goes by a short name and with its unit."""
    name, unit = _OF_TOKENS.get(definition.symbol, ("", ""))
    if name:
        ink.names[definition.symbol] = rf"{name}_{{\mathrm{{tokens}}}}"
    made = ink.equation(definition.symbol, definition.expr)
    text = plain(value).replace(THIN, r"\,") + (rf"\,\mathrm{{{unit}}}" if unit else "")
    return Equation(made.left, (*made.lines[:-1], f"{made.lines[-1]} = {text}"))
