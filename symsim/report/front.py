"""The first page, which stands alone: what was asked, the answer, where time, memory and FLOPs go, what binds, and what would help."""

from __future__ import annotations

from symsim.algebra.quantity import BYTE, ELEMENT, FLOP
from symsim.algebra.typeset import entry, symbol_latex
from symsim.algebra.vocabulary import domain
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.evaluation.traffic import longest_calls
from symsim.inputs.system import quantities, symbol_values
from symsim.ir.collectives import COLLECTIVES
from symsim.report import choices, question, resources
from symsim.report.amounts import exact, four, human, percent, plain, rate, seconds, signed_percent, whole
from symsim.report.document import (
    Bar,
    Cell,
    Code,
    Column,
    Gauge,
    Gauges,
    Math,
    Paragraph,
    Picture,
    Ref,
    Row,
    Section,
    Span,
    Spans,
    Table,
    joined,
    spans,
)
from symsim.report.ink import Ink
from symsim.report.kernels import BOUNDS
from symsim.report.machine import meaning, symbol_of
from symsim.report.notation import room_for
from symsim.report.shown import most_shown
from symsim.report.step import MEMORY_PARTS, Step
from symsim.report.text_run import amount, duration
from symsim.report.totals import Totals

HEADING = "The answer"
_MOST = 5  # numbers of the machine that the step is asked about
_WAITS = 0.005  # share of a micro-batch from which waiting for launches is said
_LEAST = 5e-5


def section(result: Evaluation, step: Step | None, ink: Ink, totals: Totals) -> Section:
    """All but what other choices would do (`choices.tables`)."""
    asked = (Paragraph(question.model(result, ink)), Paragraph(question.strategy(result, ink)))
    if step is None:
        return Section(HEADING, (*asked, results(result, totals), totals.picture()))
    sizes = choices.sizes(step)
    opening = (*asked, answer(step, choices.largest(step, sizes)), _time(step), _memory(step), _flops(totals))
    return Section(HEADING, (*opening, binds(step, ink, totals), helps(step, ink)))


def results(result: Evaluation, totals: Totals) -> Table:
    """Counts at the given sizes."""
    number, most = result.numbers, [totals.stage_numbers(first) for _, first in totals.alike]
    rows = [("parameters", number["N"], ELEMENT)]
    if "N_active" in number:
        rows.append(("parameters a token uses", number["N_active"], ELEMENT))
    if "N_trained" in number:
        rows.append(("parameters that are trained", number["N_trained"], ELEMENT))
    rows += [("FLOPs forward, one micro-batch", number["F"], FLOP), ("FLOPs backward", number["G"], FLOP)]
    if number["R"]:
        rows.append(("FLOPs run again in backward", number["R"], FLOP))
    if "F_further" in number:
        rows.append(("FLOPs of further forwards, one micro-batch", number["F_further"], FLOP))
    rows += [
        ("parameters on one rank, at most", max(n["P_stage"] for n in most), ELEMENT),
        ("bytes one micro-batch keeps on one rank, at most", max(n["A_stage"] for n in most), BYTE),
    ]
    columns = (Column("result", 30), Column("about", 10, True), Column("exactly", 16, True))
    return Table(spans("Results at the given sizes."), columns, tuple(Row((t, human(whole(n), u), exact(whole(n)))) for t, n, u in rows))


