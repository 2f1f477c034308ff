"""A derivation at given sizes: exact numbers of its definitions, for the model and for every pipeline stage."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from symsim.algebra.expr import Call, Expr, Number
from symsim.algebra.formula import Derivation, Formula
from symsim.algebra.quantity import Definition
from symsim.algebra.reductions import Line, first_of_largest, members, named, reduced, stage_runs
from symsim.cost.count import Counted
from symsim.cost.step_time import exposed_axes
from symsim.errors import InputError, cut, nearest
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, symbol_values
from symsim.lowering.lowered import Lowered
from symsim.pipeline.stages import Stage, kinds_between, layers_before, stages
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

    def formula(self, name: str) -> Formula:
        """A definition by its symbol or dotted name (time.step), with all it stands on; a KeyError that names the nearest where there is none."""
        symbol = _symbol_of(self, name)
        if symbol not in self.derivation.definitions:
            raise _unknown(self, name, list(self.derivation.definitions))
        return replace(self.derivation.formula(symbol), line=self._any_line)

    @cached_property
    def _any_line(self) -> Line:
        """The stages of the pipeline in classes of equal ones, at any number of micro-batches."""
        from symsim.program.fullest import line_at_any

        return line_at_any(self.strategy, map(self.stage_values, self.stages), int(self.values["group"]))

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
    def embedding_copies(self) -> int:
        """Stages that hold a copy of the embedding table."""
        return sum(s.embedding or bool(s.mtp) or (s.loss and self.model.tie_word_embeddings) for s in self.stages)

    @cached_property
    def values(self) -> dict[str, Number]:
        """Every symbol with its number, sizes of layer kinds included."""
        found = values(self.model, self.strategy) | dict(self.overrides)
        counts = layers_before(self.model, self.model.num_layers)
        for kind, layers in counts.items():
            found[f"L_{kind}"] = layers.constant()
            spec = self.model.layer_kinds[kind]
            if spec.window:
                found["w"] = spec.window
            if spec.ffn_hidden_size:
                found[f"f_{kind}"] = spec.ffn_hidden_size
        for kind in self.lowered.checkpointed:
            found[f"L_{kind}_ckpt"] = sum(self._checkpointed(s)[0][kind] for s in self.stages)
        if self.system is not None:
            found |= symbol_values(self.system, self.strategy)
        return found

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """Exact numbers of every definition that does not depend on the stage."""
        known = dict(self.values)
        for definition in self.derivation.definitions.values():
            if definition.group not in ("stages", "step"):
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
            if definition.group == "step":
                value, nodes = named(definition.expr)
                own = {name: self._reduced(call) for name, call in nodes.items()}
                known[definition.symbol] = value.evaluate(ChainMap(own, known) if own else known)
        return known

    def _reduced(self, call: Call) -> Number:
        """The number of a reduction over stages."""

        def at(stage: int, body: Expr, given: Mapping[str, Number]) -> Number:
            return body.evaluate(ChainMap(dict(given), self.stage_numbers(self.stages[stage])))

        value: Number = reduced(call, self.line, at, self.placed_names, max, first_of_largest)
        return value

    @cached_property
    def line(self) -> Line:
        """The stages of the pipeline in classes of equal ones, at this number of micro-batches."""
        runs = stage_runs(self.stage_values(stage) for stage in self.stages)
        names = tuple(n for n in self.stage_values(self.stages[0]) if n != "i")
        return Line(names, runs, members(runs))

    def _checkpointed(self, stage: Stage) -> tuple[dict[str, int], int]:
        """Layers of each kind that a stage recomputes in full, and how many inputs it keeps for that."""
        strategy = self.strategy
        kinds = {k: 0 for k in self.model.kind_names()}
        kept = 0
        own = strategy.recompute_layers_per_stage
        for chunk in stage.chunks:
            last = chunk.last if strategy.recompute_method == "uniform" else min(chunk.last, chunk.first + strategy.recompute_num_layers)
            if own is not None:
                last = min(chunk.last, chunk.first + own[stage.index])
            for kind, n in kinds_between(self.model, chunk.first, last).items():
                kinds[kind] += n
            size = last - chunk.first
            kept += -(-size // strategy.recompute_num_layers) if strategy.recompute_method == "uniform" else size
        return kinds, kept

    def stage_values(self, stage: Stage) -> dict[str, Number]:
        """The stage's own symbols: layers of each kind, and what else it holds."""
        model = self.model
        found: dict[str, Number] = {"i": stage.index}
        for kind in model.kind_names():
            found[f"L_{kind}_i"] = sum(kinds_between(model, c.first, c.last)[kind] for c in stage.chunks)
        if self.lowered.checkpointed:
            kinds, kept = self._checkpointed(stage)
            found |= {f"L_{k}_ckpt_i": n for k, n in kinds.items()} | {"checkpoints_i": kept}
        first, loss, mtp = int(stage.embedding), int(stage.loss), stage.mtp
        # the final norm is with the loss, or with the last layer where depths of MTP read it (transformer_block.py)
        holds_norm = any(c.last == model.num_layers and c.last > c.first for c in stage.chunks) if model.mtp_num_layers else stage.loss
        found |= {
            "first_i": first,
            "loss_i": loss,
            "mtp_i": mtp,
            "last_layer_i": int(holds_norm),
            "mtp_copies_i": min(mtp, 1) if model.mtp_use_repeated_layer else mtp,
            "embedding_i": int(bool(first or mtp)),
            "output_i": int(loss and not (model.tie_word_embeddings and first)),
        }
        if self.assumptions["pipeline_scatter_gather"] == "true":
            found |= {"received_i": stage.received, "returned_i": stage.sent}
        return found

    def stage_numbers(self, stage: Stage) -> dict[str, Number]:
        """Numbers of the stage's definitions. Stages that hold the same are evaluated once, save what depends on `i`."""
        own = self.stage_values(stage)
        alike = tuple(v for n, v in own.items() if n != "i")
        if alike not in self._alike:
            known = {**self.numbers, **own}
            for definition in self.stage_definitions[0]:
                known[definition.symbol] = definition.expr.evaluate(known)
            self._alike[alike] = known
        known = {**self._alike[alike], "i": stage.index}
        for definition in self.stage_definitions[1]:
            known[definition.symbol] = definition.expr.evaluate(known)
        return known

    @cached_property
    def _alike(self) -> dict[tuple[Number, ...], dict[str, Number]]:
        return {}

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
            if definition.group != "stages":
                continue
            if definition.expr.symbols() & placed:
                placed.add(definition.symbol)
                differing.append(definition)
            else:
                same.append(definition)
        return same, differing


