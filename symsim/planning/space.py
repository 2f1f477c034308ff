"""The strategies that a framework can run on so many ranks, as the axes of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from symsim.api.python import derive
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.exporters import refused
from symsim.grid.axes import Axis, DerivedAxis, parse_axes, parse_axis
from symsim.grid.conditions import evaluate, names
from symsim.grid.names import RANKS, SPLITS, field_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import Remembered, resolve
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.models import LoadedModel
from symsim.inputs.settings import settings_of, text_of
from symsim.inputs.strategies import load_strategy, read_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.watched import watched
from symsim.lowering.checks import Rule
from symsim.planning.frameworks import Choice, Framework, Row
from symsim.program.base import Base, read_base

_CHUNKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20)
# a micro-batch has at most so many sequences, or, of shorter ones than this, as many tokens
_MOST_SEQUENCES, _SHORT = 16, 2048
# a context-parallel rank with fewer tokens has more to say than to do
_FEWEST_TOKENS = 1024
_DEEPEST = 128
_NUMBERS = frozenset((*SIZES, *DEGREES, *SPLITS))
_OPTIONS = frozenset(Strategy.model_fields) - _NUMBERS
# what every strategy of a plan has by what is asked
GIVEN = {
    **dict.fromkeys(RANKS, "the number of ranks is given by --world"),
    "global_batch_size": "the batch is given by --global-batch-size or --tokens-per-step",
    "seq_length": "the length of a sequence is given by --seq-length",
    "dp": "it is what the other degrees leave of --world",
}


@dataclass(frozen=True)
class Asked:
    """What a plan is for. model: with the fields that the overrides change. batch: sequences a step. fixed: options given; allowed: axes as of
    --axis, besides those of the framework. overrides: as of --set. target: what the best is to be written for, with the suffix of its file
    ("torchtitan .toml"); "" where it is not. held: rules by which of all strategies some stay."""

    loaded: LoadedModel
    model: Architecture
    system: str
    world: int
    batch: int
    seq_length: int
    framework: Framework
    fixed: Mapping[str, Any]
    allowed: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    held: tuple[Rule, ...] = ()

    @property
    def refused(self) -> tuple[Rule, ...]:
        """What the framework does not start with, what the best is written for, and what it is held to."""
        targets = refused.rules_of(*self.target.split()) if self.target else ()
        return tuple(dict.fromkeys((*self.framework.refused, *targets, *self.held)))

    @property
    def assumptions(self) -> dict[str, str]:
        """The framework's, where the model comes with no others."""
        return {**self.framework.assumptions_of(self.model), **self.loaded.assumptions}

    def settings(self, idle: Collection[str]) -> dict[str, Any]:
        """What --set says to `symsim eval` for a strategy of the plan, besides what -s says. idle: assumptions that move nothing of it."""
        own = {f"assume.{n}": v for n, v in self.framework.assumptions_of(self.model).items() if n not in (*self.loaded.assumptions, *idle)}
        return {**own, **self.overrides}

    def evaluated(self, options: Mapping[str, Any]) -> Result:
        """A strategy's options on this model and system. InputError where it cannot run."""
        found = derive(self.loaded.architecture, options, Remembered(self.assumptions), self.overrides, self.system)
        refused.check(self.refused, found.model, found.strategy)
        return found

    def remembering(self, options: Mapping[str, Any]) -> Result:
        """The same of a strategy that remembers what of it is read (`symsim/inputs/watched.py`)."""
        return derive(self.loaded.architecture, watched(load_strategy(options)), self.assumptions, self.overrides, self.system)

    def base(self, options: Mapping[str, Any]) -> Base:
        """Where an evaluation or a grid with these options starts."""
        return read_base(replace(self.loaded, assumptions=self.assumptions), options, self.system, self.overrides)


def options_of(asked: Asked) -> dict[str, Any]:
    """The options that all strategies of the space have."""
    return {**asked.framework.fixed, **asked.fixed, "world": asked.world, "global_batch_size": asked.batch, "seq_length": asked.seq_length}


def options_beside(asked: Asked, strategy: str | Mapping[str, Any]) -> dict[str, Any]:
    """The options of another strategy, on the same ranks with the same batch. InputError for what does not read, and for other ranks or another
    batch."""
    given, ranks = read_strategy(strategy)
    said = {**given.model_dump(exclude_unset=True), **({"world": ranks.world} if ranks is not None else {})}
    options = options_of(asked)
    for name in ("world", "global_batch_size", "seq_length"):
        if said.get(name, options[name]) != options[name]:
            raise InputError(f"{name}={said[name]}: strategies are set side by side with {name}={options[name]}, which the plan is for")
    return {**options, **said}


