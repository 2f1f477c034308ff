"""A plan in 80 columns: the best strategies, what binds the first, the certificate, and what would gain more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from symsim.algebra.quantity import BYTE
from symsim.evaluation.above_peak import above_peak
from symsim.inputs.strategy import Strategy
from symsim.planning.difference import parts_table
from symsim.planning.knobs import Change
from symsim.planning.knobs_text import change_lines
from symsim.planning.space import choices_of
from symsim.report.amounts import THIN, human, percent, seconds
from symsim.report.columns import table, wrapped
from symsim.report.notebook import Grid, Shown
from symsim.report.noted import time_grid
from symsim.report.resources import faster
from symsim.report.step import Step, between

if TYPE_CHECKING:
    from symsim.planning.plan import Choice, Plan

_DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp")
_MOST_RULES = 6
# what a trillion tokens take, by the goal that it is
_A_TRILLION = {"cost_per_trillion_tokens": "USD/T", "energy_per_trillion_tokens": "MWh/T"}
# steps closer than this are as long
_SAME = 5e-4
_BEYOND = {
    "tokens_per_second": "above {} tokens a second",
    "cost_per_trillion_tokens": "below {} USD a trillion tokens",
    "energy_per_trillion_tokens": "below {} MWh a trillion tokens",
    "memory.peak": "below {}",
}


def plan_text(plan: Plan, changes: Callable[[], Sequence[Change]] = tuple) -> str:
    """changes: what a single option more would do to the best (`knobs.py`), asked for last."""
    first = plan.best[0]
    lines = [
        _of(plan),
        wrapped(_batch(plan)),
        "",
        choices_table(wrapped(_best(plan)), "", _placed(plan), plan.goal),
        f"first: {plan.line(first)}",
        *(wrapped(said, hanging=2) for said in (*_unwritten(plan), *_whole_vocabulary(plan))),
        "",
        *_where(first),
        *(wrapped(f"  {said}", hanging=4) for said in _above_peak(plan)),
        "",
        _certificate(plan),
    ]
    if found := changes():
        lines += ["", "One option more, outside this space", *change_lines(found)]
    return "\n".join(lines) + "\n"


def plan_shown(plan: Plan) -> Shown:
    """The same for a notebook's cell."""
    first = plan.best[0]
    header, rows = choices_rows("", _placed(plan), plan.goal)
    best = Grid(_best(plan), tuple(header), tuple(map(tuple, rows)))
    proof = Grid("Certificate", ("", ""), tuple((row[0], row[1]) for row in _certificate_rows(plan)))
    below = (f"first: {plan.line(first)}", *remarks(plan), _certificate_words(plan), _took(plan))
    return Shown(_of(plan), (_batch(plan),), (best, time_grid(Step(first.result)), proof), below)


def remarks(plan: Plan) -> list[str]:
    """What should be known of the best besides its numbers."""
    return [*_unwritten(plan), *_whole_vocabulary(plan), *_above_peak(plan)]


def _of(plan: Plan) -> str:
    return f"{plan.asked.model.name} on {plan.asked.world:,} of {plan.asked.system}{_title(plan.best[0])}"


def _batch(plan: Plan) -> str:
    asked = plan.asked
    return f"{asked.framework.title}; {asked.batch:,} sequences of {asked.seq_length:,} tokens a step ({asked.batch * asked.seq_length:,} tokens)"


def _placed(plan: Plan) -> list[tuple[str, Choice]]:
    return [(str(place), choice) for place, choice in enumerate(plan.best, 1)]


def _title(first: Choice) -> str:
    system = first.known.system
    return f": {system.title}" if system is not None and system.title else ""


def _best(plan: Plan) -> str:
    return f"Best of each kind, by {plan.goal}" if plan.fits else _no_fit(plan)


def choices_table(title: str, named: str, choices: Sequence[tuple[str, Choice]], goal: str = "") -> str:
    """A line a strategy: what it is called in the column `named`, its degrees, its numbers; where the goal is what a token takes, that in place of
    tokens a second."""
    header, rows = choices_rows(named, choices, goal)
    return table(title, header, rows)


