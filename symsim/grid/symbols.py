"""What one variant of a sweep has of its own: numbers of symbols and fields, each a number or an array over the axes of the whole space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from symsim.cost.step_time import exposed_axes
from symsim.evaluation.quantities import EXPOSED, QUANTITIES
from symsim.grid import within
from symsim.grid.family import Array
from symsim.grid.names import MACHINE, RANKS, Column, field_of, is_number
from symsim.grid.variant import Variant, strategy_at
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, symbol_values

# Symbols of a strategy, and the field or property that gives each
SYMBOLS = {
    "b": "micro_batch_size",
    "s": "seq_length",
    "s_max": "seq_length",
    "u": "packed_document_length",
    "r": "lora_rank",
    "r_e": "lora_expert_rank",
    "o": "oft_block_size",
    "m": "microbatches",
    "tp": "tp",
    "cp": "cp",
    "pp": "pp",
    "vpp": "vpp",
    "ep": "ep",
    "etp": "expert_tp",
    "dp": "dp",
    "edp": "expert_dp",
    "inst": "num_distributed_optimizer_instances",
    "world": "world_size",
}
# fields and ranks that follow from others where they are not given, and what gives their numbers
FOLLOWING = {"world": "world_size", "num_microbatches": "microbatches", "etp": "expert_tp", "microbatch_group_size_per_vp_stage": "group"}


def _symbol(name: str, strategy: Strategy, system: System) -> float:
    return float(symbol_values(system, strategy)[name])


class Symbols:
    """A variant's symbols and fields by name; None for what it does not have."""

    def __init__(self, variant: Variant):
        self.variant, self.family, self.result = variant, variant.family, variant.result

    def of_family(self, name: str) -> Any:
        """A symbol that fields or axes of the grid give, which is the same for all variants of a family."""
        strategy = self.result.strategy
        name = "u" if name == "s" and strategy.padding_free else name
        if name in SYMBOLS and (name != "u" or strategy.document_lengths is None):
            return self.field(SYMBOLS[name])
        if name == "group":
            return self.family.size("group")
        return self._from_axes.get(name)

    def field(self, name: str) -> Any:
        found = self.variant.fields.get(name)
        return self.family.size(name) if found is None else found

    @cached_property
    def _from_axes(self) -> dict[str, Any]:
        """Symbols that an axis of the grid gives directly: lam, numbers of the system, and ranks of a tier without limit."""
        family = self.family
        found: dict[str, Any] = {}
        for column in family.space.columns.values():
            if column.place.part == "symbol":
                found[column.place.key] = family.along(column.axis, [float(v) for v in column.values])
        found |= self._of_system()
        system = self.result.system
        if system is not None:
            for j, tier in enumerate(system.network, 1):
                if tier.ranks == "all":
                    found[f"R_{j}"] = self.field("world_size")
        return found

    def _of_system(self) -> dict[str, Any]:
        """Symbols that numbers of the system decide which vary: each over all axes that it depends on together."""
        if self.result.system is None:
            return {}
        fixed, varying = self._changes()
        moved: dict[str, list[Column]] = {}
        if not varying:
            return {}
        strategy = strategy_at(self.variant.fields, self.variant.point)
        start = symbol_values(self._system(fixed), strategy)
        for column in varying:
            rows = [symbol_values(self._system({**fixed, column.place.key: v}), strategy) for v in column.values]
            assert all(r.keys() == start.keys() for r in rows)
            for name in start:
                if name != "world" and any(r[name] != start[name] for r in rows):
                    moved.setdefault(name, []).append(column)
        return {name: self._over(partial(_symbol, name, strategy), columns, fixed) for name, columns in moved.items()}

    def _changes(self) -> tuple[dict[tuple[str, ...], str], list[Column]]:
        """What is changed of the system, with values of this variant, and the columns of numbers that vary within it."""
        fixed = dict(self.family.space.base.system_changes)
        varying = []
        for column in self.family.space.columns.values():
            if column.place.part == "system":
                fixed[column.place.key] = column.values[self.variant.chosen[column.axis][0]]
                if is_number(column) and len(column.values) > 1:
                    varying.append(column)
        return fixed, varying

    def of_systems(self, read: Callable[[System, Strategy], float]) -> Any:
        """What is read of the system at every point, over the axes that numbers of it lie on."""
        assert self.result.system is not None
        fixed, varying = self._changes()
        strategy = strategy_at(self.variant.fields, self.variant.point)
        return self._over(lambda system: read(system, strategy), varying, fixed) if varying else read(self.result.system, strategy)

    def _over(self, read: Callable[[System], float], columns: Sequence[Column], fixed: Mapping[tuple[str, ...], str]) -> Array:
        """What is read of the system over the axes of these columns (columns of one axis vary together)."""
        sizes = self.family.space.sizes
        axes = sorted({c.axis for c in columns})
        made = np.empty([sizes[a] if a in axes else 1 for a in range(len(sizes))])
        for position in np.ndindex(made.shape):
            changes = {**fixed, **{c.place.key: c.values[position[c.axis]] for c in columns}}
            made[position] = float(read(self._system(changes)))
        return made

    def _system(self, changes: Mapping[tuple[str, ...], str]) -> Any:
        return self.family.space.system(self.family.fixed["machine"], changes)

    def capacity(self) -> Any:
        """Memory of one accelerator, which an axis may vary."""
        memory = ("accelerator", "memory")
        space = self.family.space
        column = next((c for c in space.columns.values() if c.place.part == "system" and c.place.key == memory), None)
        assert self.result.system is not None
        if column is None:
            return int(self.result.system.accelerator.memory.value)
        systems = [self._system({**space.base.system_changes, memory: text}) for text in column.values]
        return self.family.along(column.axis, [float(s.accelerator.memory.value) for s in systems])

    def along(self, name: str) -> Any:
        """The values of an axis by its own name, where they are numbers."""
        column = next((c for c in self.family.space.columns.values() if name in (c.name, ".".join(c.place.key))), None)
        if column is None or not all(isinstance(v, (int, float)) for v in column.shown):
            return None
        return self.family.along(column.axis, [float(v) for v in column.shown])

    def sort(self, name: str) -> str | None:
        """What a name holds here: a 'number', a 'truth' or 'text', or 'nothing' for an option not given; None for a name that there is not."""
        if name == MACHINE or name.startswith("assume."):
            return "text" if self.option(name) is not None else None
        own = field_of(name)
        if own in Strategy.model_fields:
            found = self.variant.fields.get(own, 0)
            if own in FOLLOWING:
                return "number"
            if isinstance(found, np.ndarray):
                return "truth" if found.dtype == bool else "number"
            return "nothing" if found is None else "truth" if isinstance(found, bool) else "text" if isinstance(found, (str, tuple)) else "number"
        if own in RANKS or self.along(name) is not None:
            return "number"
        known = QUANTITIES.get(name)
        definitions = self.result.derivation.definitions
        if known is not None:
            if known.timed and self.result.system is None:
                return None
            there = known.symbol in definitions or known.symbol in ("exposed", "memory", "world", "N_active", "N_trained", within.LOW, within.HIGH)
            return "number" if there else None
        if name.startswith(EXPOSED):
            return "number" if name.removeprefix(EXPOSED) in exposed_axes(self.result.derivation) else None
        return "number" if name in definitions or name in self.result.values else None

    def option(self, name: str) -> str | None:
        """What a field, an assumption or the system is here, as text; None where it is no such name, or varies."""
        if name == MACHINE:
            machine: str | None = self.family.fixed["machine"]
            return machine
        if name.startswith("assume."):
            return self.result.assumptions.get(name.removeprefix("assume."))
        found = self.variant.fields.get(field_of(name))
        if field_of(name) not in self.variant.fields or isinstance(found, np.ndarray):
            return None
        return text_of(found)
