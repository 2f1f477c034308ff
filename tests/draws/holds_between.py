"""What has to hold between a strategy that is drawn and others made of it, and between all that say its numbers (`holds.py` draws them).

A strategy's own options given again, in another place, or left out where they are said to move nothing, change no number; what ranks share they hold
together; more data ranks leave a rank's own work; longer steps do more; what is computed again is not kept.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from knobs import Grid

from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.idle import idle_assumptions, idle_options
from symsim.evaluation.quantities import QUANTITIES
from symsim.inputs.assumptions import resolve
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.program.javascript import javascript
from symsim.program.together import together
from symsim.program.unrolled import unroll

_ROUNDING = 1e-9


def numbers_of(result: Result) -> dict[str, float]:
    """What `symsim list quantities` names, of a step."""
    found = {}
    for name, entry in QUANTITIES.items():
        if not name.startswith(("run.", "cost", "time.step_")) and (entry.symbol in result.step_numbers or entry.over != "step"):
            value = result.value(name)
            found[name] = float(-(-value // 1) if entry.kind == "integer" else value)
    return found


def apart(one: Mapping[str, float], other: Mapping[str, float], said: str) -> Iterator[str]:
    """Numbers that are not the same."""
    for name in one.keys() & other.keys():
        if abs(one[name] - other[name]) > max(_ROUNDING * max(abs(one[name]), abs(other[name])), 1e-15 * one["time.step"]):
            yield f"{said}: {name} is {other[name]}, {one[name]} before"


def tried(grid: Grid) -> Result | None:
    try:
        return grid.alone({})
    except InputError:
        return None


def with_options(one: Grid, **more: Any) -> Result | None:
    return tried(replace(one, base={**one.base, **{n: text_of(v) for n, v in more.items()}}))


def of_itself(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """What is given again, with --set, or as by default, moves nothing; nor does where an axis of one rank stands."""
    before = numbers_of(result)
    left = [
        n
        for n in Strategy.model_fields
        if n not in one.base and not n.startswith("mtp_") and getattr(result.strategy, n) == Strategy.model_fields[n].default
    ]
    texts = {
        n: text_of(Strategy.model_fields[n].default) for n in draw.sample(left, min(12, len(left))) if Strategy.model_fields[n].default is not None
    }
    again = tried(replace(one, base={**one.base, **{n: t for n, t in texts.items() if t and "," not in t}}))
    if again is None:
        yield f"refused with defaults {texts}"
    else:
        yield from apart(before, numbers_of(again), f"with defaults {texts}")
    moved = draw.sample(sorted(one.base), len(one.base) // 2)
    there = tried(
        replace(one, base={n: v for n, v in one.base.items() if n not in moved}, settings={**one.settings, **{n: one.base[n] for n in moved}})
    )
    if there is None:
        yield f"refused with --set for {moved}"
    else:
        yield from apart(before, numbers_of(there), f"with --set for {moved}")
    order = result.strategy.rank_order.split("-")
    degrees = {"tp": max(result.strategy.tp, result.strategy.expert_tp), "cp": result.strategy.cp, "dp": result.strategy.dp, "pp": result.strategy.pp}
    idle = [a for a in order if degrees.get(a) == 1]
    if idle and result.strategy.expert_dp == 1 or idle not in ([], ["dp"]):
        axis = draw.choice([a for a in idle if a != "dp" or result.strategy.expert_dp == 1])
        rest = [a for a in order if a != axis]
        rest.insert(draw.randrange(len(rest) + 1), axis)
        turned = with_options(one, rank_order="-".join(rest))
        if turned is not None:
            yield from apart(before, numbers_of(turned), f"rank_order={'-'.join(rest)}")


def of_idle(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """An option or assumption that is said to move nothing moves nothing."""
    before = numbers_of(result)
    options = [n for n in idle_options(result) if n in one.base]
    without = tried(replace(one, base={n: v for n, v in one.base.items() if n not in options}))
    if options and without is not None:
        yield from apart(before, numbers_of(without), f"without {options}")
    given = {n.removeprefix("assume."): v for n, v in one.settings.items() if n.startswith("assume.")}
    for name in idle_assumptions(result, given):
        found = tried(replace(one, settings={n: v for n, v in one.settings.items() if n != f"assume.{name}"}))
        if found is not None:
            yield from apart(before, numbers_of(found), f"assume.{name} as by default, {resolve({})[name]}")


def of_json(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Of --json parts are the whole: of the step, of every stage's peak, of parameters and FLOPs over ranks."""
    shown = json.loads(json.dumps(result.to_json()))
    t, strategy = shown["time"], result.strategy
    parts = t["compute"] + t["bubble"] + sum(t["exposed"].values()) + t["optimizer"] + t.get("further_forwards", 0)
    if abs(parts - t["step"]) > _ROUNDING * t["step"]:
        yield f"parts of time are {parts} of {t['step']}"
    tokens = float(result.values["b"] * result.values["s"] * result.values["m"] * result.values["dp"]) if "dp" in result.values else None
    if tokens is not None and abs(shown["tokens_per_second"] * t["step"] / tokens - 1) > _ROUNDING:
        yield f"{shown['tokens_per_second']} tokens a second, {tokens} in {t['step']}"
    if max(s["peak"] for s in shown["memory"]["stages"]) != shown["memory"]["peak"]:
        yield f"the peak is {shown['memory']['peak']}"
    copies = 2 if strategy.schedule == "dualpipe" else 1
    several = strategy.tp * strategy.cp * max(1, strategy.ep) * strategy.expert_tp
    held = sum(rank["total"] for rank in shown["params"]["per_rank"])
    if held * several < copies * shown["params"]["total"]:
        yield f"ranks hold {held} parameters, of {shown['params']['total']}"
    for phase in ("forward", "backward", "recompute"):
        done = sum(rank[phase] for rank in shown["flops"]["per_rank"])
        whole = shown["flops"][phase]
        if several == 1 and abs(done - whole) > len(result.stages) * 2 + _ROUNDING * whole:
            yield f"stages do {done} {phase} FLOPs, of {whole}"
        if done * strategy.tp * strategy.cp < whole * (1 - _ROUNDING) and strategy.ep == 1:
            yield f"ranks do {done} {phase} FLOPs, of {whole}"


