"""Random spaces of strategies, every configuration of each evaluated by a sweep: plans and their certificates beside that.

    python tests/draws/plans_brute.py --spaces 30 --points 1000000 --seed 1 [--log FILE --minutes 50]

Each space has a draw and a process of its own. With a log, a line of JSON a space, what stands in it is not done again. Of every space: the best of
each kind; what the certificate says of each configuration (refused, slower, too large, evaluated), held against what it is; and two more plans, one
with an option fixed and, where the space has an axis besides the framework's, one without it, each against the configurations that are left. What
stages have of their own is fixed for all depths, which are not in the space: a plan with it at one depth has all its configurations evaluated anew.
Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from symsim.errors import InputError
from symsim.grid.family import Array
from symsim.grid.names import SPLITS
from symsim.inputs.models import load_model
from symsim.inputs.systems import load_system
from symsim.planning.plan import GOALS, Plan
from symsim.planning.space import space_of
from tests.plan_brute import CLOSE, Brute, Question, brute, told, wrong_best, wrong_certificate

MODELS = (
    *("smollm2-360m", "llama3-8b", "llama3-70b", "llama3.1-405b", "gemma-2-9b", "gpt3-175b", "qwen3-32b"),
    *("olmoe-1b-7b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "dbrx"),
    *("deepseek-v2-lite", "deepseek-v3", "kimi-k2"),
    *("qwen3-next-80b-a3b", "granite-4.0-h-tiny", "bamba-9b", "kimi-linear-48b-a3b", "gemma-3-4b"),
)
SYSTEMS = ("h100-sxm", "a100-sxm-80", "h200-sxm", "b200-sxm", "gb200-nvl72", "mi300x", "h20", "a100-pcie-80")
# of options, each of which is derived several times: thousands take a quarter of an hour
_MOST_COMBINATIONS = 400
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "megatron": (
        "cross_entropy_fusion=unfused,te,linear",
        "cross_entropy_fusion=unfused,te",
        "grad_reduce_in_fp32=true,false",
        "account_for_loss_in_pipeline_split=false,true",
        "account_for_embedding_in_pipeline_split=false,true",
        "schedule=1f1b,zb_h1",
        "zero=1,0",
        "cuda_graph_impl=none,local",
        "defer_embedding_wgrad_compute=false,true",
        "use_precision_aware_optimizer=false,true",
        "delay_wgrad_compute=false,true",
        "num_distributed_optimizer_instances=1,2",
        "ddp_bucket_size=10000000,40000000,160000000",
        "cp_comm_type=p2p,a2a,all_gather",
        "fp8=none,blockwise",
        "recompute_num_layers=1,2,4",
        "microbatch_group_size_per_vp_stage=4,8,16",
        "p2p_comm=asynchronous,batched",
        "optimizer=adam,lion",
        "gradient_accumulation_fusion=true,false",
    ),
    "torchtitan": (
        "cross_entropy_fusion=unfused,chunked",
        "offload_parameters=false,true",
        "fusion=compile,eager",
        "schedule=1f1b,interleaved,zb_h1",
        "vpp=1,2,4",
        "num_distributed_optimizer_instances=1,2,4,8",
        "gradient_sync=every_microbatch,last_microbatch",
        "grad_reduce_in_fp32=true,false",
        "ddp_bucket_size=10000000,40000000,160000000",
        "cp_comm_type=p2p,all_gather",
        "optimizer=adam,sgd",
        "recompute_num_layers=1,2,4",
    ),
    "deepspeed": (
        "fusion=eager,compile",
        "optimizer_cpu_offload=false,true",
        "offload_gradients=false,true",
        "cross_entropy_fusion=unfused,liger",
        "reshard_after_forward=true,false",
        "ddp_bucket_size=10000000,100000000,500000000",
        "allgather_bucket_size=10000000,100000000,500000000",
        "tp=1,2,4,8",
        "pp=1,2,4,8",
        "optimizer=adam,lion,sgd,adafactor",
        "recompute_num_layers=1,2,4,8",
        "grad_reduce_in_fp32=true,false",
        "num_distributed_optimizer_instances=1,2,4",
        "micro_batch_size=1,2,3,4,5,6,7,8",
        "prefetch_bucket_size=10000000,50000000",
        "gradient_accumulation_fusion=true,false",
        "fused_kernels=norm,norm+rope",
    ),
}


def drawn(draw: random.Random, models: Sequence[str], points: int) -> Question | None:
    """A space of `points` configurations or up to twice as many; None where the draw has fewer or many more, and where it has
    more combinations of options than can be derived."""
    loaded, framework = load_model(draw.choice(models)), draw.choice(("megatron", "megatron", "megatron", "torchtitan", "deepspeed"))
    world, seq = 2 ** draw.randint(3, 9), draw.choice((2048, 4096, 4096, 8192))
    batch = world * 2 ** draw.randint(0, 5) // 2
    if draw.random() < 0.2:
        world *= 3
        batch *= 3
    system = draw.choice(SYSTEMS)
    priced = load_system(system).accelerator.price is not None
    goal, share = draw.choice([g for g in GOALS if priced or g != "cost"]), draw.choice((1.0, 1.0, 0.9, 0.6))
    asked = Question(loaded, system, world, batch, seq, framework, goal, share, draw.choice((1, 5, 20)), {}, ())
    texts = list(ALLOWED[framework])
    draw.shuffle(texts)
    for text in texts:
        if configurations(asked) >= points:
            break
        if text.split("=")[0] not in {t.split("=")[0] for t in asked.allowed}:
            asked = replace(asked, allowed=(*asked.allowed, text))
    while configurations(asked) > 2 * points:
        sizes, choices, _ = space_of(asked.asked)
        free = [c for c in choices if len(c.rows) > 1] + [c for c in sizes if len(c.columns[0]) > 1]
        if not free:
            return None
        names, row = one_row(draw, asked, draw.choice(free).names)
        asked = replace(asked, fixed={**asked.fixed, **dict(zip(names, row))})
        asked = replace(asked, allowed=tuple(t for t in asked.allowed if t.split("=")[0] not in names))
    combinations = math.prod(len(c.rows) for c in space_of(asked.asked)[1])
    return asked if configurations(asked) >= points and combinations <= _MOST_COMBINATIONS else None


def configurations(asked: Question) -> int:
    sizes, choices, _ = space_of(asked.asked)
    return math.prod(len(a.columns[0]) for a in sizes) * math.prod(len(c.rows) for c in choices)


def one_row(draw: random.Random, asked: Question, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Options that go together, and a row of their values."""
    sizes, choices, _ = space_of(asked.asked)
    rows = {**{a.names: tuple(zip(*a.columns)) for a in sizes}, **{c.names: c.rows for c in choices}}
    return names, draw.choice(rows[names])


