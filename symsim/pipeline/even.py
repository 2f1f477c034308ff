"""A pipeline that is cut evenly, at any depth: what its first stage, those between and the last hold, over pp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from symsim.algebra.even import EvenLine, Part
from symsim.algebra.expr import ONE, ZERO, Expr, Number, expr, symbol
from symsim.inputs.limits import MOST_STAGES
from symsim.inputs.strategy import Strategy

Symbols = Sequence[Mapping[str, Number]]
_PP = symbol("pp")
_FIRST = ("the first stage", ZERO, ZERO)
_PLACES = {
    ("first", "middle", "last"): (_FIRST, ("a stage between", ONE, _PP - 2), ("the last stage", _PP - 1, _PP - 1)),
    ("first", "other"): (_FIRST, ("a stage after the first", ONE, _PP - 1)),
}


def even_line(layers: int, strategy: Strategy, symbols_at: Callable[[int], Symbols]) -> EvenLine | None:
    """The stages over pp; None where the split is not even, or where no other depth holds as this one does.

    symbols_at: the symbols of every stage of a pipeline so deep. What a stage of a part holds is a + b L/pp, through this depth and
    the one with which most others agree.
    """
    here = _parts(symbols_at(strategy.pp)) if _even(layers, strategy, strategy.pp) else None
    if here is None:
        return None
    depths = [pp for pp in range(2, min(layers // strategy.vpp, MOST_STAGES) + 1) if _even(layers, strategy, pp)]
    found = {pp: parts for pp in depths if (parts := _parts(symbols_at(pp))) is not None and parts.keys() == here.keys()}
    best: tuple[list[int], Mapping[str, Mapping[str, Expr]]] = ([], {})
    for pp in sorted(found.keys() - {strategy.pp}, key=lambda pp: abs(pp - strategy.pp)):
        fits = {label: _through(layers, (strategy.pp, held), (pp, found[pp][label])) for label, held in here.items()}
        agree = [n for n, parts in found.items() if all(_same(fits[label], held, layers, n) for label, held in parts.items())]
        if len(agree) > len(best[0]):
            best = (agree, fits)
    if len(best[0]) < 2:
        return None
    labels = tuple(here)
    made = tuple(Part(label, *place, best[1][label]) for label, place in zip(labels, _PLACES[labels]))
    grouped = strategy.vpp > 1 and strategy.microbatch_group_size_per_vp_stage is None
    return EvenLine(made, {"group": _PP} if grouped else {}, frozenset(best[0]), layers)


def _even(layers: int, strategy: Strategy, pp: int) -> bool:
    """Whether the layers are cut into equal chunks, as they are where nothing else is said."""
    explicit = (
        strategy.pipeline_model_parallel_layout,
        strategy.num_layers_in_first_pipeline_stage,
        strategy.num_layers_in_last_pipeline_stage,
        strategy.account_for_embedding_in_pipeline_split,
        strategy.account_for_loss_in_pipeline_split,
    )
    # its groups of micro-batches follow the depth by rounding
    return not any(explicit) and strategy.schedule != "interleaved_zb" and pp > 1 and layers % (pp * strategy.vpp) == 0


def _parts(stages: Symbols) -> dict[str, Mapping[str, Number]] | None:
    """What the first, the middle and the last stage hold, or the first and all others; None where those between differ."""
    held = [{name: n for name, n in stage.items() if name != "i"} for stage in stages]
    first, *others = held
    if len(others) > 1 and all(h == others[0] for h in others):
        return {"first": first, "other": others[0]}
    *between, last = others
    if not between or any(h != between[0] for h in between):
        return None
    return {"first": first, "middle": between[0], "last": last}


def _through(layers: int, here: tuple[int, Mapping[str, Number]], there: tuple[int, Mapping[str, Number]]) -> dict[str, Expr]:
    """a + b L/pp for each symbol, through what is held at two depths."""
    (pp, held), (other, also) = here, there
    made = {}
    for name, amount in held.items():
        slope = (expr(amount) - also[name]) / (expr(layers) / pp - expr(layers) / other)
        made[name] = amount + slope * (symbol("L") / _PP - expr(layers) / pp)
    return made


def _same(fits: Mapping[str, Expr], held: Mapping[str, Number], layers: int, pp: int) -> bool:
    return all(fits[name].evaluate({"L": layers, "pp": pp}) == amount for name, amount in held.items())
