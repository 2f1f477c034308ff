"""A derivation at given sizes: exact numbers of its definitions, for the model and for every pipeline stage."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from symsim.algebra.even import EvenLine
from symsim.algebra.expr import Call, Expr, Number, expr
from symsim.algebra.formula import Derivation, Formula
from symsim.algebra.key import Key, Scope, layers, layers_of_model
from symsim.algebra.quantity import NONE, SECOND, Definition
from symsim.algebra.reductions import Holdings, Line, OverLine, first_of_largest, members, named, reduced, stage_runs
from symsim.algebra.vocabulary import across
from symsim.cost.count import Counted
from symsim.cost.further import further
from symsim.cost.step_time import exposed_axes, network_of
from symsim.errors import InputError, cut, nearest
from symsim.inputs.architecture import Architecture
from symsim.inputs.deciding import DEGREES, SIZES, deciding
from symsim.inputs.run import asks_run, run_values
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, symbol_values
from symsim.inputs.traced import Memory
from symsim.inputs.trained import as_named
from symsim.lowering.lowered import Lowered
from symsim.pipeline.even import even_line
from symsim.pipeline.fullest import falls, fullest
from symsim.pipeline.schedules import schedule_of, schedule_sizes, window_of
from symsim.pipeline.shared import held_elsewhere, own_copies, shared
from symsim.pipeline.stages import Stage, kinds_between, sizes_of_kinds, stages
from symsim.placement.names import Placement, table
from symsim.placement.sizes import values


@dataclass(frozen=True)
class Evaluation:
    """One model under one strategy: its lowering, its definitions, and what the user overrides."""

    model: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str]
    lowered: Lowered
    counted: Counted
    overrides: Mapping[str, Number]
    system: System | None = None

    @property
    def derivation(self) -> Derivation:
        return self.counted.derivation

    @cached_property
    def beside(self) -> Memory:
        """What passes made in derivations with other options (`symsim/evaluation/beside.py`)."""
        return Memory(SIZES, DEGREES, deciding(self.model))

    def formula(self, name: str) -> Formula:
        """A definition by its symbol or dotted name (time.step), with all it stands on; a KeyError that names the nearest where there is none."""
        symbol = _symbol_of(self, name)
        book = self.derivation if symbol in self.derivation.definitions else self.further
        if symbol not in book.definitions:
            raise _unknown(self, name, list(book.definitions))
        found = book.formula(symbol)
        return replace(self._over_stages(found), sizes=partial(self._sizes_of, found.result))

    def _sizes_of(self, definition: Definition) -> Mapping[str, Number]:
        """Numbers of all symbols; of a stage's those of the one that takes longest, or whose rank is the fullest."""
        if definition.key.scope != "stage":
            return self.values
        place = self.slowest if definition.unit == SECOND else self.fullest
        return {**self.values, **self.stage_values(self.stages[place])}

    def formula_of(self, amount: Expr, without: Collection[str] = ()) -> Formula:
        """An expression over definitions and symbols as a formula, of which no unit is known; `without`: definitions that stay symbols."""
        direct = amount.symbols() - set(without)
        book = self.derivation if direct <= self.derivation.definitions.keys() | self.values.keys() else self.further
        if not direct & book.definitions.keys():
            return Formula((Definition(Key("difference", "step"), amount, NONE, "symsim less published"),))
        known = {n: d for n, d in book.definitions.items() if n not in without}
        # what a reduction goes over is no longer of a stage
        outside = named(amount)[0].symbols()
        scope: Scope = "stage" if any(known[n].key.scope == "stage" for n in outside & known.keys()) else "step"
        asked = Definition(Key("difference", scope), amount, NONE, "symsim less published")
        return self._over_stages(Derivation({**known, asked.symbol: asked}).formula(asked.symbol))

    def _over_stages(self, found: Formula) -> Formula:
        if not any(d.key.scope == "stage" for d in found.definitions):
            return found
        placed = any(d.symbol in self.placed_names for d in found.definitions)
        # of equal stages the first is the fullest, unless the schedule says otherwise
        even = self._even_line if not placed or falls(schedule_of(self.strategy)) else None
        return replace(found, line=even or self._any_line)

    @cached_property
    def _even_line(self) -> EvenLine | None:
        """The stages over pp, where the layers are cut evenly."""

        def symbols_at(pp: int) -> list[Mapping[str, Number]]:
            at = replace(self, strategy=self.strategy.model_copy(update={"pp": pp}))
            return [at.stage_values(stage) for stage in at.stages]

        return even_line(self.model.num_layers, self.strategy, symbols_at)

    @cached_property
    def further(self) -> Derivation:
        """The definitions, and those that are made when one of them is asked for by name (`symsim list definitions`)."""
        if not self.counted.ops:  # read back from a disk, without what further ones are made of
            return self.derivation
        book = Derivation(dict(self.derivation.definitions))
        return further(self.lowered, book, network_of(book, self.system, self.lowered) if self.system is not None else None)

    def definitions(self, *quantities: str, **fields: object) -> list[Definition]:
        """All definitions of these quantities (of any, where none is named) whose keys have these fields: definitions("G", block="dense"),
        definitions(scope="stage", module="attention"). InputError for a field that keys do not have."""
        for name in fields:
            if name not in Key._fields:
                raise InputError(f"a key has no '{cut(name)}': {nearest(name, Key._fields)}")
        return self.further.of(*quantities, **fields)

    @cached_property
    def _any_line(self) -> Line:
        """The stages of the pipeline in classes of equal ones, at any number of micro-batches."""
        from symsim.program.fullest import line_at_any

        return line_at_any(self.strategy, map(self.stage_values, self.stages), int(self.values["group"]))

    @cached_property
    def architecture(self) -> Architecture:
        """The model with its layer kinds by the user's names, from which another derivation starts."""
        return as_named(self.model)

    @property
    def placement(self) -> Placement:
        """Where every named dimension and every store of parameters lies on the mesh; printed, a line each."""
        return self.lowered.mesh.placement

    def placed(self) -> list[tuple[str, str]]:
        """(dimensions of the model, the axes of more than one rank they lie on)."""
        blocks = [b.placed.block for b in self.lowered.blocks.values()]
        named = {d for b in blocks for t in b.tensors.values() for d in t.dims}
        parts = {p for b in blocks for d in named & b.dims.keys() for p in b.dims[d].parts}
        return table(self.placement, named | parts, self.lowered.mesh.degrees)

    @cached_property
    def stages(self) -> list[Stage]:
        return stages(self.model, self.strategy, self.model.mtp_num_layers)

    @cached_property
    def values(self) -> dict[str, Number]:
        """Every symbol with its number, sizes of layer kinds included."""
        found = values(self.model, self.strategy) | dict(self.overrides) | sizes_of_kinds(self.model)
        for kind in self.lowered.checkpointed:
            again = layers(kind, again=True).text
            found[layers_of_model(kind, again=True).text] = sum(self.stage_values(s)[again] for s in self.stages)
        if self.system is not None:
            found |= symbol_values(self.system, self.strategy)
        return found | run_values(self.overrides, self.strategy) if asks_run(self.overrides) else found

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """Exact numbers of every definition that does not depend on the stage."""
        known = dict(self.values)
        for definition in self.derivation.definitions.values():
            if definition.key.scope not in ("stage", "step"):
                known[definition.symbol] = definition.expr.evaluate(known)
        return known

    def value(self, name: str) -> Number:
        """The number of a definition of the model or of the whole step by its symbol, or of a quantity by its dotted name
        (`symsim list quantities`); a KeyError that names the nearest where there is none."""
        return _value(self, name)

    @cached_property
    def step_numbers(self) -> dict[str, Number]:
        """Numbers of the whole pipeline: reductions over stages, and what stands on them."""
        known = dict(self.numbers)
        for definition in self.derivation.definitions.values():
            if definition.key.scope == "step":
                value, nodes = named(definition.expr)
                own = {name: self._reduced(call) for name, call in nodes.items()}
                known[definition.symbol] = value.evaluate(ChainMap(own, known) if own else known)
        return known

    @cached_property
    def fullest(self) -> int:
        """The stage whose rank needs most memory, the first of equal ones."""
        return max(self.line.places, key=lambda place: self.stage_numbers(self.stages[place])["M_stage_peak"])

    @cached_property
    def slowest(self) -> int:
        """The stage whose micro-batch takes longest, the first of equal ones."""
        return max(self.line.first.values(), key=lambda place: self.stage_numbers(self.stages[place])["t_stage"])

    def _reduced(self, call: Call) -> Number:
        """The number of a reduction over stages."""

        def at(stage: int, body: Expr, given: Mapping[str, Number]) -> Number:
            numbers = self.stage_numbers(self.stages[stage])
            return body.evaluate(ChainMap(dict(given), *numbers.maps) if given else numbers)

        value: Number = reduced(call, OverLine(self.line, at, self.placed_names, max, first_of_largest))
        return value

    @cached_property
    def line(self) -> Line:
        """The stages of the pipeline in classes of equal ones, at this number of micro-batches."""
        runs = stage_runs(self.stage_values(stage) for stage in self.stages)
        names = tuple(n for n in self.stage_values(self.stages[0]) if n != "i")
        schedule, sizes = schedule_of(self.strategy), schedule_sizes(self.strategy)
        return Line(names, runs, {held: fullest(schedule, own, sizes) for held, own in members(runs).items()})

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Stages that hold the same and send as many messages together, in order of the first."""
        found: dict[object, list[int]] = {}
        for stage in self.stages:
            found.setdefault((_held(self.stage_values(stage)), stage.sent, stage.received), []).append(stage.index)
        return tuple(map(tuple, found.values()))

    def alike_in(self, names: Collection[str]) -> list[tuple[int, ...]]:
        """Stages that have the same numbers of these definitions, known before they are evaluated: those that hold the same and,
        where a definition depends on the place, have as much in flight."""
        needed = set(names)
        for definition in reversed(self.stage_definitions[1]):
            needed |= definition.expr.symbols() if definition.symbol in needed else set()
        direct = [d for d in self._placed[0] if d.symbol in needed]
        found: dict[object, list[int]] = {}
        for held, equal in self.line.members.items():
            known: dict[str, Expr | Number] = {**self._alike(self.stages[equal[0]])}
            del known["i"]
            for d in direct:
                known[d.symbol] = d.expr.substitute({n: known[n] for n in d.expr.symbols() - {"i"}})
            own = [expr(known[d.symbol]) for d in direct]
            for stage in equal:
                found.setdefault((held, *(e.evaluate({"i": stage}) for e in own)), []).append(stage)
        return sorted(map(tuple, found.values()))

    def _checkpointed(self, stage: Stage) -> tuple[dict[str, int], int]:
        """Layers of each kind that a stage recomputes in full, and how many inputs it keeps for that."""
        strategy = self.strategy
        kinds = {k: 0 for k in self.model.kind_names()}
        kept = 0
        own = strategy.recompute_layers_per_stage
        left = own[stage.index] if own is not None else 0
        for chunk in stage.chunks:
            last = chunk.last if strategy.recompute_method == "uniform" else min(chunk.last, chunk.first + strategy.recompute_num_layers)
            if own is not None:
                last = min(chunk.last, chunk.first + left)
                left -= last - chunk.first
            for kind, n in self._held_between(stage, chunk.first, last).items():
                kinds[kind] += n
            size = last - chunk.first
            kept += -(-size // strategy.recompute_num_layers) if strategy.recompute_method == "uniform" else size
        return kinds, kept

    def _held_between(self, stage: Stage, first: int, last: int) -> dict[str, int]:
        """Layers [first, last) of a stage by the kinds that they are counted as there."""
        found, kinds = kinds_between(self.model, first, last), self._kinds
        for layer, kind in own_copies(self.model, stage).items() if self.model.shares_weights else ():
            if first <= layer < last:
                found[kinds[layer]] -= 1
                found[kind] += 1
        return found

    @cached_property
    def _kinds(self) -> list[str]:
        return [kind for segment in self.model.layers for kind in segment.kinds * segment.repeat]

    @cached_property
    def _shared(self) -> list[dict[str, Number]]:
        """Of every stage the weights that others have too, by symbol."""
        found = held_elsewhere(self.model, self.stages)
        every = {key for here in found for key in here}
        return [{shared(*key): here[key] for key in every} for here in found]

    def stage_values(self, stage: Stage) -> Mapping[str, Number]:
        """The stage's own symbols: layers of each kind, and what else it holds."""
        if stage.index not in self._own:
            found = self._values_of(stage)
            if schedule_of(self.strategy).mirrored:
                other = self._values_of(self.stages[-1 - stage.index])
                found |= {across(name): n for name, n in other.items() if name != "i"}
            self._own[stage.index] = found
        return self._own[stage.index]

    @property
    def gathers_boundaries(self) -> bool:
        """Whether stages have numbers of what they gather on arrival, whether or not this strategy does."""
        # a sweep asks for them where another of its strategies gathers; `get` is no reading of an assumption
        return self.assumptions.get("pipeline_scatter_gather") == "true"

    @cached_property
    def _own(self) -> dict[int, Mapping[str, Number]]:
        return {}

    def _values_of(self, stage: Stage) -> dict[str, Number]:
        model = self.model
        found: dict[str, Number] = {"i": stage.index}
        held = [self._held_between(stage, c.first, c.last) for c in stage.chunks]
        found |= {layers(kind).text: sum(own[kind] for own in held) for kind in model.kind_names()}
        if model.shares_weights:
            found |= self._shared[stage.index]
        if self.lowered.checkpointed:
            kinds, kept = self._checkpointed(stage)
            found |= {layers(k, again=True).text: n for k, n in kinds.items()} | {"checkpoints_i": kept}
        alone = self.lowered.alone
        first, loss, mtp = int(stage.embedding and not alone), int(stage.loss and not alone), 0 if alone else stage.mtp
        # the final norm is with the loss, or with the last layer where depths of MTP read it (transformer_block.py)
        holds_norm = any(c.last == model.num_layers and c.last > c.first for c in stage.chunks) if model.mtp_num_layers and not alone else loss
        found |= {
            "first_i": first,
            "loss_i": loss,
            "mtp_i": mtp,
            "last_layer_i": int(holds_norm),
            "mtp_copies_i": min(mtp, 1) if mtp and model.mtp_use_repeated_layer else mtp,
            "embedding_i": int(bool(first or mtp)),
            "output_i": int(loss and not (model.tie_word_embeddings and first)),
        }
        partial = self.strategy.num_microbatches_with_partial_activation_checkpoints
        if partial is not None:
            window = window_of(self.strategy, stage.index)
            found |= {"window_i": window, "whole_i": min(partial, window)}
        if self.gathers_boundaries:
            found |= {"received_i": stage.received, "returned_i": stage.sent}
        return found

    def stage_numbers(self, stage: Stage) -> ChainMap[str, Number]:
        """Numbers of the stage's definitions. Stages that hold the same are evaluated once, save what depends on the place."""
        if stage.index not in self._here:
            alike = self._alike(stage)
            direct = self._direct(stage.index, alike)
            here: dict[str, Number] = {"i": stage.index, **direct}
            # of stages with as many micro-batches in flight the rest is the same
            key = (_held(self.stage_values(stage)), *direct.values())
            if key not in self._placed_known:
                known = {**alike, **here}
                for definition in self._placed[1]:
                    known[definition.symbol] = definition.expr.evaluate(known)
                self._placed_known[key] = {d.symbol: known[d.symbol] for d in self._placed[1]}
            self._here[stage.index] = here, self._placed_known[key], alike
        return ChainMap(*self._here[stage.index])

    def _alike(self, stage: Stage) -> dict[str, Number]:
        """Numbers that all stages have that hold what this one does."""
        own = self.stage_values(stage)
        held = _held(own)
        if held not in self._known:
            known = {**self.numbers, **own}
            for definition in self.stage_definitions[0]:
                known[definition.symbol] = definition.expr.evaluate(known)
            self._known[held] = known
        return self._known[held]

    def _direct(self, index: int, alike: dict[str, Number]) -> dict[str, Number]:
        """Numbers of the definitions that hold the place itself."""
        here: dict[str, Number] = {"i": index}
        for definition in self._placed[0]:
            here[definition.symbol] = definition.expr.evaluate(ChainMap(here, alike))
        del here["i"]
        return here

    @cached_property
    def _known(self) -> dict[Holdings, dict[str, Number]]:
        return {}

    @cached_property
    def _here(self) -> dict[int, tuple[dict[str, Number], dict[str, Number], dict[str, Number]]]:
        """By stage: what holds its place, what stands on that, and what its equals share."""
        return {}

    @cached_property
    def _placed_known(self) -> dict[tuple[object, ...], dict[str, Number]]:
        return {}

    @cached_property
    def _placed(self) -> tuple[list[Definition], list[Definition]]:
        """Definitions that depend on the place: up to the last that holds `i` itself, and the rest, which stands on them."""
        every = self.stage_definitions[1]
        direct = max((n + 1 for n, d in enumerate(every) if "i" in d.expr.symbols()), default=0)
        return every[:direct], every[direct:]

    @cached_property
    def placed_names(self) -> frozenset[str]:
        """Names of a stage that depend on its place in the pipeline."""
        return frozenset({"i", *(d.symbol for d in self.stage_definitions[1])})

    @cached_property
    def stage_definitions(self) -> tuple[list[Definition], list[Definition]]:
        """Definitions of a stage: those that follow from what it holds, and those that depend on its place in the pipeline."""
        placed = {"i"}
        same, differing = [], []
        for definition in self.derivation.definitions.values():
            if definition.key.scope != "stage":
                continue
            if definition.expr.symbols() & placed:
                placed.add(definition.symbol)
                differing.append(definition)
            else:
                same.append(definition)
        return same, differing