def checked(draw: random.Random, asked: Question, of: Brute) -> list[str]:
    found, search = told(asked)
    wrong = [*wrong_best(found, asked.top, of), *wrong_certificate(found, search, of)]
    sizes, choices, _ = space_of(asked.asked)
    names, row = one_row(draw, asked, draw.choice([*(a.names for a in sizes), *(c.names for c in choices)]))
    which = draw.randrange(len(names))
    own = {t.split("=")[0] for t in asked.allowed}
    if names[which] in {*asked.asked.framework.staged, *SPLITS} - own:
        value, depth = one_row(draw, asked, names)[1][which], {**asked.fixed, **dict(zip(names, row))}["pp"]
        wrong += [*_at_all_depths(asked, of, names[which], value), *_at_a_depth(asked, of, names[which], value, depth)]
    else:
        wrong += _again(found, _fixed(asked, names[which], row[which]), of, names[which], row[which])
    if asked.allowed:
        name = draw.choice(asked.allowed).split("=")[0]
        wrong += _again(found, _fixed(asked, name, of.fields[name][1][0]), of, name, of.fields[name][1][0])
    return wrong


def _fixed(asked: Question, name: str, value: Any) -> Question:
    return replace(asked, fixed={**asked.fixed, name: value}, allowed=tuple(t for t in asked.allowed if t.split("=")[0] != name))


def _again(whole: Plan, asked: Question, of: Brute, name: str, value: Any) -> list[str]:
    """A plan of a part of the space against the configurations of that part: right, and not better than that of the whole."""
    among, said = of.where(name, value), f"with {name}={value}: "
    try:
        found = asked.planned()
    except InputError as error:
        return [f"{said}refused, and some run: {error}"] if (among & (of.time == of.time)).any() else []
    wrong = [f"{said}{one}" for one in wrong_best(found, asked.top, of, among)]
    if found.fits and not whole.fits:
        wrong.append(f"{said}something fits, and nothing did before")
    if found.fits and whole.fits:
        one, other = (float(p.best[0].result.value(p.goal)) for p in (found, whole))
        if (one > other * (1 + CLOSE)) if of.largest else (one < other * (1 - CLOSE)):
            wrong.append(f"{said}{one} is better than {other} of the whole space")
    return wrong


def _at_a_depth(asked: Question, of: Brute, name: str, value: Any, depth: int) -> list[str]:
    """A plan of so many stages that has an option of stages, which holds of all depths if it is fixed and is in the space where a framework has it:
    against its own configurations, and those of the whole space that are among them; at one stage they are all of these, as it moves nothing."""
    own, said = _fixed(_fixed(asked, name, value), "pp", depth), f"with {name}={value},pp={depth}: "
    try:
        alone = brute(own)
    except InputError:
        return [f"{said}nothing runs, and some do in the whole space"] if _among(of, name, value, depth).any() else []
    try:
        found, search = told(own)
    except InputError as error:
        return [f"{said}refused, and some run: {error}"]
    wrong = [f"{said}{one}" for one in (*wrong_best(found, own.top, alone), *wrong_certificate(found, search, alone))]
    there = of.value[_among(of, name, value, depth)]
    one, other = (best_of(numbers, of.largest) for numbers in (alone.value, there))
    if abs(one - other) > CLOSE * abs(other) and (depth == 1 or (one < other) == of.largest) or (math.isnan(one) and not math.isnan(other)):
        wrong.append(f"{said}the best is {one}, and {other} of those that are in the whole space")
    return wrong


