"""Which of a page's values can run together: the rules that `symsim eval` checks, asked for all of them before the page is written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from symsim.cost.step_time import check_system
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import field_of
from symsim.grid.tabulate import Tables
from symsim.inputs.deciding import deciding
from symsim.inputs.system import System, unfit
from symsim.lowering.checks import RULES
from symsim.page.inputs import Input

Array = np.ndarray[Any, Any]
_ANOTHER = "the formulas of this page are of another kind of strategy there: {}; 'symsim derive' makes them"
_WHY = {
    "same_tp": "whether etp equals tp decides which messages there are",
    "few_groups": "above as many ranks as there are query groups, keys and values are repeated",
    "one_group": "at as many ranks as there are query groups, projected queries are kept",
    "expert_tp": "etp above 1 has messages inside an expert that etp=1 has not",
    "expert_dp": "experts with data-parallel ranks of their own, edp above 1, have messages that others have not",
    "padded": "rows that are longer than their documents have padding, others have none",
    "pieces": "what documents are cut into follows from the row",
    "depth": "the stages of a pipeline of pairs follow from its depth",
}


@dataclass(frozen=True)
class Rule:
    """over: the inputs that it reads, by position. broken: for every combination of their values, the last input's fastest, 0 where it holds,
    else the number of a sentence, from 1."""

    over: tuple[int, ...]
    broken: tuple[int, ...]
    sentences: tuple[str, ...]


def rules_of(every: Sequence[Evaluation], inputs: Sequence[Input]) -> list[list[Rule]]:
    """Of each of these derivations of one model the rules that some combination of the inputs' values breaks."""
    moved = [k for k, one in enumerate(inputs) if one.values]
    arrays = {k: np.array(inputs[k].values).reshape([-1 if k == other else 1 for other in moved]) for k in moved}
    tables, found = Tables(), []
    for result in every:
        fields = _fields(result, inputs, arrays)
        asked = (tables.of(key, function, fields) for key, function in _functions(result))
        rules = (*(_rule(said, inputs, moved) for said in asked), *_tiers(result.system, inputs))
        found.append([rule for rule in rules if rule is not None])
    return found


def _tiers(system: System | None, inputs: Sequence[Input]) -> Iterator[Rule | None]:
    """What a tier joins beside what the one inside it does, as a system is read."""
    places = {one.name: k for k, one in enumerate(inputs) if one.values}
    inner: tuple[str, int] = ("", 1)
    for number, tier in enumerate(system.network if system is not None else (), 1):
        if tier.ranks == "all":
            return
        outer = (f"R_{number}", tier.ranks)
        moved = [places[name] for name, _ in (inner, outer) if name in places]
        values = [inputs[places[name]].values if name in places else (ranks,) for name, ranks in (inner, outer)]
        if moved:
            said = [unfit(tier.name, ranks, inside) for inside, ranks in product(*values)]
            yield _rule(np.array(said).reshape([len(inputs[k].values) for k in moved]), inputs, moved)
        inner = outer


def only_possible(inputs: Sequence[Input], rules: Sequence[Rule]) -> list[Input]:
    """The inputs without the values that a rule refuses whatever the others are."""
    found = list(inputs)
    for rule in rules:
        if len(rule.over) == 1:
            (at,) = rule.over
            refused = {v for v, broken in zip(inputs[at].values, rule.broken) if broken}
            kept = tuple(v for v in found[at].values if v not in refused)
            found[at] = replace(found[at], values=kept)
    return found


def _fields(result: Evaluation, inputs: Sequence[Input], arrays: Mapping[int, Array]) -> dict[str, Any]:
    """The strategy's fields, those of inputs as arrays along an axis each."""
    strategy = result.strategy
    fields: dict[str, Any] = {name: getattr(strategy, name) for name in type(strategy).model_fields}
    fields |= {name: array for k, array in arrays.items() if (name := field_of(inputs[k].name)) in fields}
    fields |= _levels(result, {inputs[k].name: array for k, array in arrays.items()})
    if any(one.name == "m" for one in inputs):
        # the page's micro-batches are what is given
        fields["global_batch_size"] = None
    return fields


def _levels(result: Evaluation, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Of context parallelism in two levels, each of which is moved by itself, the fields that hold both."""
    sizes = result.strategy.hierarchical_context_parallel_sizes
    if sizes is None or not arrays.keys() & {"cp_a2a", "cp_p2p"}:
        return {}
    inner, outer = (arrays.get(name, np.array(size)) for name, size in zip(("cp_a2a", "cp_p2p"), sizes))
    pairs = np.frompyfunc(lambda inside, outside: (int(inside), int(outside)), 2, 1)(inner, outer)
    return {"hierarchical_context_parallel_sizes": pairs, "cp": inner * outer}


def _functions(result: Evaluation) -> Iterator[tuple[Hashable, Callable[[Any], str]]]:
    """Of a strategy the sentence that refuses it, or nothing; before each what tells it from others."""
    model, system = result.model, result.system
    for rule in RULES:
        yield rule, _said(lambda strategy, rule=rule: rule(model, strategy))  # type: ignore[misc]
    if system is not None:
        yield "system", _said(lambda strategy: check_system(system, strategy))
    for name, read in deciding(model).items():
        here, why = read(result.strategy), _ANOTHER.format(_WHY.get(name, f"{name} above 1 has terms that {name}=1 has not"))
        yield (name, here), lambda strategy, read=read, here=here, why=why: "" if read(strategy) == here else why  # type: ignore[misc]


def _said(rule: Callable[[Any], None]) -> Callable[[Any], str]:
    def sentence(strategy: Any) -> str:
        try:
            rule(strategy)
        except InputError as error:
            return str(error)
        return ""

    return sentence


def _rule(said: Any, inputs: Sequence[Input], moved: Sequence[int]) -> Rule | None:
    """From the sentences over the axes of what was read."""
    said = np.asarray(said)
    if not said.astype(bool).any():
        return None
    over = tuple(moved[axis] for axis, size in enumerate(said.shape) if size > 1)
    sentences, numbers = np.unique(said.reshape(-1), return_inverse=True)
    assert np.prod([len(inputs[k].values) for k in over]) == len(numbers)
    first = 0 if sentences[0] == "" else 1
    return Rule(over, tuple(int(n) + first for n in numbers), tuple(map(str, sentences[1 - first :])))