def of_page(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """The function of a page gives what `eval` does."""
    before = numbers_of(result)
    unrolled = unroll(result, None, list(before))
    made = together([unrolled])
    script = f"{javascript(made)}\nconsole.log(JSON.stringify(kernel({{}})))"
    ended = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=True)
    yield from apart(before, {n: float(v) for n, v in json.loads(ended.stdout).items()}, "JavaScript")


def of_ranks(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """More data ranks leave a rank's own work and what it keeps; more of what shards states never keeps more for the step."""
    strategy = result.strategy
    if strategy.global_batch_size is not None:
        return
    more = with_options(one, dp=2 * strategy.dp, num_microbatches=strategy.microbatches)
    if more is not None:
        for stage, other in zip(result.stages, more.stages):
            here, there = result.stage_numbers(stage), more.stage_numbers(other)
            for name in ("P_stage", "X_stage", "Y_stage", "Z_stage", "A_stage"):
                if here[name] != there[name]:
                    yield f"dp={2 * strategy.dp}: {name} of stage {stage.index} is {there[name]}, of {here[name]}"
    kept: dict[int, list[float]] = {}
    for zero in (0, 1, 2, 3):
        found = with_options(one, zero=zero)
        if found is not None:
            numbers = [found.stage_numbers(s) for s in found.stages]
            kept[zero] = [float(sum(n[f"M_stage_{part}"] for part in ("weights", "gradients", "optimizer"))) for n in numbers]
    for (a, less), (b, further) in zip(list(kept.items()), list(kept.items())[1:]):
        for stage, (x, y) in enumerate(zip(less, further)):
            # FSDP's main parameters are weights, which no optimizer takes to the host
            if y > x * (1 + _ROUNDING) + 4096 and not strategy.optimizer_cpu_offload:
                yield f"stage {stage}: zero={b} keeps {y}, zero={a} {x}"


def of_sizes(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Of twice the sequences a micro-batch has twice the FLOPs; of twice the tokens no fewer, and no less is kept."""
    strategy = result.strategy
    if strategy.global_batch_size is not None:
        return
    # what an expert takes at most is rounded up
    rounded = strategy.moe_expert_capacity_factor is not None or strategy.moe_router_padding_for_quantization
    twice = None if rounded else with_options(one, micro_batch_size=2 * strategy.micro_batch_size, num_microbatches=strategy.microbatches)
    if twice is not None:
        for name in ("F", "G", "R"):
            if twice.numbers[name] != 2 * result.numbers[name]:
                yield f"micro_batch_size={2 * strategy.micro_batch_size}: {name} is {twice.numbers[name]}, of {result.numbers[name]}"
        for stage, other in zip(result.stages, twice.stages):
            a, b = result.stage_numbers(stage)["A_stage"], twice.stage_numbers(other)["A_stage"]
            if not a <= b <= 2 * a + 4096:
                yield f"micro_batch_size={2 * strategy.micro_batch_size}: stage {stage.index} keeps {float(b)}, of {float(a)}"
    # rows without padding are as long as their documents
    unlike = strategy.padding_free or rounded
    longer = None if unlike else with_options(one, seq_length=2 * strategy.seq_length, num_microbatches=strategy.microbatches)
    if longer is not None:
        for name in ("F", "G", "R"):
            # a convolution that pads a row has a few more at its ends
            if longer.numbers[name] < 2 * result.numbers[name] * (1 - 1e-5):
                yield f"seq_length={2 * strategy.seq_length}: {name} is {longer.numbers[name]}, of {result.numbers[name]}"
        for stage, other in zip(result.stages, longer.stages):
            if longer.stage_numbers(other)["A_stage"] < result.stage_numbers(stage)["A_stage"]:
                yield f"seq_length={2 * strategy.seq_length}: stage {stage.index} keeps less"


def of_recompute(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Layers that are computed again keep no more than any others, and compute no less again.

    Attention alone may: what is computed again has views as its inputs, which keep all that they are views of.
    """
    around = {n: v for n, v in one.base.items() if not n.startswith("recompute")}
    found = {kind: tried(replace(one, base={**around, **({} if kind == "none" else {"recompute": kind})})) for kind in ("none", "selective", "full")}
    most = found.pop("full")
    for kind, less in found.items():
        if less is None or most is None:
            continue
        for stage, other in zip(less.stages, most.stages):
            x, y = less.stage_numbers(stage)["A_stage"], most.stage_numbers(other)["A_stage"]
            # layers that are called again keep a mask, once for all of them
            together = max((n for name, n in most.numbers.items() if name.startswith("A_") and name.endswith("_shared")), default=0)
            again = sum(n for name, n in most.stage_numbers(other).items() if name.startswith("L_") and name.endswith("_ckpt_i"))
            if y > x + together * min(1, again):
                yield f"recompute=full keeps {float(y)} on stage {stage.index}, {kind} {float(x)}"
        if less.numbers["R"] > most.numbers["R"]:
            yield f"recompute=full computes {most.numbers['R']} again, {kind} {less.numbers['R']}"


def of_depth(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Twice the layers on twice the stages leave a stage's parameters, work and what it keeps, where all layers are alike and stages even."""
    strategy, model = result.strategy, result.model
    if len(set(map(str, model.layers))) != 1 or strategy.pp < 2 or strategy.schedule == "dualpipe":
        return
    if any("layout" in n or "_stage" in n or "pipeline_split" in n or n.startswith(("recompute_", "cpu_offloading")) for n in one.base):
        return
    deeper = replace(one, base={**one.base, "pp": str(2 * strategy.pp), "num_microbatches": str(2 * strategy.microbatches)})
    found = tried(replace(deeper, settings={**one.settings, "num_layers": str(2 * model.num_layers)}))
    if found is None or model.num_layers % (strategy.pp * strategy.vpp):
        return
    for at, there in ((0, 0), (-1, -1)):
        here, other = result.stage_numbers(result.stages[at]), found.stage_numbers(found.stages[there])
        # what stands outside of the pipeline is further apart
        timed = ["t_stage"] if strategy.rank_order.endswith("pp") else []
        for name in ("P_stage", "X_stage", "Y_stage", "Z_stage", "A_stage", *timed):
            if here[name] != other[name]:
                yield f"of twice the layers and stages {name} of stage {at} is {float(other[name])}, of {float(here[name])}"


BETWEEN = (of_itself, of_idle, of_json, of_page, of_ranks, of_sizes, of_recompute, of_depth)