class UnknownName(InputError, KeyError):
    """A name that a result does not have; the sentence names the nearest."""

    __str__ = Exception.__str__


def _symbol_of(result: Evaluation, name: str) -> str:
    """The definition behind a dotted name (time.step: t_step); another name is its own."""
    from symsim.evaluation.quantities import EXPOSED, QUANTITIES

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
    if name == "memory.capacity":
        assert result.system is not None
        return -int(-result.system.accelerator.memory.value // 1)
    if name == "world":
        return result.strategy.world_size
    symbol = _symbol_of(result, name)
    if symbol == "exposed":
        return sum(result.step_numbers[n] for n in exposed_axes(result.derivation).values())
    if symbol == "N_active" and symbol not in result.numbers:
        symbol = "N"
    for known in (result.numbers, result.step_numbers):
        if symbol in known:
            return known[symbol]
    if entry is not None and entry.over in ("stages", "fullest"):
        stages = [result.stage_numbers(s) for s in result.stages]
        if entry.over == "fullest":
            return max(stages, key=lambda n: n["M_stage_peak"])[symbol]
        return max(n[symbol] for n in stages)
    raise _unknown(result, name, [*result.numbers, *result.step_numbers])


def _unknown(result: Evaluation, name: str, known: list[str]) -> UnknownName:
    """Why there is no such name: the nearest of those that people mean, then of all."""
    from symsim.evaluation.quantities import QUANTITIES

    if name in result.derivation.definitions and name not in known:
        return UnknownName(f"each stage has its own {name}: stage_numbers(stage) gives it, formula('{name}') its formula")
    for choices in (list(QUANTITIES), known):
        hint = nearest(name, choices, "")
        if hint:
            return UnknownName(f"there is no '{cut(name)}': {hint}")
    return UnknownName(f"there is no '{cut(name)}': 'symsim list quantities' and result.derivation.definitions have the names")