def choices_rows(named: str, choices: Sequence[tuple[str, Choice]], goal: str = "") -> tuple[list[str], list[list[str]]]:
    rate, unit = (goal, _A_TRILLION[goal]) if goal in _A_TRILLION else ("tokens_per_second", "tokens/s")
    degrees = [n for n in _DEGREES if any(getattr(c.known.strategy, n) not in (1, None) for _, c in choices)]
    degrees += ["zero"] if len({c.known.strategy.zero for _, c in choices}) > 1 else []
    rows = []
    for place, choice in choices:
        strategy, value = choice.known.strategy, choice.known.value
        rows.append(
            [
                place,
                *(_degree(strategy, n) for n in degrees),
                str(strategy.micro_batch_size),
                _recompute(choice),
                seconds(float(value("time.step"))),
                _four_digits(float(value(rate))) if goal in _A_TRILLION else f"{value(rate):,.0f}",
                percent(float(value("mfu"))).replace("\u2009", " "),
                human(value("memory.peak"), BYTE),
            ]
        )
    return [named, *degrees, "b", "recompute", "step", unit, "MFU", "memory"], rows


def _degree(strategy: Strategy, name: str) -> str:
    value = getattr(strategy, name)
    return str(strategy.tp if value is None else value)


def _recompute(choice: Choice) -> str:
    strategy = choice.known.strategy
    return "+".join(strategy.recompute_modules) if strategy.recompute == "selective" else strategy.recompute


def _no_fit(plan: Plan) -> str:
    share = "" if plan.share == 1 else f"{plan.share:.0%} of "
    least, beside = plan.best[0].known, ""
    if float(least.value("memory.peak")) <= plan.share * float(least.value("memory.capacity")):
        beside = f" with {human(int(least.value('memory.reserve')), BYTE)} free beside it, as should be"
    said = f"Nothing fits in {share}{human(int(least.value('memory.capacity')), BYTE)}{beside}; the least memory of each kind"
    more = f"{plan.smallest:,} accelerators are enough" if plan.smallest is not None else f"nor on up to {plan.furthest:,} accelerators"
    return f"{said} ({more})"


def _where(first: Choice) -> list[str]:
    lines = [parts_table("Where the time of its step goes", first.result)]
    lines.append(wrapped(f"  {faster(first.system, first.elasticities)}".replace(THIN, " "), hanging=2))
    if first.result.interval is not None:
        lines.append(wrapped(f"  {between(first.result.interval)}", hanging=4))
    return lines


def _unwritten(plan: Plan) -> list[str]:
    """What no file starts of it, or says of it, and what the file takes instead."""
    if plan.unwritten:
        return [f"no file starts it: {plan.unwritten}"]
    if not plan.written.unsaid:
        return []
    unsaid = "; ".join(f"{one.said} (it says {one.instead})" for one in plan.written.unsaid)
    said = f"{plan.asked.framework.title}'s file cannot say all of it: {unsaid}"
    if plan.written.result is not None:
        here, there = (float(found.value("time.step")) for found in (plan.best[0].known, plan.written.result))
        apart = abs(there / here - 1)
        same = "as long" if apart < _SAME else f"{percent(apart)} {'less' if there < here else 'more'}".replace(THIN, " ")
        said += f". Read back, its step takes {seconds(there)}, {same}"
    return [said]


