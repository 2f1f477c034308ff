"""Other pipelines that a page can show: half and twice the stages, and layers in one chunk a rank or in two. Each is a derivation of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from symsim.cost.step_time import exposed_axes
from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.strategy import Strategy


def pipelines(result: Evaluation) -> list[tuple[str, Evaluation]]:
    """A derivation with its own pipeline first, and with those others that can run, each with what it is; itself alone where it has none."""
    found = [(_said(result.strategy), result)]
    for options in _others(result.strategy):
        other = _with(result, options)
        if other is not None:
            found.append((_said(other.strategy), other))
    return found


def _others(strategy: Strategy) -> Iterator[dict[str, int]]:
    if strategy.pp == 1:
        return
    if strategy.pp % 2 == 0 and strategy.pp > 2:
        yield {"pp": strategy.pp // 2}
    yield {"pp": 2 * strategy.pp}
    yield {"vpp": 1 if strategy.vpp > 1 else 2}


def _with(result: Evaluation, options: dict[str, int]) -> Evaluation | None:
    """The same sizes and ranks a stage in another pipeline; None where it cannot run, or has messages that this one has not."""
    ours = {n: getattr(result.strategy, n) for n in result.strategy.model_fields_set}
    sizes: dict[str, Any] = {"dp": result.strategy.dp, "num_microbatches": result.strategy.microbatches, "global_batch_size": None}
    try:
        made = evaluated(result.model, Strategy(**{**ours, **sizes, **options}), result.assumptions, dict(result.overrides), result.system)
    except InputError:
        return None
    same = result.system is None or exposed_axes(made.derivation).keys() == exposed_axes(result.derivation).keys()
    return made if same else None


def _said(strategy: Strategy) -> str:
    return f"pp = {strategy.pp}, vpp = {strategy.vpp}"
