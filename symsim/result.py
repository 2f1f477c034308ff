"""A derivation and its numbers: what `derive` returns, and the object behind `eval --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import symsim
from symsim.architecture import Architecture
from symsim.assumptions import resolve
from symsim.checks import check
from symsim.expr import Number
from symsim.formula import Derivation, Formula
from symsim.lower import Lowered, lower
from symsim.messages import Message
from symsim.passes.count import MODULES, Counted, count
from symsim.passes.reduce import expert_groups
from symsim.sizes import values
from symsim.stages import Stage, kinds_between, layers_before, stages
from symsim.strategy import Strategy


@dataclass(frozen=True)
class Result:
    """The derivation of one model under one strategy.

    `formula(name)` gives a named result as a `Formula`; `value(name)` its exact number at the given sizes.
    """

    model: Architecture
    strategy: Strategy
    assumptions: Mapping[str, str]
    lowered: Lowered
    counted: Counted
    overrides: Mapping[str, Number]

    @property
    def derivation(self) -> Derivation:
        return self.counted.derivation

    def formula(self, name: str) -> Formula:
        """A named definition with all it stands on; KeyError for an unknown name."""
        if name not in self.derivation.definitions:
            raise KeyError(name)
        return self.derivation.formula(name)

    @cached_property
    def stages(self) -> list[Stage]:
        return stages(self.model, self.strategy, self.model.mtp_num_layers)

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
        return found

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """Exact numbers of every definition that does not depend on the stage."""
        known = dict(self.values)
        for definition in self.derivation.definitions.values():
            if definition.group != "stages":
                known[definition.symbol] = definition.expr.evaluate(known)
        return known

    def value(self, name: str) -> Number:
        return self.numbers[name]

    def _checkpointed(self, stage: Stage) -> tuple[dict[str, int], int]:
        """Layers of each kind that a stage recomputes in full, and how many inputs it keeps for that."""
        strategy = self.strategy
        kinds = {k: 0 for k in self.model.kind_names()}
        kept = 0
        for chunk in stage.chunks:
            last = chunk.last if strategy.recompute_method == "uniform" else min(chunk.last, chunk.first + strategy.recompute_num_layers)
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
        holds_last = any(c.last == model.num_layers and c.last > c.first for c in stage.chunks)
        found |= {"first_i": first, "loss_i": loss, "mtp_i": mtp, "last_layer_i": int(holds_last),
                  "mtp_copies_i": min(mtp, 1) if model.mtp_use_repeated_layer else mtp, "embedding_i": int(bool(first or mtp)),
                  "output_i": int(loss and not (model.tie_word_embeddings and first))}
        return found

    def stage_numbers(self, stage: Stage) -> dict[str, Number]:
        """Exact numbers of the stage's definitions."""
        known = {**self.numbers, **self.stage_values(stage)}
        for definition in self.derivation.definitions.values():
            if definition.group == "stages":
                known[definition.symbol] = definition.expr.evaluate(known)
        return known

    def stage_messages(self, stage: Stage) -> list[Message]:
        """What one rank of the stage sends and receives: a micro-batch's messages and the step's."""
        from symsim.traffic import stage_messages

        return stage_messages(self, stage)

    def to_json(self) -> dict[str, Any]:
        """The object of `symsim eval --json` (docs/json.md): counts are integers, bytes are bytes."""
        number = self.numbers
        per_stage = [(s, self.stage_numbers(s)) for s in self.stages]
        marked = expert_groups(self.lowered)
        return {
            "symsim": symsim.__version__,
            "model": self.model.name,
            "strategy": self.strategy.model_dump(mode="json", exclude_none=True),
            "assumptions": dict(self.assumptions),
            "params": {
                "total": int(number["N"]),
                "active": int(number.get("N_active", number["N"])),
                "by_module": {m: int(number[f"N_{m}"]) for m in MODULES if f"N_{m}" in number},
                "per_rank": [
                    {"stage": s.index, "total": int(n["P_stage"]), "expert": int(n["P_stage_expert"]) if marked else 0} for s, n in per_stage],
            },
            "flops": {
                "forward": int(number["F"]),
                "backward": int(number["G"]),
                "recompute": int(number["R"]),
                "by_module": self.flops_by_module(),
                "per_rank": [
                    {"stage": s.index, "forward": int(n["X_stage"]), "backward": int(n["Y_stage"]), "recompute": int(n["Z_stage"])}
                    for s, n in per_stage],
            },
            "hbm_bytes": {"per_rank": [{"stage": s.index, "forward": _whole(n["Q_stage"]), "backward": _whole(n["U_stage"])} for s, n in per_stage]},
            "messages": [m for s, n in per_stage for m in self._messages_json(s, n)],
            "activations": {"saved_per_microbatch": [_whole(n["A_stage"]) for _, n in per_stage]},
        }

    def _messages_json(self, stage: Stage, numbers: Mapping[str, Number]) -> list[dict[str, Any]]:
        return [
            {
                "phase": m.phase, "op": m.op, "axis": m.axis, "group_size": int(m.group.evaluate(numbers)), "count": int(m.count.evaluate(numbers)),
                "send_bytes": _whole(m.send_bytes.evaluate(numbers)), "recv_bytes": _whole(m.receive_bytes.evaluate(numbers)), "dtype": m.dtype,
                "what": m.what, "stage": stage.index, "per": m.per,
            }
            for m in self.stage_messages(stage)
        ]

    def flops_by_module(self) -> dict[str, dict[str, int]]:
        """Forward, backward and recomputed FLOPs of the model by module, one micro-batch."""
        from symsim.passes.count import ascii_name, flops, multiplicity

        found: dict[str, dict[str, Number]] = {}
        times = multiplicity(self.lowered)

        def add(module: str, key: str, n: Number) -> None:
            entry = found.setdefault(module, {"forward": 0, "backward": 0, "recompute": 0})
            entry[key] += n

        for name, block in self.lowered.blocks.items():
            placed, n = block.placed, times[name].evaluate(self.numbers)
            forward = {i: self.numbers[f] for i, f in self.counted.ops[name]}
            for i, value in forward.items():
                add(placed.block.ops[i].module, "forward", value * n)
            for kernel in block.differentiated.backward:
                if kernel.products:
                    value = flops(placed, kernel.forward, kernel.products, local=False).expr.evaluate(self.numbers)
                    add(placed.block.ops[kernel.forward].module, "backward", value * n)
            layers = self.values.get(f"L_{name}_ckpt", 0)
            for variant, count_of in ((block, n - layers), (self.lowered.checkpointed.get(name), layers)):
                if variant is not None and count_of:
                    for i in variant.recomputed & forward.keys():
                        add(placed.block.ops[i].module, "recompute", self.numbers[ascii_name("F", name, placed.block.ops[i].name)] * count_of)
        return {m: {k: int(v) for k, v in entry.items()} for m, entry in sorted(found.items(), key=lambda e: MODULES.index(e[0]))}

    def table(self) -> str:
        """The result in 80 columns of text."""
        from symsim.report.text import eval_table

        return eval_table(self)

    def _repr_html_(self) -> str:
        from symsim.report.html import fragment

        return fragment(self)

    def _repr_latex_(self) -> str:
        return self.formula("N")._repr_latex_()


def _whole(value: Number) -> int:
    """Bytes as an integer; a fraction of a byte (an uneven share) rounds up to what a rank must hold."""
    return -int(-value // 1)


def derive(model: Architecture, strategy: Strategy, assumptions: Mapping[str, str] | None = None,
           overrides: Mapping[str, Number] | None = None) -> Result:
    """Derive the closed formulas of a model under a strategy. InputError when the combination is impossible."""
    if strategy.mtp_num_layers is not None and strategy.mtp_num_layers != model.mtp_num_layers:
        model = model.model_copy(update={"mtp_num_layers": strategy.mtp_num_layers})
    check(model, strategy)
    given = resolve(assumptions or {})
    lowered = lower(model, strategy, given)
    return Result(model, strategy, given, lowered, count(lowered), dict(overrides or {}))
