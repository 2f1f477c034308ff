"""What `symsim run` prints: how long a run takes, what it costs, where its time goes, and the numbers that it stands on."""

from __future__ import annotations

from symsim.algebra.quantity import BYTE
from symsim.algebra.vocabulary import SYMBOLS
from symsim.cost.run import QUANTILES
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import Run
from symsim.inputs.lengths import row_tokens
from symsim.inputs.run import in_use
from symsim.report.amounts import human, plain, rate, seconds
from symsim.report.columns import stroke, table, wrapped
from symsim.report.step import Step

_BAR = 20
_NAMES = {"steps": "steps that count", "evaluation": "evaluation", "checkpoints": "waiting for checkpoints", "failures": "failures"}
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def run_table(run: Run, heading: str) -> str:
    """The run in 80 columns, below what it is of."""
    return "\n\n".join(part for part in (heading, *blocks(run)) if part) + "\n"


def blocks(run: Run) -> list[str]:
    """The answer first, then where it comes from; each a block of lines of at most 80 characters."""
    return [_answer(run), _where(run), _checkpoints(run), _steps(run), _numbers(run)]


def duration(value: float) -> str:
    """'118 d 6 h', '4 min 10 s': two units, of which the second is left out where it is nothing; below a minute '2.843 s'."""
    if value < 60:
        return seconds(value)
    level = next(n for n, (size, _) in enumerate(_UNITS) if value >= size)
    (size, unit), (smaller, below) = _UNITS[level : level + 2]
    if level and round(value / smaller) * smaller == _UNITS[level - 1][0]:
        return f"1 {_UNITS[level - 1][1]}"
    whole, rest = divmod(round(value / smaller), round(size / smaller))
    return f"{whole:,} {unit} {rest} {below}" if rest else f"{whole:,} {unit}"


def amount(value: float) -> str:
    """Four digits, with commas or the words of large numbers: '929,800', '15.6 trillion'."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.4g} {word}"
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 1000 else plain(value)


def _answer(run: Run) -> str:
    known, at = run.numbers, run.at
    strategy = at.strategy
    each = row_tokens(strategy) * strategy.micro_batch_size * strategy.microbatches * strategy.dp
    rows = [
        ("tokens", amount(known["tokens"]), f"{known['steps']:,.0f} steps of {round(each):,} tokens{', the batch once grown' * ('more' in known)}"),
        ("takes", duration(known["wall"]), _likely(run)),
    ]
    if run.start is not None and run.end is not None:
        rows.append(("ends", run.end.isoformat(), f"begun on {run.start.isoformat()}"))
    rows.append(("goodput", f"{100 * known['goodput']:.1f} %", "of the time goes into steps that count"))
    rows.append(("accelerators", f"{amount(known['hours'])} h", f"{int(at.strategy.world_size):,} of them"))
    if "cost" in known:
        rows.append(("cost", f"{amount(known['cost'])} USD", f"at {plain(float(at.values['c_chip']) * 3600)} USD/h for an accelerator"))
    if "energy" in known:
        rows.append(("energy", _thousandth(known["energy"], "MWh", "kWh"), "of accelerators at full power, their nodes and the building"))
        rows.append(("CO2", _thousandth(known["carbon"] / 1000, "t", "kg"), "of the grid, by its average"))
    step = Step(at)
    rows.append(("peak memory", human(step.peak(step.fullest), BYTE), f"of {human(step.capacity, BYTE)} a rank: {step.verdict_in_brief}"))
    wide = [max(len(row[c]) for row in rows) for c in range(2)]
    lines = [wrapped(f"  {name:<{wide[0]}}  {value:>{wide[1]}}  {said}".rstrip(), hanging=6 + sum(wide)) for name, value, said in rows]
    return "\n".join(["Run", *lines])


def _thousandth(number: float, unit: str, smaller: str) -> str:
    """What a run on a few accelerators takes is below one of the usual unit."""
    return f"{amount(number)} {unit}" if number >= 1 else f"{amount(1000 * number)} {smaller}"


def _likely(run: Run) -> str:
    if run.days_between is None or run.interval is None:
        return "the time that was given, in whole steps"
    low, high = (duration(days * 86400) for days in run.days_between)
    return f"between {low} and {high} in {100 * run.interval.level:.0f} % of cases"


def _where(run: Run) -> str:
    whole, parts = run.numbers["wall"], {name: value for name, value in run.parts.items() if value}
    most = max(parts.values())
    rows = [[_NAMES[name], duration(n), f"{100 * n / whole:.1f} %", stroke(n / most, _BAR).ljust(_BAR)] for name, n in parts.items()]
    rows.append(["the run", duration(whole), "100.0 %", " " * _BAR])
    return table("Where the time of the run goes", ["", "time", "share", ""], rows)


def _checkpoints(run: Run) -> str:
    known, values = run.numbers, run.at.overrides
    told = "t_save" in values or "save_interval" in values
    how = "while training goes on" if run.at.values["async_save"] else "while training waits"
    rows = [
        ["a checkpoint", human(round(known["checkpoint"]), BYTE), "trained weights and optimizer states, each once"],
        ["writing it", duration(known["write"]), how],
        ["training waits", duration(known["blocked"]), f"{amount(known['saves'])} times"],
        ["interval", duration(known["interval"]), "as given" if told else "the best (Daly 2006)"],
        ["best interval", duration(known["best"]), f"in first order {duration(known['young'])} (Young 1974)"],
        ["a failure every", duration(known["between"]), f"{amount(known['failures'])} in all"],
        ["a failure costs", duration(known["lost"]), "restart, reading back, and what is done again"],
    ]
    rows = [row for row in rows if told or row[0] != "best interval"]
    wide = [max(len(row[c]) for row in rows) for c in range(2)]
    return "\n".join(["Checkpoints and failures", *(f"  {n:<{wide[0]}}  {v:>{wide[1]}}  {said}" for n, v, said in rows)])


def _steps(run: Run) -> str:
    """Quantiles of a step, where ranks take different times; the ramp, where there is one."""
    known, rows = run.numbers, []
    if "p50" in known:
        rows.append(["if all ranks were equal", seconds(float(run.at.step_numbers["t_step"]))])
        rows.append(["on average, with jitter", seconds(known["step"])])
        rows += [[f"not exceeded by {q} of 100", seconds(known[f"p{q}"])] for q in QUANTILES]
    if "more" in known:
        rows.append(["steps more as the batch grows", amount(known["more"])])
    if "evaluation" in known:
        rows.append(["an evaluation", duration(known["evaluation"])])
    wide = [max((len(row[c]) for row in rows), default=0) for c in range(2)]
    return "\n".join(["A step of the run", *(f"  {n:<{wide[0]}}  {v:>{wide[1]}}" for n, v in rows)]) if rows else ""


def _numbers(run: Run) -> str:
    """Every number that is assumed or was given, with its source."""
    lines = ["Numbers of the run (--set NAME=VALUE)"]
    for name, row in in_use(run.at.overrides):
        given = name in run.at.overrides
        source = "given" if given else row.source
        lines.append(wrapped(f"{name}={said(run.at, name)}: {SYMBOLS[name].meaning} ({source})", "  ", hanging=4))
    return "\n".join(lines)


def said(at: Evaluation, name: str) -> str:
    """A number of the run with its unit."""
    value, unit = at.values[name], SYMBOLS[name].unit
    if unit == "s":
        return duration(float(value))
    if unit == "byte/s":
        return rate(float(value), "B/s")
    return f"{int(value):,}" if value == int(value) else f"{float(value):g}{'' if unit == '1' else ' ' + unit}"
