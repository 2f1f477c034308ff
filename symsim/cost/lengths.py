"""What a step waits for because rows differ: documents of several lengths make some rows longer than others, or their attention.

A row of s tokens is so many documents that Var(sum of u^2) = s Var(u^2 - r u) / E[u], with r = E[u^2]/E[u] (the variance of a
renewal reward process: Ross, Stochastic Processes, sec. 3.6), so the attention of a micro-batch of b rows deviates by

    kappa = sqrt(u k_u / (b s))         of its mean; k_u = Var(u^2 - r u) / (E[u] r)^2, for lognormal lengths q^4 - 2 q^2 + q, q = 1 + q_u

By how many deviations xi the longest of n is above the mean follows from that of the largest of n normal numbers, by a polynomial of what the
lengths of documents make of it (`symsim/cost/largest.py`). A pipeline that runs all forwards first waits for the longest of a replica's micro-
batches as often as it waits at all (equal machines that all jobs pass: Pinedo, Scheduling, sec. 6.1). Any other goes at the pace of the longest of
those that are under way (`symsim/pipeline/paces.py`), each of which it waits for as often, and fills and drains with the longest of a few: of the
more, the more they differ. Data-parallel ranks wait for one another: every micro-batch where they gather parameters or exchange tokens, else at the
end of the step, when all of it has been added up. Together that is so many deviations of every micro-batch that a step goes through: its rows are
taken as that much longer, and all seconds of a micro-batch that follow from the lengths of rows are defined once more, with the longer ones in
their place. What does not grow with them (a floor of a kernel, a message of parameters) is then in the time of both, and a message beside a longer
kernel is hidden by more. A pipeline that empties k times a step waits so for m/k micro-batches at a time, and so do ranks that wait at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, minimum, sqrt, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers_of_model, of_block, of_step
from symsim.algebra.quantity import NONE, SECOND, Quantity
from symsim.cost.count import label
from symsim.cost.largest import (
    FARTHEST,
    OF_ROWS,
    SOURCE,
    expected_largest,
    expected_longest,
    variance_of_longest,
)
from symsim.inputs.lengths import documents
from symsim.lowering.lowered import Lowered
from symsim.pipeline.paces import PACES, Pace
from symsim.pipeline.schedules import schedule_of

# what a bubble follows from besides seconds
_SIZES = frozenset(("pp", "vpp", "m", "group"))
# moments of lengths inside windows and chunks: what they stand in is the same for all rows
_INSIDE = frozenset(("u_w", "u_ww", "u_r", "u_rr"))
_SAID = {
    "together": "replicas that wait every micro-batch",
    "apart": "groups of replicas",
    "microbatches": "micro-batches of a step, of replicas that wait for one another",
    "paced": "micro-batches under way at once, of replicas that wait for one another",
    "filling": "micro-batches that a pipeline may fill or drain with, of replicas that wait for one another",
}
REPLAYED = "orders replayed with micro-batches that differ: tests/draws/pipelines.py"
# a backward is two thirds of a micro-batch; most of what a pipeline fills and drains with is of the longest of those that it may
_DRAINING = Fraction(2, 3)
OF_SUM = "Stein's kernel of a gamma distribution: Stein, Approximate Computation of Expectations, 1986, lecture VI"


@dataclass(frozen=True)
class Group:
    """Micro-batches, or steps, of which the longest is waited for: the mean of the largest of as many normal numbers, and of twice and four times as
    many."""

    mean: Expr
    further: tuple[Expr, ...]


def rows_differ(lowered: Lowered) -> bool:
    lengths = documents(lowered.profile.strategy)
    return lengths is not None and lengths.varied and lowered.profile.assumptions["row_balance"] == "drawn"


def longest_rows(book: Derivation, lowered: Lowered) -> Expr:
    """Defines kappa_*, xi_*, the lengths of the longest rows, all that takes longer for them, and e_lengths, the seconds of a step that others wait
    for them: its symbol, or zero."""
    if not rows_differ(lowered):
        return ZERO
    lengths = _longer(book, lowered)
    slow = of_step("t", "slow")
    # beside a longer kernel messages of two kinds may be hidden, by more together than it takes longer
    longer = maximum(0, defined_at(book, slow, lengths) - slow.expr)
    return book.define(
        of_step("exposed", axis="lengths"),
        Quantity((symbol("m") + _waits(lowered)) * longer, SECOND),
        "waiting for the longest rows",
        unit=SECOND,
        latex=rf"\epsilon^{{{label('lengths')}}}",
        assumptions=("row_balance",),
    ).expr


def _longer(book: Derivation, lowered: Lowered) -> dict[str, Expr]:
    """Defines the lengths of the rows that a step waits for, at most whole ones: by the symbols of the mean's."""
    u, s, strategy = symbol("u"), symbol("s"), lowered.profile.strategy

    def define(name: str, value: Expr, meaning: str, latex: str, source: str = "") -> Expr:
        return book.define(Key(name, "sizes"), Quantity(value), meaning, unit=NONE, latex=latex, source=source).expr

    def longest(name: str, value: Expr, meaning: str) -> Expr:
        key = Key(name, "sizes", longest=True)
        return book.define(key, Quantity(value), meaning, unit=NONE, latex=rf"\tilde{{{name}}}", assumptions=("row_balance",)).expr

    tokens, groups = ONE, {}
    if strategy.padding_free or strategy.mlp_padding_free:
        meaning = "standard deviation of a micro-batch's tokens, over their mean"
        deviation = define("kappa_tokens", sqrt(symbol("q_u") / symbol("b")), meaning, r"\sigma_T")
        groups = _groups(book, lowered)
        tokens = 1 + deviation * _deviations(book, lowered, groups, "tokens")
    if strategy.mlp_padding_free:
        return {"u": longest("u", minimum(u * tokens, s), "mean length of documents in the longest rows")}
    renewal = "" if strategy.padding_free else "renewal reward process: Ross, Stochastic Processes, sec. 3.6"
    meaning = "standard deviation of a micro-batch's attention work, over its mean"
    rows = symbol("b") if strategy.padding_free else symbol("b") * s / u
    deviation = define("kappa_rows", sqrt(symbol("k_u") / rows), meaning, r"\sigma_A", renewal)
    whole = symbol("s_max") if strategy.padding_free else s
    most = whole / (1 + symbol("q_u"))
    if not groups and _pace(lowered):
        _of_seconds(book, lowered, minimum(u * (1 + deviation), most))
    groups = groups or _groups(book, lowered)
    attention = 1 + deviation * _deviations(book, lowered, groups, "rows")
    keys = minimum(u * attention / tokens, most)
    found = {"u": longest("u", keys, "mean length of documents whose attention has as many keys a token as in the longest rows")}
    return found | ({"s": longest("s", minimum(s * tokens, whole), "tokens of the longest rows")} if strategy.padding_free else {})


