"""A derivation and its outputs: what `derive` returns, and the object behind `eval --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import symsim
from symsim.architecture import Architecture
from symsim.assumptions import resolve
from symsim.buffers import gradient_buffers
from symsim.checks import check
from symsim.errors import InputError
from symsim.evaluation import Evaluation
from symsim.expr import Number
from symsim.loading import override_architecture, override_strategy, override_system, settings_of
from symsim.lower import lower
from symsim.memory import HOST_PARTS, STAGE_PARTS, binding_moment, peak_memory
from symsim.messages import Message
from symsim.passes.count import MODULES, ascii_name, count, flops, multiplicity
from symsim.passes.reduce import expert_groups
from symsim.placement import Placement, table
from symsim.stages import Stage
from symsim.step_time import HEADLINES, STAGE_TIMES, exposed_axes, step_time
from symsim.strategy import Strategy
from symsim.system import System
from symsim.traffic import stage_messages
from symsim.trained import trained


@dataclass(frozen=True)
class Result(Evaluation):
    """The derivation of one model under one strategy.

    `formula(name)` gives a named result as a `Formula`; `value(name)` its exact number at the given sizes.
    """

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

    def stage_messages(self, stage: Stage) -> list[Message]:
        """What one rank of the stage sends and receives: a micro-batch's messages and the step's."""
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
            "symbols": {name: int(value) if value == int(value) else float(value) for name, value in self.values.items()},
            "params": {
                "total": int(number["N"]),
                "active": int(number.get("N_active", number["N"])),
                "by_module": {m: int(number[f"N_{m}"]) for m in MODULES if f"N_{m}" in number},
                "per_rank": [
                    {"stage": s.index, "total": int(n["P_stage"]), "expert": int(n["P_stage_expert"]) if marked else 0} for s, n in per_stage
                ],
            },
            "flops": {
                "forward": int(number["F"]),
                "backward": int(number["G"]),
                "recompute": int(number["R"]),
                "by_module": self.flops_by_module(),
                "per_rank": [
                    {"stage": s.index, "forward": int(n["X_stage"]), "backward": int(n["Y_stage"]), "recompute": int(n["Z_stage"])}
                    for s, n in per_stage
                ],
            },
            "hbm_bytes": {"per_rank": [{"stage": s.index, "forward": _whole(n["Q_stage"]), "backward": _whole(n["U_stage"])} for s, n in per_stage]},
            "messages": [m for s, n in per_stage for m in self._messages_json(s, n)],
            "gradient_buffers": [
                {"stage": s.index, "chunk": b.chunk, "kind": b.kind, "elements": b.elements, "buckets": len(b.buckets)}
                for s in self.stages
                for b in gradient_buffers(self, s)
            ],
            "activations": {"saved_per_microbatch": [_whole(n["A_stage"]) for _, n in per_stage]},
            "memory": self._memory_json([n for _, n in per_stage]),
            **self._time_json(),
        }

    def _memory_json(self, per_stage: list[dict[str, Number]]) -> dict[str, Any]:
        """Bytes of one rank of each stage; `transient` is what the peak holds beyond the others, `at` the moment it is held."""
        stages: list[dict[str, Any]] = []
        for stage, number in zip(self.stages, per_stage):
            parts = {part: _whole(number[f"M_stage_{part}"]) for part in STAGE_PARTS}
            host = {key: _whole(number[name]) for key, name in HOST_PARTS.items() if name in number}
            stages.append({"stage": stage.index, **parts, "at": binding_moment(number), **host})
        return {"stages": stages, "peak": max(s["peak"] for s in stages)}

    def _time_json(self) -> dict[str, Any]:
        """Seconds of a step and where they go; the parts of `time` add up to `step`."""
        if self.system is None:
            return {}
        number = self.step_numbers
        return {
            "system": self.system.name,
            "time": {
                "step": float(number["t_step"]),
                "compute": float(number["t_compute"]),
                "bubble": float(number["t_bubble"]),
                "exposed": {axis: float(number[name]) for axis, name in exposed_axes(self.derivation).items()},
                "optimizer": float(number["t_optimizer"]),
                "stages": [
                    {"stage": s.index, **{key: float(n[f"{name}_stage"]) for key, name in STAGE_TIMES.items()}}
                    for s, n in ((s, self.stage_numbers(s)) for s in self.stages)
                ],
            },
            **{name: float(number[name]) for name in HEADLINES if name in number},
            **({"above_peak": self.above_peak} if self.above_peak else {}),
        }

    def _messages_json(self, stage: Stage, numbers: Mapping[str, Number]) -> list[dict[str, Any]]:
        return [
            {
                "phase": m.phase,
                "op": m.op,
                "axis": m.axis,
                "group_size": int(m.group.evaluate(numbers)),
                "count": int(m.count.evaluate(numbers)),
                "send_bytes": _whole(m.send_bytes.evaluate(numbers)),
                "recv_bytes": _whole(m.receive_bytes.evaluate(numbers)),
                "dtype": m.dtype,
                "what": m.what,
                "stage": stage.index,
                "per": m.per,
            }
            for m in self.stage_messages(stage)
        ]

    def flops_by_module(self) -> dict[str, dict[str, int]]:
        """Forward, backward and recomputed FLOPs of the model by module, one micro-batch."""
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

    @cached_property
    def above_peak(self) -> str:
        """The convention that makes MFU or HFU exceed 100 %, in a sentence; empty where neither does."""
        from symsim.above_peak import above_peak

        return above_peak(self)

    def to_pandas(self) -> Any:
        """The definitions as a DataFrame, one a row: symbol, stage, value, unit, meaning, formula, assumptions, source. InputError without pandas."""
        from symsim.frames import definitions_frame

        return definitions_frame(self)

    def table(self) -> str:
        """The result in 80 columns of text."""
        from symsim.report.text import eval_table

        return eval_table(self)

    def __repr__(self) -> str:
        """A few lines: what it is of, its main numbers, and what to ask it."""
        from symsim.report.text import brief

        return brief(self)

    def _repr_html_(self) -> str:
        from symsim.report.html import fragment

        return fragment(self)

    def _repr_latex_(self) -> str:
        return self.formula("N")._repr_latex_()


def _whole(value: Number) -> int:
    """Bytes as an integer; a fraction of a byte (an uneven share) rounds up to what a rank must hold."""
    return -int(-value // 1)


def _imbalance(model: Architecture, strategy: Strategy, given: Number) -> None:
    if model.moe is None:
        raise InputError(f"--set lam: {model.name} has no experts whose load could be uneven")
    # the busiest rank can receive the tokens of all ep ranks and no more
    if given > strategy.ep:
        most = f"the busiest of ep={strategy.ep} ranks gets at most {strategy.ep} times an even share of the tokens"
        raise InputError(f"--set lam={float(given):g}: {most}")


def derive(
    model: Architecture,
    strategy: Strategy,
    assumptions: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    system: System | None = None,
) -> Result:
    """Derive the closed formulas of a model under a strategy, and of its time on a system. InputError when the
    combination is impossible.

    overrides: settings by name, all that `--set NAME=VALUE` takes and with the same effect: options of the strategy, fields
    of the architecture, numbers of the system (text with a unit, `{"B_2": "100 GB/s"}`), assumptions (`assume.NAME`), `lam`.
    """
    symbols: Mapping[str, Number] = {}
    if overrides is not None:
        asked = settings_of(overrides)
        model, strategy = override_architecture(model, asked.architecture), override_strategy(strategy, asked.strategy)
        system = override_system(system, asked.system)
        assumptions, symbols = {**(assumptions or {}), **asked.assumptions}, asked.symbols
    model = trained(model, strategy.mtp_num_layers)
    check(model, strategy)
    if "lam" in symbols:
        _imbalance(model, strategy, symbols["lam"])
    given = resolve(assumptions or {})
    lowered = lower(model, strategy, given)
    model = lowered.profile.model
    counted = count(lowered)
    peak_memory(counted.derivation, lowered)
    if system is not None:
        step_time(counted.derivation, system, lowered)
    return Result(model, strategy, given, lowered, counted, dict(symbols), system)