def answer(step: Step, largest: choices.Sizes) -> Table:
    """What a reader asks first. largest: micro-batch that fits."""
    numbers, found = step.result.step_numbers, step.interval
    between = [] if found is None else [(f"{100 * found.level:.0f}\u2009% interval", f"{seconds(found.low)} to {seconds(found.high)}", "")]
    rate_of_all = step.number("tokens_per_second")
    rows: list[tuple[str, Cell, str]] = [
        ("one step", seconds(numbers["t_step"]), "=t_step"),
        *between,
        ("tokens a second", f"{plain(rate_of_all)}, {plain(rate_of_all / float(numbers['world']))} on each accelerator", "=tokens_per_second"),
        (f"MFU, of {rate(float(numbers['Phi']), 'FLOP/s')} an accelerator", percent(step.number("mfu")), "=mfu"),
        (_executed(step), percent(step.number("hfu")), "=hfu"),
        (f"peak memory, of {human(step.capacity, BYTE)}", human(step.peak(step.fullest), BYTE), "=M_peak"),
        ("verdict", step.verdict_in_brief, "Memory"),
        ("largest micro-batch that fits", largest.said, "" if largest.kept else "choices"),
        *_length(step),
    ]
    caption = f"The step on {step.system.name}. {step.above_peak}".rstrip()
    columns = (Column("result", 18), Column("value", 30), Column("formula", 6))
    return Table(spans(caption), columns, tuple(Row((what, said, _by(key))) for what, said, key in rows), key="answer")


def _executed(step: Step) -> str:
    """What HFU counts that MFU does not."""
    numbers = step.result.numbers
    if numbers["R"]:
        return "HFU, recomputation included"
    again = numbers["G"] > 2 * numbers["F"] and step.number("hfu") > step.number("mfu")
    return "HFU, with the scores that attention's backward computes again" if again else "HFU"


_PLACES = {"Memory": "section {}", "choices": "table {}"}
_TRILLION = 10**12


def _by(key: str) -> Spans:
    return spans(Ref(key, _PLACES.get(key, "{}"))) if key else ()


def _length(step: Step) -> list[tuple[str, Cell, str]]:
    """What the run takes, where one was asked for, and a trillion tokens, to which others are in proportion."""
    numbers, run = step.result.step_numbers, run_of(step.result)
    time = _TRILLION / step.number("tokens_per_second")
    spent = [duration(time), f"{plain(time / 3600 * float(numbers['world']))} accelerator-hours"]
    if (energy := "energy_per_trillion_tokens") in numbers:
        spent.append(f"{plain(step.number(energy))} MWh")
    price = "cost_per_trillion_tokens"
    unknown = spans("no price is known; ", Code("--set accelerator.price='2 USD/h'"), " gives one")
    cost: tuple[Cell, str] = (unknown, "")
    if price in numbers:
        hour = plain(float(step.result.values["c_chip"]) * 3600)
        cost = (f"{plain(step.number(price))} USD, at {hour} USD/h for an accelerator", f"={price}")
    spent.append("steps alone")
    rows: list[tuple[str, Cell, str]] = [("a trillion tokens", ", ".join(spent), "=tokens_per_second"), ("cost of them", *cost)]
    if run is not None:
        known = run.numbers
        paid = f", {plain(known['cost'])} USD" if "cost" in known else ""
        rows.append((f"the run, {amount(known['tokens'])} tokens", f"{duration(known['wall'])}, {plain(known['hours'])} accelerator-hours{paid}", ""))
    return rows


def _time(step: Step) -> Picture:
    parts = tuple((p.of, p.share, seconds(p.seconds)) for p in step.parts if p.seconds)
    said = spans("Where the time of a step goes; of messages, what nothing hides.")
    return Picture(said, (Bar("one step", seconds(step.number("t_step")), parts),), key="time")


def _memory(step: Step) -> Gauges:
    """The fullest rank against its accelerator."""
    scale = max(step.capacity, step.peak(step.fullest)) * 1.02
    parts = tuple((MEMORY_PARTS[p], n / scale, human(n, BYTE)) for p, n in step.memory(step.fullest).items() if n)
    label = f"stage {step.fullest}" if step.depth > 1 else "one rank"
    gauge = Gauge(label, human(step.peak(step.fullest), BYTE), parts)
    words = f"{human(step.capacity, BYTE)} of {step.system.name}"
    return Gauges(spans("Where the memory of the fullest rank goes, at its peak."), (gauge,), step.capacity / scale, words, key="room")