def _held(symbols: Mapping[str, Number]) -> Holdings:
    """What a stage holds, without its place."""
    return tuple(int(v) for n, v in symbols.items() if n != "i")


class UnknownName(InputError, KeyError):
    """A name that a result does not have; the sentence names the nearest."""

    __str__ = Exception.__str__


def _symbol_of(result: Evaluation, name: str) -> str:
    """The definition behind a dotted name (time.step: t_step); another name is its own."""
    from symsim.evaluation.quantities import EXPOSED, QUANTITIES

    if not isinstance(name, str):
        raise UnknownName(f"{cut(repr(name))} is no name: text such as 'time.step' is")
    if name.startswith(EXPOSED):
        return exposed_axes(result.derivation).get(name.removeprefix(EXPOSED), name)
    return QUANTITIES[name].symbol if name in QUANTITIES else name


def _value(result: Evaluation, name: str) -> Number:
    """A number of the model, of the whole step, or, for what each stage has its own of, that of the rank that has most.

    UnknownName (a KeyError) for a name that there is not, or that needs a system.
    """
    from symsim.evaluation.quantities import QUANTITIES

    entry = QUANTITIES.get(name)
    if entry is not None and entry.timed and result.system is None:
        raise UnknownName(f"{name} needs a system: derive(..., system='h100-sxm') gives one")
    if entry is not None and entry.of_run and not asks_run(result.overrides):
        raise UnknownName(f"{name} needs a run: overrides={{'tokens': '15T'}}, steps or days says how long it is")
    if name == "memory.capacity":
        assert result.system is not None
        return -int(-result.system.accelerator.memory.value // 1)
    if name == "world":
        return result.strategy.world_size
    symbol = _symbol_of(result, name)
    if symbol == "exposed":
        return sum(result.step_numbers[n] for n in exposed_axes(result.derivation).values())
    if symbol in ("N_active", "N_trained") and symbol not in result.numbers:
        symbol = "N"
    for known in (result.numbers, result.step_numbers):
        if symbol in known:
            return known[symbol]
    if entry is not None and entry.over in ("stages", "fullest"):
        if entry.over == "fullest":
            return result.stage_numbers(result.stages[result.fullest])[symbol]
        places = result.line.places if symbol in result.placed_names else result.line.first.values()
        return max(result.stage_numbers(result.stages[place])[symbol] for place in places)
    found = None if symbol in result.derivation.definitions else result.further.definitions.get(symbol)
    if found is not None and found.key.scope != "stage":
        return result.formula(symbol).value(result.values)
    raise _unknown(result, name, [*result.numbers, *result.step_numbers])


def _unknown(result: Evaluation, name: str, known: list[str]) -> UnknownName:
    """Why there is no such name: the nearest of those that people mean, then of all."""
    from symsim.evaluation.quantities import A_RUN, NEEDED, QUANTITIES, entry_of

    if name in result.derivation.definitions and name not in known:
        return UnknownName(f"each stage has its own {name}: stage_numbers(stage) gives it, formula('{name}') its formula")
    if name in result.further.definitions and name not in known:
        return UnknownName(f"each stage has its own {name}: formula('{name}').value({{**result.values, **result.stage_values(stage)}}) gives it")
    if result.system is None and any(entry.symbol == name and entry.timed for entry in QUANTITIES.values()):
        return UnknownName(f"{name} needs a system: -y h100-sxm gives one, derive(..., system='h100-sxm') in Python")
    entry = entry_of(name)
    if entry is not None and entry.of_run and not asks_run(result.overrides):
        return UnknownName(f"{name} needs a run: {A_RUN}")
    if entry is not None and entry.unit in NEEDED:
        return UnknownName(f"{name} needs {NEEDED[entry.unit]}")
    for choices in (list(QUANTITIES), known, list(result.further.definitions)):
        hint = nearest(name, choices, "")
        if hint:
            return UnknownName(f"there is no '{cut(name)}': {hint}")
    return UnknownName(f"there is no '{cut(name)}': 'symsim list quantities' has names, 'symsim formula MODEL' those of formulas")