def outside(asked: Asked, strategy: Strategy) -> list[str]:
    """The options by which a strategy is none of a plan's space, as -s has them: of those that go together the last."""
    axes, choices, derived = space_of(asked)
    rows = {tuple(map(field_of, axis.names)): tuple(zip(*axis.columns)) for axis in axes} | {choice.names: choice.rows for choice in choices}
    here = {**strategy.model_dump(), "etp": strategy.expert_tp if asked.model.moe is not None else None}
    given = {**{name: field.default for name, field in Strategy.model_fields.items()}, **options_of(asked)}
    given |= {d.name: evaluate(d.expression, here) for d in derived}
    own = {name: text_of(value) for name, value in here.items()}
    alone = own.keys() - GIVEN.keys() - {name for together in rows for name in together}
    found = [name for name in own if name in alone and own[name] != text_of(given[name])]
    for together, values in rows.items():
        others = min([name in own and own[name] != text_of(value) for name, value in zip(together, row)] for row in values)
        found += [name for name, other in zip(together, others) if other]
    return [f"{name}={own[name]}" for name in found]


def space_of(asked: Asked) -> tuple[list[Axis], list[Choice], list[DerivedAxis]]:
    """The sizes as axes, the options as choices, and what is derived. InputError for what is allowed and not an axis."""
    free, derived = _allowed(asked.allowed)
    _known(asked, free)
    own = {field_of(n) for axis in free for n in axis.names} | {field_of(d.name) for d in derived}
    for name in own & GIVEN.keys():
        raise InputError(f"--allow {name}: {GIVEN[name]}")
    fixed = {field_of(n) for n in asked.fixed}
    if own & fixed:
        raise InputError(f"{min(own & fixed)} is fixed and varies by --allow; give it in one of them")
    # what others are derived of is an axis, as they are
    apart = {field_of(n) for d in derived for n in names(d.expression)}
    axes, choices = [], []
    for axis in free:
        of_options = all(field_of(n) in _OPTIONS for n in axis.names) and not apart & {field_of(n) for n in axis.names}
        if of_options:
            choices.append(Choice(tuple(map(field_of, axis.names)), tuple(zip(*axis.columns))))
        else:
            axes.append(axis)
    given = {field_of(n): v for n, v in asked.fixed.items()}
    for choice in _together(choices_of(asked), {**dict.fromkeys(own), **given}):
        left = _without(choice, own, given)
        if left is not None and (choice.names[0] in _NUMBERS or apart & set(left.names)):
            axes.append(Axis(left.names, tuple(zip(*left.rows))))
        elif left is not None:
            choices.append(left)
    for name, text in asked.framework.derived.items():
        if name not in own | fixed:
            made = parse_axis(f"{name}=={text}")
            assert isinstance(made, DerivedAxis)
            derived.append(made)
    return axes, choices, derived


def _known(asked: Asked, free: Sequence[Axis]) -> None:
    """InputError for an option that is given, or varies, with a value that the framework has not."""
    varying = [(name, value) for axis in free for name, column in zip(axis.names, axis.columns, strict=True) for value in column]
    for name, value in [*asked.fixed.items(), *varying]:
        known = asked.framework.known.get(field_of(name))
        if known is not None and value not in known and str(value) not in map(str, known):
            raise InputError(f"{asked.framework.title} has no {name}={value}: it has {', '.join(map(str, known))}")


def _allowed(texts: Sequence[str]) -> tuple[list[Axis], list[DerivedAxis]]:
    try:
        free, derived = parse_axes(texts)
    except InputError as error:
        raise InputError(f"--allow {str(error).replace('axis ', '', 1)}") from None
    return list(free), list(derived)


def choices_of(asked: Asked) -> list[Choice]:
    """The axes of the framework's space for a model, before any of their options is fixed."""
    return [*_degrees(asked), *_choices(asked)]