def _whole_vocabulary(plan: Plan) -> list[str]:
    """That no tensor ranks share the vocabulary, where a multiple of it would open them: of 128 for each of eight ranks, as Megatron-LM pads it."""
    rows, ranks = plan.asked.model.vocab_size, 8
    degrees = [d for choice in choices_of(plan.asked) if choice.names == ("tp",) for (d,) in choice.rows if d > 1]
    whole = -(-rows // (128 * ranks)) * 128 * ranks
    if "tp" in plan.asked.fixed or any(rows % d == 0 for d in degrees) or all(whole % d for d in degrees):
        return []
    return [f"no tp above 1 divides vocab_size={rows}: a padded one opens such strategies, as of --set vocab_size={whole}"]


def _above_peak(plan: Plan) -> list[str]:
    """Of the first of the best whose utilisation no accelerator has, which convention counts more than is computed."""
    return [above_peak(one.result) for one in plan.best if max(float(one.known.value(n)) for n in ("mfu", "hfu")) > 1][:1]


def _of_memory(plan: Plan) -> bool:
    """Whether what is best is what needs the least."""
    return plan.goal == "memory.peak" or not plan.fits


def _certificate(plan: Plan) -> str:
    rows = _certificate_rows(plan)
    wide = [max(len(r[c]) for r in rows) for c in range(2)]
    made = "\n".join(["Certificate", *(f"  {what:<{wide[0]}}  {count:>{wide[1]}}" for what, count in rows)])
    return "\n".join([made, wrapped(_certificate_words(plan), "  ", hanging=2), f"  {_took(plan)}"])


def _certificate_rows(plan: Plan) -> list[list[str]]:
    found = plan.certificate
    rows = [["configurations of the space", f"{found.configurations:,}"]]
    worst = sorted(found.refused, key=lambda rule: -found.refused[rule])
    rows += [[f"refused by {rule}", f"{found.refused[rule]:,}"] for rule in worst[:_MOST_RULES]]
    if len(worst) > _MOST_RULES:
        rows.append([f"refused by {len(worst) - _MOST_RULES} other rules", f"{sum(found.refused[r] for r in worst[_MOST_RULES:]):,}"])
    rows.append([f"excluded, {'more memory' if _of_memory(plan) else 'slower'} at best", f"{found.slower:,}"])
    rows.append(["excluded, too large at best", f"{found.larger:,}"])
    return [*rows, ["evaluated", f"{found.evaluated:,}"]]


def _certificate_words(plan: Plan) -> str:
    found = plan.certificate
    fits = " that fits" if plan.fits else ""
    said = f"No other strategy of this space{fits} is better, under the assumptions of 'symsim eval'."
    if found.bound is not None:
        those = "need more memory" if _of_memory(plan) else "are slower"
        said += f" None of those that {those} at best is {_beyond(plan, found.bound)}."
    return said + _lead(plan)


def _beyond(plan: Plan, bound: float) -> str:
    digits = human(math.floor(bound), BYTE) if _of_memory(plan) else _digits(bound)
    return _BEYOND["memory.peak" if _of_memory(plan) else plan.goal].format(digits)


def certificate_sentence(plan: Plan) -> str:
    """The whole certificate in a sentence: for several plans, one below the other."""
    found, most = plan.certificate, _MOST_RULES // 2
    worst = sorted(found.refused, key=lambda rule: -found.refused[rule])
    by = [f"{rule} {found.refused[rule]:,}" for rule in worst[:most]]
    by += [f"other rules {sum(found.refused[rule] for rule in worst[most:]):,}"] if len(worst) > most else []
    refused = f"{sum(found.refused.values()):,} are refused" + (f" ({', '.join(by)})" if by else "")
    of_bounds = f"bounds exclude {found.slower:,} as {'larger' if _of_memory(plan) else 'slower'} and {found.larger:,} as too large"
    said = f"of {found.configurations:,} configurations {refused}, {of_bounds}, {found.evaluated:,} are evaluated"
    if found.bound is None:
        return said
    return f"{said}; none of those excluded as {'larger' if _of_memory(plan) else 'slower'} is {_beyond(plan, found.bound)}"


def _digits(value: float) -> str:
    """Six digits, thousands apart by commas.

    >>> _digits(1632504.5), _digits(129.46721)
    ('1,632,500', '129.467')
    """
    return f"{float(f'{value:.6g}'):,.0f}" if value >= 1e5 else f"{value:,.6g}"


def _four_digits(value: float) -> str:
    """Thousands apart by commas.

    >>> _four_digits(72607.5), _four_digits(17.2289)
    ('72,610', '17.23')
    """
    return f"{float(f'{value:.4g}'):,.10g}"


def _took(plan: Plan) -> str:
    return f"{plan.certificate.derivations:,} derivation{'s' if plan.certificate.derivations > 1 else ''}, {plan.seconds:.1f} s"


def _lead(plan: Plan) -> str:
    """How far the next kind is behind, beside how far the formulas may be off."""
    if _of_memory(plan) or len(plan.best) < 2 or plan.best[0].result.interval is None:
        return ""
    first, second = (float(c.known.value("time.step")) for c in plan.best[:2])
    within = plan.best[0].result.interval
    behind, half = second / first - 1, (within.high - within.low) / (2 * first)
    if behind < _SAME:
        return " The second kind's step is as long."
    said = "less than" if behind < half else "more than"
    return f" The second kind's step is {percent(behind)} longer, {said} the {percent(half)} by which a step may be off.".replace("\u2009", " ")
