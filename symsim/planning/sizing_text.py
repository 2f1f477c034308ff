"""Sizes of clusters in 80 columns, and as a curve."""

from __future__ import annotations

from collections.abc import Sequence

from symsim.planning.sizing import Need, Size, chosen
from symsim.planning.text import certificate_sentence, choices_rows, choices_table, remarks
from symsim.report.chart import HEIGHT, WIDTH, Chart, chart
from symsim.report.charted import Charted
from symsim.report.columns import table, wrapped
from symsim.report.notebook import Grid, Shown
from symsim.report.shapes import svg
from symsim.report.text_run import amount, duration
from symsim.report.text_time import digits_of

_IN_A_RUN = (
    "A run has its steps, checkpoints (each weight and state once, at the best interval), failures and restarts, as 'symsim run' has them; no queue."
)


def sizing_text(sizes: Sequence[Size], need: Need) -> str:
    """The best strategy of every size, what it gives, and which size is the answer; those of which nothing fits are named."""
    many = len({s.system for s in sizes}) > 1
    lines = [wrapped(_of(sizes)), ""]
    fits = [s for s in sizes if s.plan.fits]
    if fits:
        named = "GPUs"
        lines.append(choices_table(f"Best of each size, by {fits[0].plan.goal}", named, [(_name(s, many), s.plan.best[0]) for s in fits]))
        lines += ["", _gives(fits, need, many)]
    for size in sizes:
        if not size.plan.fits or size.why:
            lines.append(wrapped(f"  {_name(size, many)}: {size.why}", hanging=4))
    if need.asks:
        lines += ["", *_answers(sizes, need, many), wrapped(_IN_A_RUN, "  ", hanging=2)]
    lines += ["", *(f"{_name(s, many)}: {s.plan.line(s.plan.best[0])}" for s in fits)]
    lines += [wrapped(line, hanging=2) for line in _remarks(fits, many)]
    lines += ["", "Certificate", *(wrapped(f"  {line}", hanging=4) for line in _certificates(sizes, many))]
    lines += [wrapped(f"  {_better(sizes)}", hanging=2), f"  {sum(s.plan.seconds for s in sizes):.1f} s"]
    return "\n".join(lines) + "\n"


def sizing_shown(sizes: Sequence[Size], need: Need) -> Shown:
    """The same for a notebook's cell."""
    many, fits = len({s.system for s in sizes}) > 1, [s for s in sizes if s.plan.fits]
    header, rows = choices_rows("GPUs", [(_name(s, many), s.plan.best[0]) for s in fits])
    best = Grid("Best of each size", tuple(header), tuple(map(tuple, rows)))
    gives = Grid(_title(need), *_gives_rows(fits, need, many))
    refused = (f"{_name(s, many)}: {s.why}" for s in sizes if not s.plan.fits or s.why)
    answers = (" ".join(line.split()) for line in _answers(sizes, need, many)) if need.asks else ()
    below = (*refused, *answers, *_remarks(fits, many), *_certificates(sizes, many), _better(sizes))
    return Shown(_of(sizes), (), (best, gives) if fits else (), below)


def _remarks(fits: Sequence[Size], many: bool) -> list[str]:
    """What should be known of the best of each; what is the same of several is said once, of all of them."""
    found: dict[str, list[str]] = {}
    for size in fits:
        for said in remarks(size.plan):
            found.setdefault(said, []).append(_name(size, many))
    return [f"{', '.join(names)}: {said}" for said, names in found.items()]


def _certificates(sizes: Sequence[Size], many: bool) -> list[str]:
    return [f"{_name(size, many)}: {certificate_sentence(size.plan)}." for size in sizes]


def _better(sizes: Sequence[Size]) -> str:
    looked = sum(s.plan.certificate.configurations for s in sizes)
    return f"No other of {looked:,} configurations is better on its size, under the assumptions of 'symsim eval'."


def _of(sizes: Sequence[Size]) -> str:
    first, on = sizes[0].plan.asked, ", ".join(dict.fromkeys(s.system for s in sizes))
    return f"{first.model.name} on {on}; {first.framework.title}; {first.batch:,} sequences of {first.seq_length:,} tokens a step"