def _at_all_depths(asked: Question, of: Brute, name: str, value: Any) -> list[str]:
    """A plan that has an option of stages is no worse than what the whole space has with it, and at one stage."""
    there = best_of(of.value[_among(of, name, value, None)], of.largest)
    try:
        found = _fixed(asked, name, value).planned()
    except InputError as error:
        return [f"with {name}={value}: refused, and some run: {error}"] if _among(of, name, value, None).any() else []
    if math.isnan(there):
        return []
    one = float(found.best[0].result.value(found.goal)) if found.fits else math.nan
    worse = one < there * (1 - CLOSE) if of.largest else one > there * (1 + CLOSE)
    return [f"with {name}={value}: the best is {one}, and {there} of those that are in the whole space"] if worse or math.isnan(one) else []


def best_of(numbers: Array, largest: bool) -> float:
    """NaN where there are none."""
    there = numbers[~np.isnan(numbers)]
    return float(there.max() if largest else there.min()) if there.size else math.nan


def _among(of: Brute, name: str, value: Any, depth: int | None) -> Array:
    """The configurations that run with an option of stages, which moves nothing at one stage; at a depth, or at all."""
    depths = of.fields["pp"][1] if "pp" in of.fields else [depth]
    at_one = of.at("pp", [d == 1 for d in depths]) if "pp" in of.fields else np.full(of.time.shape, depth == 1)
    at_depth = of.at("pp", [d == depth for d in depths]) if "pp" in of.fields and depth is not None else True
    found: Array = ~np.isnan(of.time) & at_depth & (at_one | of.where(name, value))
    return found


def space(seed: int, number: int, models: Sequence[str], points: int) -> dict[str, Any] | None:
    """What became of a space, as a line of the log has it; None where the draw makes none."""
    draw, began = random.Random(f"{seed}.{number}"), time.perf_counter()
    asked = drawn(draw, models, points)
    if asked is None:
        return None
    said = {"seed": seed, "space": number, "commit": _commit(), "asked": asked.said()}
    try:
        of = brute(asked)
    except InputError as error:
        return {**said, "nothing": str(error)}
    evaluated = time.perf_counter() - began
    try:
        wrong = checked(draw, asked, of)
    except InputError as error:
        wrong = [f"refused, and some run: {error}"]
    counts = {"configurations": of.configurations, "run": int((of.time == of.time).sum()), "fit": int(of.fits.sum())}
    bytes_ = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = {"evaluated_in": round(evaluated, 1), "seconds": round(time.perf_counter() - began, 1)}
    return {**said, **counts, **seconds, "bytes": bytes_, "wrong": list(dict.fromkeys(wrong))}


def _commit() -> str:
    found = subprocess.run(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return found.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spaces", type=int, default=30)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="a line of JSON a space; those that are there are not done again")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no space is begun after these")
    given = parser.parse_args()
    before = [json.loads(line) for line in given.log.read_text().splitlines()] if given.log is not None and given.log.exists() else []
    done = {one["space"]: one for one in before if one["seed"] == given.seed}
    found: list[dict[str, Any]] = []
    began, number = time.perf_counter(), 0
    # what one space took, and what was made for it, is gone with its process
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        while len(found) < given.spaces:
            number += 1
            if number not in done and time.perf_counter() - began > given.minutes * 60:
                break
            one = done[number] if number in done else pool.submit(space, given.seed, number, given.models, given.points).result()
            if one is None:
                continue
            if number not in done:
                _print(one)
                if given.log is not None:
                    with given.log.open("a") as log:
                        log.write(json.dumps(one) + "\n")
            found += [one] if "configurations" in one else []
    failed = sum(bool(one["wrong"]) for one in found)
    print(f"{len(found)} spaces, {sum(one['configurations'] for one in found):,} configurations, {failed} spaces differ, seed {given.seed}")
    return 1 if failed else 0


def _print(one: Mapping[str, Any]) -> None:
    print(f"{one['space']}: {one['asked']}")
    for wrong in one.get("wrong", ()):
        print(f"  WRONG {wrong}")
    if "nothing" in one:
        print(f"  nothing runs: {one['nothing']}", flush=True)
        return
    counted = f"{one['configurations']:,} configurations, {one['run']:,} run, {one['fit']:,} fit"
    print(f"  {counted}; {one['seconds']:.0f} s, {one['evaluated_in']:.0f} of them all configurations; {one['bytes'] / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