def defined_at(book: Derivation, target: Key, lengths: dict[str, Expr]) -> Expr:
    """Defines what a definition is at other lengths, with all that it stands on and that follows from them: its symbol."""
    made = dict(lengths)
    for name in [d.key for d in book.formula(target.text).definitions]:
        known = book[name]
        put = made if _INSIDE.isdisjoint(known.expr.symbols()) else {n: e for n, e in made.items() if n != "u"}
        there = known.expr.substitute(put)
        if there != known.expr:
            key = known.key._replace(longest=True)
            book.keep(replace(known, key=key, expr=there, meaning=f"{known.meaning}, of the longest rows", latex=rf"\tilde{{{known.latex}}}"))
            made[known.symbol] = key.expr
    return made.get(target.text, target.expr)


def _of_seconds(book: Derivation, lowered: Lowered, keys: Expr) -> None:
    """Defines by how much longer the layers of a micro-batch take where its documents are of the length `keys`, one deviation more than they are."""
    mean, longer = ZERO, ZERO
    for kind in lowered.profile.model.kind_names():
        for phase in ("forward", "inputs", "weights"):
            timed, made = of_block("t", kind, phase=phase), {"u": keys}
            for known in book.formula(timed.text).definitions:
                there = known.expr.substitute(made) if _INSIDE.isdisjoint(known.expr.symbols()) else known.expr
                if there != known.expr:
                    made[known.symbol] = there
            mean += layers_of_model(kind).expr * timed.expr
            longer += layers_of_model(kind).expr * made.get(timed.text, timed.expr)
    meaning = "standard deviation of the seconds of a micro-batch's layers, over their mean"
    book.define(Key("kappa_seconds", "sizes"), Quantity(longer / mean - 1), meaning, unit=NONE, latex=r"\sigma_t")


