"""A derivation unrolled: named values in order over a few free symbols, of stages once for every kind that one pipeline has.

The depth of the pipeline is fixed, so the layers of its stages are numbers. Numbers that are not free are folded in; a definition that comes out
constant disappears into those that use it. Nothing is expanded otherwise: every step is one named definition, or one reduction over stages.

    step      = expression of arguments and earlier steps; reductions over stages are written out over the classes of equal ones
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np

from symsim.algebra.expr import ZERO, Expr, Number, expr, floor, maximum, symbol
from symsim.algebra.key import layers
from symsim.algebra.kinds import kind_of
from symsim.algebra.quantity import Definition
from symsim.algebra.reductions import Holdings, Line, named, stages_at, stages_max
from symsim.algebra.typeset import entry
from symsim.algebra.written import Substitutions, WrittenOut
from symsim.cost.step_time import exposed_axes
from symsim.errors import InputError, nearest
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.quantities import EXPOSED, QUANTITIES, Entry, refuse_unknown
from symsim.inputs.strategies import on_ranks
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import symbol_values
from symsim.inputs.systems import load_system
from symsim.program.base import Base
from symsim.program.fullest import line_at_any, line_of

SIZES = ("b", "s", "u", "m")
DEGREES = ("tp", "cp", "cp_a2a", "cp_p2p", "ep", "etp", "dp", "inst")
# the section of what follows from the arguments alone
DERIVED = "What follows from the arguments"
_BAKED = ("pp", "vpp")
_TIME = symbol("t_stage")
Rounded = Literal["up", "", "down"]


@dataclass(frozen=True)
class Argument:
    """A free symbol and its number at the base."""

    name: str
    default: Number
    unit: str
    meaning: str


@dataclass(frozen=True)
class Step:
    """name := body [unit]. counts: it counts something, so that quotients must come out whole. section: its place in a listing."""

    name: str
    body: Expr
    unit: str
    meaning: str
    counts: bool
    section: str
    source: str = ""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """A reported quantity: an expression of steps, arguments and numbers.

    rounded: how `symsim eval` makes it whole. left_of: a larger number of which it is what is left, and so has its rounding errors.
    """

    name: str
    body: Expr
    unit: str
    meaning: str
    rounded: Rounded = ""
    left_of: Expr | None = None


@dataclass(frozen=True)
class Unrolled:
    """arguments: those that are free. steps: all that outputs stand on, each after what it uses. kinds: the stages behind a suffix."""

    result: Evaluation
    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    kinds: Mapping[str, str]


def at_base(base: Base) -> Evaluation:
    """The derivation that a module or a kernel is made of; InputError as `symsim eval` raises it."""
    system = load_system(base.system, base.system_changes) if base.system is not None else None
    return evaluated(base.architecture, on_ranks(base.strategy, base.ranks), dict(base.assumptions), dict(base.symbols), system)


# what may be free ------------------------------------------------------------------------------------------------------


def candidates(result: Evaluation) -> dict[str, Argument]:
    """Every symbol that can be an argument: sizes, degrees above 1, lam where there are experts, and numbers of the system."""
    values, found = result.values, [n for n in SIZES if n in result.values]
    hierarchical = "cp_a2a" in values
    found += [n for n in DEGREES if values.get(n, 1) > 1 and not (hierarchical and n == "cp") and not (n == "etp" and result.strategy.etp is None)]
    found += ["lam"] if result.model.moe is not None else []
    if result.system is not None:
        unlimited = {f"R_{j}" for j, tier in enumerate(result.system.network, 1) if tier.ranks == "all"}
        found += [n for n in symbol_values(result.system, result.strategy) if n not in ("world", "Phi", *unlimited)]
    return {n: _argument(n, values[n]) for n in found}


def _argument(name: str, value: Number) -> Argument:
    if name.startswith("C_") and name[2:].isdigit():
        return Argument(name, value, "byte/s", f"what one ring moves over tier {name[2:]} at most")
    known = entry(name)
    return Argument(name, value, known.unit, known.meaning)


def _chosen(result: Evaluation, names: Sequence[str]) -> dict[str, Argument]:
    """The arguments of these names, in the order given."""
    known = candidates(result)
    for position, name in enumerate(names):
        if name in names[:position]:
            raise InputError(f"--free gives {name} twice")
        if name in known:
            continue
        if name in _BAKED:
            raise InputError(f"--free {name}: the stages that {name} cuts are fixed in the module; make one for each {name}")
        if name == "cp" and "cp_a2a" in result.values:
            raise InputError("--free cp: it is cp_a2a * cp_p2p here; free those")
        if name == "etp" and result.strategy.etp is None and result.strategy.expert_tp > 1:
            raise InputError("--free etp: it follows tp here; give etp in the strategy to vary it alone")
        if name in DEGREES:
            raise InputError(
                f"--free {name}: it is 1 here, and without the messages of {name} it is another derivation; give a strategy with {name} above 1"
            )
        raise InputError(f"--free {name}: there is no such argument: {nearest(name, list(known))}")
    return {n: known[n] for n in names}


# unrolling -------------------------------------------------------------------------------------------------------------


def unroll(
    result: Evaluation,
    free: Sequence[str] | None,
    quantities: Sequence[str] | None = None,
    *,
    shortest: bool = False,
    substitutions: Substitutions | None = None,
) -> Unrolled:
    """The steps to quantities (None: all that there are), over the free symbols (None: all candidates that something stands on).

    shortest: where only the sum of a stage's times matters, they are taken as one, and the step's time is reached without its parts.
    substitutions: those made for derivations of the same model before. InputError for a name that is no argument, or no quantity.
    """
    arguments = candidates(result) if free is None else _chosen(result, free)
    definitions = list(result.derivation.definitions.values()) if quantities is None else _needed(result, quantities)
    made = _Unroller(result, definitions, arguments, shortest, substitutions or Substitutions())
    outputs = tuple(o for n in (quantities if quantities is not None else made.quantities()) for o in made.outputs(n))
    steps, used = made.needed(outputs)
    if free is None:
        arguments = {n: a for n, a in arguments.items() if n in used}
    return Unrolled(result, tuple(arguments.values()), steps, outputs, made.kinds)


def _needed(result: Evaluation, quantities: Iterable[str]) -> list[Definition]:
    """The definitions that any of these quantities can stand on, in their order."""
    axes = exposed_axes(result.derivation).values() if result.system is not None else ()
    definitions = result.derivation.definitions
    # the last two stand for others, or tell which rank is meant
    waiting = [*axes, *quantities, *(QUANTITIES[n].symbol for n in quantities if n in QUANTITIES), "N", "M_stage_peak"]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in found:
            found.add(name)
            waiting += definitions[name].expr.symbols()
    return [d for name, d in definitions.items() if name in found]


class _Unroller:
    """Steps by name, in an order in which each stands after what it uses."""

    def __init__(
        self, result: Evaluation, definitions: Sequence[Definition], free: Mapping[str, Argument], shortest: bool, substitutions: Substitutions
    ):
        self.result, self.definitions, self.shortest, self.substitutions = result, definitions, shortest, substitutions
        # bodies, and what makes a step of one
        self.steps: dict[str, tuple[Expr, Callable[[Expr], Step]]] = {}
        # numbers; what is none stands for itself
        self.known: dict[str, Number] = {n: v for n, v in result.values.items() if n not in free}
        self.kinds: dict[str, str] = {}
        self._derived_symbols(free)
        self._definitions()
        self._stages()
        self._whole_step()

    # steps -------------------------------------------------------------------------------------------------------------

    def add(self, name: str, body: Expr, step: Callable[[Expr], Step]) -> None:
        """Take up a step with what is known folded in; what comes out constant is only known."""
        body = self.substitutions.of(body, self.known.get)
        if body.is_constant:
            self.known[name] = body.constant()
        else:
            self.known.pop(name, None)
            self.steps[name] = body, step

    def needed(self, outputs: Iterable[Output]) -> tuple[tuple[Step, ...], set[str]]:
        """Steps that outputs stand on, in order, and every name that they use."""
        used = {s for o in outputs for part in (o.body, o.left_of) if part is not None for s in part.symbols()}
        kept = []
        for name, (body, step) in reversed(self.steps.items()):
            if name in used:
                kept.append(step(body))
                used |= body.symbols()
        return tuple(reversed(kept)), used

    def has(self, name: str) -> bool:
        return name in self.known or name in self.steps

    def found(self, name: str) -> Expr:
        """The number that a name came to, or its step."""
        return expr(self.known[name]) if name in self.known else symbol(name)

    def _derived_symbols(self, free: Mapping[str, Argument]) -> None:
        """Symbols that follow from the free ones, as in symsim.inputs.strategy and symsim.pipeline.schedules.schedule_sizes."""
        strategy, system = self.result.strategy, self.result.system
        follows: dict[str, Expr] = {}
        if "cp_a2a" in self.result.values:
            follows["cp"] = symbol("cp_a2a") * symbol("cp_p2p")
        if strategy.etp is None:
            follows["etp"] = symbol("tp")
        if "m" not in free and strategy.num_microbatches is None and strategy.global_batch_size is not None:
            follows["m"] = floor(expr(strategy.global_batch_size) / (symbol("b") * symbol("dp")))
        dense = symbol("tp") * symbol("cp") * symbol("dp")
        follows["edp"] = floor(dense / (symbol("etp") * symbol("ep")))
        follows["world"] = dense * symbol("pp")
        if strategy.schedule == "interleaved_zb" and strategy.microbatch_group_size_per_vp_stage is None:
            at_once = symbol("m") / strategy.pipeline_flushes
            follows["group"] = floor(at_once / maximum(1, floor(at_once / symbol("pp"))))
        if system is not None:
            follows |= {f"R_{j}": symbol("world") for j, tier in enumerate(system.network, 1) if tier.ranks == "all"}
            follows["Phi"] = symbol(f"Phi_{strategy.precision}")
        for name, body in follows.items():
            if name in free or (name not in self.result.values and name != "world"):
                continue
            if name in ("etp", "edp") and self.result.values[name] == 1:
                continue
            known = entry(name)
            meaning = "ranks" if name == "world" else "peak rate of an accelerator" if name == "Phi" else known.meaning
            made = Step(name, body, "FLOP/s" if name == "Phi" else known.unit, meaning, name != "Phi", DERIVED)
            self.add(name, body, partial(_with_body, made))

    def _definitions(self) -> None:
        for definition in _grouped([d for d in self.definitions if d.key.scope not in ("stage", "step")]):
            self.add(definition.symbol, definition.expr, partial(_step, definition))

    def _whole_step(self) -> None:
        for definition in self.definitions:
            if definition.key.scope == "step":
                body = self._stage.plain(definition.expr, (_TIME,) if self.shortest else ())
                section = "Over stages" if named(definition.expr)[1] else definition.key.section
                self.add(definition.symbol, body, partial(_step, definition, section=section))

    # stages ------------------------------------------------------------------------------------------------------------

    @cached_property
    def _stage(self) -> WrittenOut:
        return WrittenOut(self.definitions, self._line, self.substitutions)

    @cached_property
    def _line(self) -> Line:
        """The stages, and which of equal ones hold the most at any number of micro-batches the module may be given."""
        result = self.result
        stages = [result.stage_values(stage) for stage in result.stages]
        m, group = int(result.values["m"]), int(result.values["group"])
        if "m" not in self.known:
            return line_at_any(result.strategy, stages, group)
        return line_of(result.strategy, stages, np.array([m]), np.array([group]))

    def _stages(self) -> None:
        """Every definition of a stage once for each class of equal ones; those that depend on the place, for the places that can hold the most."""
        line, stage = self._line, self._stage
        for held, first in line.first.items():
            section = self.kinds[str(first)] = f"Stage {_indices(line.members[held])}: {self._contents(held)}"
            for name in stage.of_stage:
                if name not in stage.placed:
                    self._instance(name, first, section)
            for place in sorted(line.fullest[held]):
                title = section if place == first else f"Stage {place} of {section.removeprefix('Stage ')}"
                self.kinds[str(place)] = title
                for name in stage.of_stage:
                    if name in stage.placed:
                        self._instance(name, place, title)

    def _instance(self, name: str, at: int, section: str) -> None:
        found = self._stage.at(name, at)
        if not found.is_constant:
            (own,) = found.symbols()
            made = self._stage.made[own]
            self.add(made.symbol, made.expr, partial(_step, made, meaning=made.meaning.replace(f"stage {at}: ", ""), section=section))

    def _contents(self, held: Holdings) -> str:
        own = dict(zip(self._line.names, held))
        parts = [f"{own[layers(k).text]} {kind_of(k)} layers" for k in self.result.model.kind_names() if own[layers(k).text]]
        words = {"embedding_i": "the embedding", "loss_i": "the head", "mtp_i": "multi-token prediction"}
        return ", ".join(
            [w for n, w in words.items() if own.get(n) and n == "embedding_i"]
            + parts
            + [w for n, w in words.items() if own.get(n) and n != "embedding_i"]
        )

    # what is asked for -------------------------------------------------------------------------------------------------

    def quantities(self) -> list[str]:
        """Every reported quantity that there is: without a system those that need none."""
        found = [n for n, q in QUANTITIES.items() if self._exists(q)]
        if self.result.system is not None:
            at = found.index("time.exposed") + 1
            found[at:at] = [f"{EXPOSED}{axis}" for axis in exposed_axes(self.result.derivation)]
        return found

    def _exists(self, quantity: Entry) -> bool:
        if quantity.timed and self.result.system is None:
            return False
        return quantity.symbol in ("exposed", "memory", "world", "N_active", "N_trained") or quantity.symbol in self.result.derivation.definitions

    def outputs(self, name: str) -> Iterator[Output]:
        """A quantity by its name, or by the symbol of a definition (of a stage's the largest over stages); InputError for one that there is not."""
        definitions = self.result.derivation.definitions
        known = QUANTITIES.get(name)
        if known is not None and self._exists(known):
            rounded: Rounded = "up" if known.unit == "byte" else "down" if name.startswith("params.") else ""
            whole = self._over_stages("M_stage_peak") if known.symbol == "M_stage_transient" else None
            yield Output(name, self._quantity(known), known.unit, known.meaning, rounded, whole)
            return
        axis = name.removeprefix(EXPOSED)
        axes = exposed_axes(self.result.derivation) if self.result.system is not None else {}
        if name.startswith(EXPOSED) and axis in axes:
            yield Output(name, self.found(axes[axis]), "s", f"messages over {axis} that nothing hides")
        elif name in definitions:
            own = definitions[name]
            body = self._over_stages(name) if own.key.scope == "stage" else self.found(name)
            yield Output(name, body, str(own.unit), own.meaning)
        else:
            raise refuse_unknown(name, list(definitions), "quantity")

    def _quantity(self, quantity: Entry) -> Expr:
        name = quantity.symbol
        if name == "memory":
            assert self.result.system is not None
            return expr(int(self.result.system.accelerator.memory.value))
        if name == "exposed":
            return sum((self.found(a) for a in exposed_axes(self.result.derivation).values()), ZERO)
        if name == "world":
            strategy: Strategy = self.result.strategy
            return self.found("world") if self.has("world") else expr(strategy.world_size)
        if name in ("N_active", "N_trained") and not self.has(name):
            name = "N"
        if quantity.over == "fullest":
            fullest = stages_at(symbol(name), symbol("M_stage_peak"))
            key = self.result.derivation.definitions[name].key
            return self._over(name, f"{key.quantity}_fullest_{key.part}", quantity.meaning, fullest)
        return self._over_stages(name) if quantity.over == "stages" else self.found(name)

    def _over_stages(self, name: str) -> Expr:
        meaning = f"largest over stages: {self.result.derivation.definitions[name].meaning}"
        return self._over(name, name, meaning, stages_max(symbol(name)))

    def _over(self, name: str, title: str, meaning: str, body: Expr) -> Expr:
        """A reduction of a stage's definition under a title of its own, made once."""
        if not self.has(title):
            definition = self.result.derivation.definitions[name]
            self.add(title, self._stage.plain(body), partial(_step, definition, name=title, meaning=meaning, section="Over stages"))
        return self.found(title)


def _step(definition: Definition, body: Expr, **otherwise: str) -> Step:
    """A definition with another body, and what else of the step is another."""
    d = definition
    said = {"name": d.symbol, "unit": str(d.unit), "meaning": d.meaning, "section": d.key.section, "source": d.source, **otherwise}
    return Step(body=body, counts=d.counts, assumptions=d.assumptions, **said)


def _with_body(step: Step, body: Expr) -> Step:
    return replace(step, body=body)


def _grouped(definitions: list[Definition]) -> list[Definition]:
    """Definitions of one group together where that leaves each after those it uses."""
    order = {g: k for k, g in enumerate(dict.fromkeys(["sizes", "network", *(d.key.section for d in definitions)]))}
    made = sorted(definitions, key=lambda d: order[d.key.section])
    waiting = {d.symbol for d in definitions}
    for definition in made:
        waiting.discard(definition.symbol)
        if definition.expr.symbols() & waiting:
            return definitions
    return made


def _indices(found: Iterable[int]) -> str:
    """'0', '1-6', '2, 5': runs of numbers."""
    runs: list[list[int]] = []
    for k in found:
        if runs and runs[-1][1] == k - 1:
            runs[-1][1] = k
        else:
            runs.append([k, k])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