def _name(size: Size, many: bool) -> str:
    return f"{size.system} {size.world:,}" if many else f"{size.world:,}"


def _gives(sizes: Sequence[Size], need: Need, many: bool) -> str:
    """Tokens a second, what they cost, and the run."""
    return table(_title(need), *_gives_rows(sizes, need, many))


def _gives_rows(sizes: Sequence[Size], need: Need, many: bool) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rows = []
    for size in sizes:
        number = size.plan.best[0].numbers
        rate = number["tokens_per_second"]
        cost = number.get("cost_per_trillion_tokens")
        row = [_name(size, many), f"{rate:,.0f}", digits_of(rate / size.world)]
        row.append(digits_of(cost) if cost is not None else "-")
        if size.run is not None:
            run = size.run
            row += [amount(run["tokens"]) if need.tokens is None else duration(run["days"] * 86400), f"{100 * run['goodput']:.1f} %"]
            row += [f"{amount(run['cost'])}" if "cost" in run else "-"]
        elif need.asks:
            row += ["-", "-", "-"]
        rows.append(row)
    header = ["GPUs", "tokens/s", "a GPU", "USD/T tokens"]
    if need.asks:
        header += ["tokens" if need.tokens is None else "takes", "goodput", "USD"]
    return tuple(header), tuple(map(tuple, rows))


def _title(need: Need) -> str:
    if not need.asks:
        return "What it gives"
    within = [f"in {need.days:g} days" if need.days is not None else "", f"for {amount(need.budget)} USD" if need.budget is not None else ""]
    told = " and ".join(w for w in within if w)
    return f"A run of {amount(need.tokens)} tokens{', ' + told if told else ''}" if need.tokens is not None else f"What can be trained {told}"


def _answers(sizes: Sequence[Size], need: Need, many: bool) -> list[str]:
    """The smallest and the cheapest that do it, or what trains the most."""
    found = chosen(sizes, need)
    if need.tokens is None:
        return [wrapped(_most(size, many), hanging=4) for size in found.values()] or ["  none of these sizes trains anything so"]
    lines = []
    for what, size in found.items():
        assert size.run is not None
        cost = f", {amount(size.run['cost'])} USD" if "cost" in size.run else ""
        lines.append(wrapped(f"  {what + ':':<9} {_name(size, many)}, {duration(size.run['days'] * 86400)}{cost}", hanging=4))
    return lines or ["  none of these sizes does it"]


def _most(size: Size, many: bool) -> str:
    assert size.run is not None
    each = size.run["tokens"] / float(size.plan.best[0].result.value("params.total"))
    took = duration(size.run["days"] * 86400)
    return f"  most: {_name(size, many)} trains {amount(size.run['tokens'])} tokens in {took} ({each:,.0f} a parameter)"


def curve(sizes: Sequence[Size]) -> tuple[str, Charted]:
    """Tokens a second on an accelerator over their number, a line a system, as SVG and as data. ValueError where nothing fits."""
    series: dict[str, list[tuple[float, float]]] = {}
    labels = {}
    for size in sorted(sizes, key=lambda s: s.world):
        if size.plan.fits:
            point = float(size.world), float(size.plan.best[0].numbers["tokens_per_second"]) / size.world
            series.setdefault(size.system, []).append(point)
            labels[point] = size.plan.best[0].text
    first = sizes[0].plan.asked
    title = f"{first.model.name}: the best strategy of each size, {first.batch:,} sequences of {first.seq_length:,} tokens a step"
    made = Chart(
        title, "accelerators", "tokens a second on each", series, (True, False), marks=sorted({s.world for s in sizes if s.plan.fits}), labels=labels
    )
    rows = tuple({"x": x, "y": y, "part": system, "amount": labels[x, y]} for system, points in series.items() for x, y in points)
    return svg(WIDTH, HEIGHT, title, chart(made)), Charted("line", rows, (made.across, made.up, "system"), (True, False))