def _flops(totals: Totals) -> Picture:
    amounts = {m: f["forward"] + f["backward"] + f["recompute"] for m, f in totals.flops.items()}
    said = "Where the FLOPs of a micro-batch go: forward, backward and recomputed, the whole model."
    return Picture(spans(said), (totals.bar("matrix products", amounts, FLOP),), key="flops")


def binds(step: Step, ink: Ink, totals: Totals) -> Table:
    """What limits the step, its slowest stage, the kernels there, the messages, and the memory."""
    most, second, *_ = sorted(step.parts, key=lambda p: -p.seconds)
    shares = {b: sum(k.total for k in step.kernels if k.bound == b) for b in BOUNDS}
    kernels = sum(shares.values())
    longest = step.kernels[0]
    bound = ", ".join(f"{b} {percent(shares[b] / kernels)}" for b in sorted(shares, key=lambda b: -shares[b]))
    waits = step.launching / float(step.stage(step.slowest)["t_stage"])
    waiting = f"{percent(waits)} of a micro-batch there goes by waiting for the host to launch them. The rest: " if waits >= _WAITS else ""
    parts = step.memory(step.fullest)
    largest, *others = (f"{MEMORY_PARTS[p]} {human(n, BYTE)}" for p, n in sorted(parts.items(), key=lambda item: -item[1]) if n)
    held = ", ".join([f"{largest} ({percent(max(parts.values()) / step.peak(step.fullest))})", *others])
    rows: list[tuple[str, Spans]] = [
        ("the step", spans(resources.faster(step.system, step.elasticities))),
        ("its time", spans(f"{most.name}, {percent(most.share)}; then {second.name}, {percent(second.share)}.{_hidden(step)}")),
        ("its stages", spans(step.why_slowest)),
        (
            "its kernels",
            spans(
                waiting,
                f"{bound} of their time on that stage. The longest, ",
                Code(longest.operation),
                f" {longest.phase}, takes {percent(longest.total / kernels)} and is bound by {longest.bound}",
                Ref("kernels", " (table {})"),
                ".",
            ),
        ),
        *_messages(step, ink, totals),
        ("the memory", spans(f"{held}; the peak is reached in: {step.moment(step.fullest)}.")),
    ]
    return Table(spans("What binds."), (Column("", 6.2), Column("", 48.4)), tuple(Row(row) for row in rows), key="binds")


def _messages(step: Step, ink: Ink, totals: Totals) -> list[tuple[str, Spans]]:
    """Those that show most, and why; those with the most bytes, of a micro-batch and of a step, on the rank that has most."""
    said: list[Spans] = []
    for wanted, when in (("microbatch", " in {all} of a {phase}"), ("step", " a step")):
        of = [m for m in totals.messages[totals.busiest] if m[3] == wanted]
        if not of:
            continue
        phase, op, axis, _, group, calls, sent, received = max(of, key=lambda m: max(m[6:]))
        over: Span = ink.math(group) if group.symbols() else Code(axis)
        often = when.format(all=f"all {calls:,} calls" if calls > 1 else "the one call", phase=phase)
        said.append(spans(f"{COLLECTIVES[op].said} over ", over, f", {human(max(sent, received), BYTE)}{often}"))
    shown = most_shown(step)
    most = spans(*shown, *[" Most bytes: " if shown else "most bytes: "], *joined(said, "; "), ".")
    return [("its messages", most), ("its calls", _longest(step, ink))] if said else []


def _longest(step: Step, ink: Ink) -> Spans:
    """The longest single call of a micro-batch, and of what a step sends once."""
    said: list[Spans] = []
    for per, when in (("microbatch", "the longest of a micro-batch: "), ("step", "of a step: ")):
        if (found := longest_calls(step.result).get(per)) is not None:
            time, stage, message = found
            size = human(whole(message.larger_bytes.evaluate(step.stage(stage))), BYTE)
            over: Span = ink.math(message.group) if message.group.symbols() else Code(message.axis)
            where = f", on stage {stage}" if step.depth > 1 else ""
            phase = f" of a {message.phase}" if per == "microbatch" else ""
            said.append(spans(f"{when}{COLLECTIVES[message.op].said}{phase} over ", over, f", {size} in {seconds(time)}{where}"))
    return spans(*joined(said, "; "), ".")