def _together(lowered: Lowered) -> Expr:
    """Replicas that wait for one another every micro-batch: all that gather parameters or reduce gradients, or those that share experts."""
    mesh, strategy = lowered.mesh, lowered.profile.strategy
    if strategy.zero >= 2:
        return mesh.degree("dp")
    if lowered.profile.model.moe is None or not mesh.active("ep"):
        return ONE
    inside = mesh.degree("tp") * mesh.group(mesh.context_axes)
    return minimum(mesh.degree("dp"), maximum(1, mesh.degree("ep") * mesh.degree("etp") / inside))


def _groups(book: Derivation, lowered: Lowered) -> dict[str, Group]:
    """What waits for the longest of what, with the mean of the largest of as many normal numbers, which it defines."""
    m, replicas, together = symbol("m") / lowered.profile.strategy.pipeline_flushes, lowered.mesh.degree("dp"), _together(lowered)
    waits, pace, found = _of_equal_stages(book, lowered), _pace(lowered), {}
    numbers = {"microbatches": m * together if waits else ONE}
    if pace:
        numbers = {"paced": together * pace[1], "filling": together * _filling(book, m, lowered)}
    for part, n in {"together": together, "apart": replicas / together, **numbers}.items():
        if n == ONE:
            continue

        def define(name: str, often: str, of: Expr, latex: str, most: Fraction = FARTHEST[-1], part: str = part) -> Expr:
            meaning = f"mean of the largest of {often} normal numbers as there are {_SAID[part]}"
            latex = rf"{latex}_{{{label(part)}}}"
            value = Quantity(minimum(expected_largest(of), most))
            return book.define(Key(name, "sizes", part=part), value, meaning, unit=NONE, latex=latex, source=SOURCE).expr

        found[part] = Group(define("xi", "as many", n, r"\xi"), ())
        # of steps as a whole nobody asks how much the longest varies, nor of others where all wait for one another
        if part != "apart" and replicas / together != ONE:
            twice = define("xi_twice", "twice as many", 2 * n, r"\xi^{(2)}", FARTHEST[1])
            found[part] = replace(found[part], further=(twice, define("xi_fourfold", "four times as many", 4 * n, r"\xi^{(4)}")))
    return found


