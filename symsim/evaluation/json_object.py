"""The object of `symsim eval --json` (docs/json.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symsim.algebra.expr import Number
from symsim.algebra.key import Key, layers_of_model, of_stage, of_step
from symsim.cost.count import flops, multiplicity
from symsim.cost.headlines import HEADLINES
from symsim.cost.memory import HOST_PARTS, STAGE_PARTS, binding_moment
from symsim.cost.reduce import expert_groups
from symsim.cost.reserve import RESERVES, fits
from symsim.cost.step_time import STAGE_TIMES, exposed_axes
from symsim.evaluation.above_peak import above_peak
from symsim.evaluation.buffers import gradient_buffers
from symsim.evaluation.interval import Interval, interval
from symsim.evaluation.launches import launching_of_step
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.evaluation.traffic import stage_messages
from symsim.ir.block import MODULES
from symsim.pipeline.stages import Stage
from symsim.version import __version__


def json_object(at: Evaluation) -> dict[str, Any]:
    """The object of `symsim eval --json` (docs/json.md): counts are integers, bytes are bytes."""
    number = at.numbers
    run = run_of(at)
    per_stage = [(s, at.stage_numbers(s)) for s in at.stages]
    marked = expert_groups(at.lowered)
    return {
        "symsim": __version__,
        "model": at.model.name,
        "strategy": at.strategy.model_dump(mode="json", exclude_none=True),
        "assumptions": dict(at.assumptions),
        "symbols": {name: int(value) if value == int(value) else float(value) for name, value in at.values.items()},
        "params": {
            "total": int(number["N"]),
            "active": int(number.get("N_active", number["N"])),
            **({"trained": int(number["N_trained"])} if "N_trained" in number else {}),
            "by_module": {m: int(number[key.text]) for m in MODULES if (key := Key("N", module=m)) in at.derivation},
            "per_rank": [{"stage": s.index, "total": int(n["P_stage"]), "expert": _experts(n) if marked else 0} for s, n in per_stage],
        },
        "flops": {
            "forward": int(number["F"]),
            "backward": int(number["G"]),
            "recompute": int(number["R"]),
            **({"further_forwards": int(number["F_further"])} if "F_further" in number else {}),
            "by_module": flops_by_module(at),
            "per_rank": [
                {"stage": s.index, "forward": int(n["X_stage"]), "backward": int(n["Y_stage"]), "recompute": int(n["Z_stage"])} for s, n in per_stage
            ],
        },
        "hbm_bytes": {"per_rank": [{"stage": s.index, "forward": _whole(n["Q_stage"]), "backward": _whole(n["U_stage"])} for s, n in per_stage]},
        "messages": _messages(at),
        "gradient_buffers": [
            {"stage": s.index, "chunk": b.chunk, "kind": b.kind, "elements": b.elements, "buckets": len(b.buckets)}
            for s in at.stages
            for b in gradient_buffers(at, s)
        ],
        "activations": {"saved_per_microbatch": [_whole(n["A_stage"]) for _, n in per_stage]},
        "memory": _memory(at, [n for _, n in per_stage]),
        **_time(at),
        **({"run": run.to_json()} if run is not None else {}),
    }


def _experts(numbers: Mapping[str, Number]) -> int:
    """Parameters of experts that one rank of a stage holds, of both stages where it holds two."""
    return int(numbers["P_stage_expert"] + numbers.get("P_stage_expert_across", 0))


def _memory(at: Evaluation, per_stage: Sequence[Mapping[str, Number]]) -> dict[str, Any]:
    """Bytes of one rank of each stage; `transient` is what the peak holds beyond the others, `at` the moment it is held."""
    stages: list[dict[str, Any]] = []
    for stage, number in zip(at.stages, per_stage):
        parts = {part: _whole(number[of_stage("M", part).text]) for part in STAGE_PARTS}
        host = {key: _whole(number[of.text]) for key, of in HOST_PARTS.items() if of in at.derivation}
        stages.append({"stage": stage.index, **parts, "at": binding_moment(at.derivation, number).key.rest, **host})
    peak = max(s["peak"] for s in stages)
    reserve = {part: _whole(at.step_numbers[of_step("M_reserve", part).text]) for part in RESERVES}
    said = {} if at.system is None else {"fits": fits(peak, sum(reserve.values()), int(at.value("memory.capacity")))}
    return {"stages": stages, "peak": peak, "reserve": reserve, **said}


def _time(at: Evaluation) -> dict[str, Any]:
    """Seconds of a step and where they go; the parts of `time` add up to `step`, but for `launching`, which lies inside `compute`."""
    if at.system is None:
        return {}
    number, said, within, waits = at.step_numbers, above_peak(at), interval(at), launching_of_step(at)
    return {
        "system": at.system.name,
        "time": {
            "step": float(number["t_step"]),
            **({"interval": _interval(within)} if within is not None else {}),
            "compute": float(number["t_compute"]),
            **({"launching": waits} if waits else {}),
            "bubble": float(number["t_bubble"]),
            "exposed": {axis: float(number[name]) for axis, name in exposed_axes(at.derivation).items()},
            "optimizer": float(number["t_optimizer"]),
            **({"further_forwards": float(number["t_further"])} if "t_further" in number else {}),
            "stages": [
                {"stage": s.index, **{key: float(n[of.text]) for key, of in STAGE_TIMES.items()}}
                for s, n in ((s, at.stage_numbers(s)) for s in at.stages)
            ],
        },
        **{name: float(number[name]) for name in HEADLINES if name in number},
        **({"above_peak": said} if said else {}),
    }


def _interval(found: Interval) -> dict[str, Any]:
    other = {"other_than": found.standing.near, "changed": list(found.standing.changed)} if found.standing.changed else {}
    return {"level": found.level, "low": found.low, "high": found.high, "by": {kind: round(s, 6) for kind, s in found.shares.items()}, **other}


def _messages(at: Evaluation) -> list[dict[str, Any]]:
    """Messages of one rank of every stage, stage by stage."""
    said: dict[int, list[dict[str, Any]]] = {}
    for members in at.alike:
        stage = at.stages[members[0]]
        said |= dict.fromkeys(members, _messages_of(at, stage, at.stage_numbers(stage)))
    return [{**message, "stage": stage.index} for stage in at.stages for message in said[stage.index]]


def _messages_of(at: Evaluation, stage: Stage, numbers: Mapping[str, Number]) -> list[dict[str, Any]]:
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
        for m in stage_messages(at, stage)
    ]


def flops_by_module(at: Evaluation) -> dict[str, dict[str, int]]:
    """Forward, backward and recomputed FLOPs of the model by module, one micro-batch."""
    found: dict[str, dict[str, Number]] = {}
    times = multiplicity(at.lowered)

    def add(module: str, key: str, n: Number) -> None:
        entry = found.setdefault(module, {"forward": 0, "backward": 0, "recompute": 0})
        entry[key] += n

    for name, block in at.lowered.blocks.items():
        placed, n = block.placed, times[name].evaluate(at.numbers)
        forward = {i: at.numbers[f] for i, f in at.counted.ops[name]}
        for i, value in forward.items():
            add(placed.block.ops[i].module, "forward", value * n)
        for kernel in block.differentiated.backward:
            if kernel.products:
                value = flops(placed, kernel.forward, kernel.products, local=False).expr.evaluate(at.numbers)
                add(placed.block.ops[kernel.forward].module, "backward", value * n)
        again = at.values.get(layers_of_model(name, again=True).text, 0)
        for variant, count_of in ((block, n - again), (at.lowered.checkpointed.get(name), again)):
            if variant is not None and count_of:
                for i in variant.recomputed & forward.keys():
                    add(placed.block.ops[i].module, "recompute", forward[i] * count_of)
    return {m: {k: int(v) for k, v in entry.items()} for m, entry in sorted(found.items(), key=lambda e: MODULES.index(e[0]))}


def _whole(value: Number) -> int:
    """Bytes as an integer; a fraction of a byte (an uneven share) rounds up to what a rank must hold."""
    return -int(-value // 1)