def _hidden(step: Step) -> str:
    """Where kernels are counted that run beside longer messages, which then decide."""
    messages = sum(share for of, share in resources.shares(step.elasticities).items() if of[0] == resources.NETWORK)
    kernels = step.number("t_compute") / step.number("t_step")
    beside = kernels + messages - 1
    return " What runs beside messages that take longer is counted as kernels." if beside > _WAITS else ""


# what of a number of the machine is one more
_UNITS = {"byte/s": (1e9, " GB/s"), "FLOP/s": (1e12, " TFLOP/s"), "s": (1e-6, " us")}


def helps(step: Step, ink: Ink) -> Table:
    """By how much the step changes with a percent more of each number of the machine, and with other choices."""
    values = symbol_values(step.system, step.result.strategy)
    found = {n: e for n, e in step.elasticities.items() if n in values}
    # data sheets have these numbers: they are what is bought
    rates = [path for path, _ in quantities(step.system) if path[1] == "peak" or path[-1] in ("bandwidth", "memory_bandwidth")]
    bought = {symbol_of(step.system, path) for path in rates}
    asked = [n for n in found if n in bought]
    # there is no percent more of ranks that a node joins
    others = sorted((n for n in found if n not in asked and abs(found[n]) > _LEAST and domain(n) != "positive integer"), key=lambda n: -abs(found[n]))
    chosen = sorted([*asked, *others[: max(0, _MOST - len(asked))]], key=lambda n: -abs(found[n]))
    changes = {n: signed_percent(found[n] / 100, 3) for n in chosen}
    units = {n: _unit(n, meaning(step.system, n)) for n in chosen}
    slopes = {n: found[n] * float(step.result.step_numbers["t_step"]) / float(values[n]) for n in chosen}
    cells = ((_amount(values[n], units[n]), changes[n], _one_more(slopes[n], units[n])) for n in chosen)
    words = _once([meaning(step.system, n) for n in chosen])
    rows = tuple(Row((Math(symbol_latex(n, ink.names)), said, *own)) for n, said, own in zip(chosen, words, cells))
    symbols = room_for(rows, 5.5)
    numbers = (Column("value", 6.8, True), Column("1\u2009% more", 4, True), Column("one more", 4.2, True))
    columns = (Column("number", symbols, names=True), Column("is", 40.5 - symbols), *numbers)
    said: list[Span] = [
        "What would help: the change of the step for 1\u2009% more of a number, or for one more in its unit.",
        Ref("How far it may be off", " Section {} has how well they are known."),
    ]
    return Table(spans(*said), columns, rows, key="helps")


def _once(texts: list[str]) -> list[str]:
    """What a tier is called stands behind the first of its numbers."""
    ends = [text[text.find(" (") :] if text.endswith(")") else "" for text in texts]
    return [text.removesuffix(end) if end and end in ends[:k] else text for k, (text, end) in enumerate(zip(texts, ends))]


def _one_more(slope: float, unit: tuple[float, str]) -> str:
    """What one more of a unit changes the step by, to three digits. slope: seconds of the step for one of the number's own."""
    change = slope * unit[0]
    sign = "\u2212" if change < 0 else "+" if change else ""
    return f"{sign}{seconds(float(f'{abs(change):.3g}'))}" if unit[0] else ""


def _amount(value: object, unit: tuple[float, str]) -> str:
    return f"{four(float(value) / unit[0])}{unit[1]}" if unit[0] else plain(float(value))  # type: ignore[arg-type]


def _unit(name: str, said: str) -> tuple[float, str]:
    """Of what one more is spoken of, and its word: of a share a hundredth; 0 where a number has no unit. said: what it is."""
    share = domain(name) == "share" or said.startswith("share of")
    return _UNITS.get(entry(name).unit, (0.01, "\u2009%") if share else (0.0, ""))