def _together(choices: Sequence[Choice], given: Mapping[str, Any]) -> list[Choice]:
    """Experts take the tensor degree of the others or one. given: the options that are none of these axes'."""
    at = {choice.names: choice for choice in choices}
    if ("tp",) not in at or ("etp",) not in at or "etp" in given:
        return list(choices)
    degrees = [d for (d,) in at[("tp",)].rows] if "tp" not in given else []
    can = {e for (e,) in at[("etp",)].rows}
    rows = tuple((d, e) for d in degrees for e in sorted({1, d} & can))
    if isinstance(given.get("tp"), int):
        return [Choice(("etp",), tuple((e,) for e in sorted({1, given["tp"]} & can))) if c.names == ("etp",) else c for c in choices]
    if not rows:
        return list(choices)
    return [Choice(("tp", "etp"), rows) if c.names == ("tp",) else c for c in choices if c.names != ("etp",)]


def _degrees(asked: Asked) -> Iterable[Choice]:
    model, world, has = asked.model, asked.world, asked.framework.degrees
    if "tp" in has:
        yield Choice(("tp",), tuple((d,) for d in divisors(world) if model.attention.num_attention_heads % d == 0))
    if "pp" in has:
        depths = [d for d in divisors(world) if d <= min(model.num_layers, _DEEPEST)]
        chunks = _chunks(asked) if "vpp" in has else (1,)
        # what is given holds for all depths, one stage too
        staged = {name: values for name, values in asked.framework.staged.items() if name not in asked.fixed}
        ends = [name for name in SPLITS if name not in asked.fixed]
        alone = [tuple(Strategy.model_fields[name].default for name in (*staged, *ends))]
        cut = [(p, v) for p in depths for v in chunks if v == 1 or (p > 1 and p * v <= model.num_layers)]
        # of chunks that no depth has a rule says why
        cut = cut or [(p, v) for p in depths for v in chunks]
        rows = ((p, v, row) for p, v in cut for row in (alone if p == 1 else _of_stages(asked.framework, staged, ends, v)))
        yield Choice(("pp", "vpp", *staged, *ends), tuple((p, v, *row) for p, v, row in rows))
    if "cp" in has:
        yield Choice(("cp",), tuple((c,) for c in divisors(world) if c & (c - 1) == 0 and (c == 1 or asked.seq_length // c >= _FEWEST_TOKENS)))
    if model.moe is not None and "ep" in has:
        yield Choice(("ep",), tuple((e,) for e in divisors(world) if model.moe.num_moe_experts % e == 0))
        if "etp" in has:
            yield Choice(("etp",), tuple((d,) for d in divisors(world) if model.attention.num_attention_heads % d == 0))
    most = max(_MOST_SEQUENCES, _MOST_SEQUENCES * _SHORT // asked.seq_length)
    yield Choice(("micro_batch_size",), tuple((b,) for b in range(1, most + 1) if asked.batch % b == 0))


def _chunks(asked: Asked) -> tuple[int, ...]:
    given = asked.fixed.get("vpp")
    return (given,) if isinstance(given, int) else _CHUNKS


def _of_stages(framework: Framework, staged: Mapping[str, tuple[Any, Any]], ends: Sequence[str], chunks: int) -> list[Row]:
    """Of several stages: what the framework's pipelines of so many chunks a rank have, with every way to cut them."""
    ways = dict.fromkeys(tuple(way[SPLITS.index(name)] for name in ends) for way in framework.ends)
    return [(*(values[chunks > 1] for values in staged.values()), *way) for way in ways]


def _choices(asked: Asked) -> Iterable[Choice]:
    """The framework's, those of the same options as one."""
    rows: dict[tuple[str, ...], tuple[Row, ...]] = {}
    given = resolve({**asked.assumptions, **settings_of(asked.overrides).assumptions})
    for choice in asked.framework.choices:
        if choice.applies(asked.model, given):
            rows[choice.names] = (*rows.get(choice.names, ()), *choice.rows)
    return [Choice(names, found) for names, found in rows.items()]


def _without(choice: Choice, own: set[str], fixed: Mapping[str, Any]) -> Choice | None:
    """The choice that is left where some of its options are fixed, or vary by an axis of the user's; None where nothing is."""
    kept = [k for k, name in enumerate(choice.names) if name not in own and name not in fixed]
    at = {k: fixed[name] for k, name in enumerate(choice.names) if name in fixed}
    rows = [row for row in choice.rows if all(text_of(row[k]) == text_of(value) for k, value in at.items())] or list(choice.rows)
    distinct = dict.fromkeys(tuple(row[k] for k in kept) for row in rows)
    return Choice(tuple(choice.names[k] for k in kept), tuple(distinct)) if kept else None


def divisors(number: int) -> list[int]:
    """In rising order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
