"""Which of a page's values can run together: the rules that `symsim eval` checks, asked for all of them before the page is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from symsim.cost.step_time import check_system
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import field_of
from symsim.grid.watched import Watched
from symsim.inputs.deciding import deciding
from symsim.inputs.system import System, unfit
from symsim.lowering.checks import RULES
from symsim.page.inputs import Input

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


@dataclass(frozen=True)
class _Moved:
    """A field of a strategy that inputs give. over: these, by position; made: of a value of each the field's."""

    over: tuple[int, ...]
    made: Callable[..., Any]


@dataclass(frozen=True)
class _Asked:
    """What functions of a strategy said, for all derivations: where all that one reads is the same, it is not asked again.

    known: by function, by the fields that it reads, by their values."""

    inputs: Sequence[Input]
    known: dict[Hashable, dict[tuple[str, ...], dict[tuple[Hashable, ...], Rule | None]]] = field(default_factory=dict)

    def rule(self, key: Hashable, function: Callable[[Any], str], fields: Mapping[str, Any]) -> Rule | None:
        """Where the function refuses; key: what tells it from others."""
        known = self.known.setdefault(key, {})
        for read, made in known.items():
            values = tuple(map(_told, map(fields.get, read)))
            if values in made:
                return made[values]
        over, said, reads = _said_over(function, fields, self.inputs)
        names = tuple(sorted(reads))
        found = known.setdefault(names, {})[tuple(map(_told, map(fields.get, names)))] = _rule(over, said, self.inputs)
        return found


def rules_of(every: Sequence[Evaluation], inputs: Sequence[Input]) -> list[list[Rule]]:
    """Of each of these derivations of one model the rules that some combination of the inputs' values breaks."""
    asked, found = _Asked(inputs), []
    own = {k: _Moved((k,), lambda value: value) for k, one in enumerate(inputs) if one.values}
    for result in every:
        fields = _fields(result, inputs, own)
        made = (*(asked.rule(key, function, fields) for key, function in _functions(result)), *_tiers(result.system, inputs))
        found.append([rule for rule in made if rule is not None])
    return found


def _tiers(system: System | None, inputs: Sequence[Input]) -> Iterator[Rule | None]:
    """What a tier joins beside what the one inside it does, as a system is read."""
    places = {one.name: k for k, one in enumerate(inputs) if one.values}
    inner: tuple[str, int] = ("", 1)
    for number, tier in enumerate(system.network if system is not None else (), 1):
        if tier.ranks == "all":
            return
        outer = (f"R_{number}", tier.ranks)
        moved = tuple(places[name] for name, _ in (inner, outer) if name in places)
        values = [inputs[places[name]].values if name in places else (ranks,) for name, ranks in (inner, outer)]
        if moved:
            yield _rule(moved, [unfit(tier.name, ranks, inside) for inside, ranks in product(*values)], inputs)
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


def _fields(result: Evaluation, inputs: Sequence[Input], own: Mapping[int, _Moved]) -> dict[str, Any]:
    """The strategy's fields, those of inputs as what these give."""
    strategy = result.strategy
    fields: dict[str, Any] = {name: getattr(strategy, name) for name in type(strategy).model_fields}
    fields |= {name: moved for k, moved in own.items() if (name := field_of(inputs[k].name)) in fields}
    fields |= _levels(result, {inputs[k].name: k for k in own})
    if any(one.name == "m" for one in inputs):
        # the page's micro-batches are what is given
        fields["global_batch_size"] = None
    return fields


def _levels(result: Evaluation, places: Mapping[str, int]) -> dict[str, _Moved]:
    """Of context parallelism in two levels, each of which is moved by itself, the fields that hold both."""
    sizes = result.strategy.hierarchical_context_parallel_sizes
    if sizes is None or not places.keys() & {"cp_a2a", "cp_p2p"}:
        return {}
    names = ("cp_a2a", "cp_p2p")
    over = tuple(places[name] for name in names if name in places)

    def both(*given: int) -> tuple[int, int]:
        left = iter(given)
        inner, outer = (next(left) if name in places else size for name, size in zip(names, sizes))
        return inner, outer

    return {"hierarchical_context_parallel_sizes": _Moved(over, both), "cp": _Moved(over, lambda *given: prod(both(*given)))}


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


def _said_over(
    function: Callable[[Any], str], fields: Mapping[str, Any], inputs: Sequence[Input]
) -> tuple[tuple[int, ...], list[str], Collection[str]]:
    """The inputs that a function of a strategy reads, by position; what it says of every combination of their values, the last input's fastest;
    and the names of all fields that it reads."""
    moved = {name: value for name, value in fields.items() if isinstance(value, _Moved)}
    read = set[str]()
    while True:
        over = tuple(sorted({k for name in read & moved.keys() for k in moved[name].over}))
        values, first = dict(fields), {k: inputs[k].values[0] for one in moved.values() for k in one.over}
        values |= {name: one.made(*(first[k] for k in one.over)) for name, one in moved.items()}
        watched, said = Watched(values), []
        for at in product(*(inputs[k].values for k in over)):
            here = first | dict(zip(over, at))
            values.update((name, moved[name].made(*(here[k] for k in moved[name].over))) for name in read & moved.keys())
            said.append(function(watched))
        heard = read | watched.read
        if heard & moved.keys() == read & moved.keys():
            return over, said, heard
        read = heard


def _told(value: Any) -> Hashable:
    """What tells a field's value from another."""
    return value if isinstance(value, _Moved) else repr(value)


def _rule(over: Sequence[int], said: Sequence[str], inputs: Sequence[Input]) -> Rule | None:
    """From the sentences over the values of these inputs, of which what has one value alone is not read."""
    if not any(said):
        return None
    sentences = tuple(sorted({sentence for sentence in said if sentence}))
    numbers = {"": 0, **{sentence: number for number, sentence in enumerate(sentences, 1)}}
    return Rule(tuple(k for k in over if len(inputs[k].values) > 1), tuple(numbers[sentence] for sentence in said), sentences)