def _deviations(book: Derivation, lowered: Lowered, groups: dict[str, Group], what: str) -> Expr:
    """Defines by how many deviations the micro-batches that a step goes through are longer, in the mean over them: in tokens, or in the attention
    work of rows."""
    often = lowered.profile.strategy.pipeline_flushes
    m, b, waits = symbol("m") / often, symbol("b"), _waits(lowered) / often
    rho = "rho_t" if what == "tokens" else "rho_u"
    of = "of a micro-batch's tokens" if what == "tokens" else "of a micro-batch's attention work"

    def define(name: str, part: str, value: Expr, meaning: str, latex: str, source: str = OF_ROWS) -> Expr:
        key = Key(name, "sizes", part=f"{what}_{part}" if part else what)
        index = f"{label(what)},{label(part)}" if part else label(what)
        return book.define(key, Quantity(value), meaning, unit=NONE, latex=rf"{latex}_{{{index}}}", source=source).expr

    def largest(part: str, added: Expr) -> tuple[Expr, Expr]:
        """Mean and variance; of a single one 0 and 1."""
        if part not in groups:
            return ZERO, ONE
        group = groups[part]
        said = f"deviations {of} by which the longest of {_SAID[part]} is longer"
        mean = define("xi", part, expected_longest(group.mean, added, rho), f"{said} than the mean", r"\xi")
        if not group.further:
            return mean, ONE
        return mean, variance_of_longest(*(expected_longest(n, added, rho) for n in (minimum(group.mean, FARTHEST[0]), *group.further)))

    (each, variance), pace = largest("together", b), _pace(lowered)
    if pace:
        (longest, kept), (filled, ends) = largest("paced", b), largest("filling", b)
        paced, many, source = minimum(m, pace[0]), m / pace[1] + 1, REPLAYED
        found = (m + waits) * each + paced * (longest - each) + _DRAINING * waits * (filled - each)
        # the same one fills and drains where there are no more than it may be
        same = maximum(0, 2 * symbol("filling") / m - 1)
        square = (maximum(0, m - paced) + 2 * waits) * variance + paced * pace[1] * kept + waits**2 * (5 + 4 * same) / 9 * ends
    else:
        longest, further = largest("microbatches", b)
        # the longest of its own is a part of what a replica's micro-batches take together
        common = maximum(0, minimum(1 + 3 * symbol(f"{rho}_2_1") / sqrt(b) * longest, sqrt(m * further))) if waits else ZERO
        found, many, source = m * each + waits * longest, m, OF_SUM if waits else ""
        square = (m + 2 * waits * common) * variance + (waits**2 * further if waits else ZERO)
    if "apart" in groups:
        beyond, _ = largest("apart", b * many)
        meaning = f"standard deviation of what a replica's step takes, in those {of}"
        found = found + beyond * define("kappa", "apart", sqrt(square), meaning, r"\sigma", source)
    meaning = f"deviations {of} by which those that a step waits for are longer than the mean"
    return define("xi", "", found / (m + waits), meaning, r"\xi", "")


def _filling(book: Derivation, m: Expr, lowered: Lowered) -> Expr:
    meaning = "micro-batches of which a pipeline fills and drains with the longest"
    value = Quantity(minimum(m, 1 + (symbol("pp") - 1) * _differ(lowered) / 2))
    return book.define(Key("filling", "sizes"), value, meaning, unit=NONE, latex=r"n_{\mathrm{fill}}", source=REPLAYED).expr


def _pace(lowered: Lowered) -> Pace | None:
    strategy = lowered.profile.strategy
    if strategy.pp == 1 or schedule_of(strategy).name not in PACES:
        return None
    at_once = {"m": symbol("m") / strategy.pipeline_flushes, "differ": _differ(lowered)}
    paced, pace = PACES[schedule_of(strategy).name]
    return paced.substitute(at_once), pace


def _differ(lowered: Lowered) -> Expr:
    """The standard deviation of a micro-batch's seconds, over their mean."""
    strategy = lowered.profile.strategy
    return symbol("kappa_tokens" if strategy.padding_free or strategy.mlp_padding_free else "kappa_seconds")


def _of_equal_stages(book: Derivation, lowered: Lowered) -> Expr:
    """Defines how many micro-batches' times a stage waits in a pipeline of equal stages, whose gradients each take as long as a forward. Longer rows
    take as much longer on every stage of as many layers, also where one stage has a head besides, for which the others wait anyway."""
    strategy = lowered.profile.strategy
    if strategy.pp == 1:
        return ZERO
    bubble = schedule_of(strategy).bubble
    each = dict.fromkeys(("tf", "ti", "tw"), ONE / 3)
    sums = {f"sum_{name}": symbol("pp") * value for name, value in each.items()}
    waits = bubble.substitute(dict.fromkeys(bubble.symbols() - _SIZES, ZERO) | each | sums | {"tfb": ONE})
    meaning = "micro-batches' times that a stage waits where all stages are equal, and input and weight gradients each take as long as a forward"
    return book.define(Key("waits", "sizes"), Quantity(waits), meaning, unit=NONE, latex=r"n_{\mathrm{waits}}").expr


def _waits(lowered: Lowered) -> Expr:
    return symbol("waits") if lowered.profile.strategy.pp > 1 else ZERO
