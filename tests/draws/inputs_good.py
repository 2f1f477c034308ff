"""Well-formed combinations: a shipped model, options of a strategy with values of their kind, a system, assumptions, an output."""

from __future__ import annotations

import random
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from inputs_run import Case

from symsim.evaluation.quantities import QUANTITIES
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.shipped import list_models, list_strategies, list_systems
from symsim.inputs.strategy import RECOMPUTE_MODULES, Strategy

DEGREES = {"tp": (1, 2, 4, 8), "pp": (1, 2, 4, 8), "cp": (1, 2, 4), "ep": (1, 2, 4, 8), "dp": (1, 2, 4, 16), "vpp": (1, 2, 3), "etp": (1, 2)}
SIZES = {
    "seq_length": (512, 4096, 8192, 131072),
    "micro_batch_size": (1, 2, 3, 8),
    "num_microbatches": (1, 4, 8, 16, 64),
    "global_batch_size": (16, 32, 256),
    "packed_document_length": (128, 512),
    "num_layers_in_first_pipeline_stage": (1, 2, 3),
    "num_layers_in_last_pipeline_stage": (1, 2, 3),
    "recompute_num_layers": (1, 2, 4),
    "cpu_offloading_num_layers": (0, 1, 4),
    "mtp_num_layers": (0, 1, 2),
    "microbatch_group_size_per_vp_stage": (2, 4, 8),
    "num_distributed_optimizer_instances": (1, 2),
}
FLOATS = {"clip_grad": (0.0, 1.0), "optimizer_offload_fraction": (0.25, 0.5, 1.0), "moe_expert_capacity_factor": (0.5, 1.0, 1.25, 2.0)}
LAYOUTS = ("Et|(t|)*30tL", "E|(tt|)*16L", "Et*16|t*16L")


def case(seed: int, number: int) -> Case:
    """The combination of this number."""
    rng = random.Random(f"good {seed} {number}")
    model = rng.choice(_models())
    strategy = rng.choice(list_strategies()) if rng.random() < 0.03 else _strategy(rng)
    given = [model, *(["-s", strategy] if strategy else [])]
    system = rng.choice(list_systems()) if rng.random() < 0.7 else None
    given += ["-y", system] if system else []
    for name in rng.sample(sorted(ASSUMPTIONS), rng.choice((0, 0, 1, 2, 4))):
        given += ["--set", f"assume.{name}={assumed(rng, name)}"]
    kind = rng.choices(("eval", "json", "derive", "sweep", "compile"), (30, 24, 8, 26, 12))[0]
    if kind in ("eval", "json"):
        return Case(("eval", *given, *(["--json"] if kind == "json" else [])))
    if kind == "derive":
        output = rng.choice((None, "r.md", "r.tex", "r.html", "r.json"))
        return Case(("derive", *given, *(["-o", output] if output else [])), output=output)
    if kind == "compile":
        free = rng.choice((None, "tp,pp", "s,b,m", "dp,micro_batch_size", "world", "seq_length"))
        output = rng.choice((None, "c.py"))
        return Case(("compile", *given, *(["--free", free] if free else []), *(["-o", output] if output else [])), output=output)
    return _sweep(rng, given, timed=system is not None)


@cache
def _models() -> list[str]:
    return list_models()


def assumed(rng: random.Random, name: str) -> str:
    choices = ASSUMPTIONS[name].choices
    return rng.choice([c for c in choices if c.isidentifier()] or ["1"])


def _strategy(rng: random.Random) -> str:
    """Options that are often given, with some of all the others."""
    chosen: dict[str, str] = {}
    for name in ("tp", "pp", "dp", "cp", "ep"):
        if rng.random() < 0.4:
            chosen[name] = str(rng.choice(DEGREES[name]))
    if int(chosen.get("tp", 1)) > 1 and rng.random() < 0.8:
        chosen["sp"] = "true"
    if int(chosen.get("pp", 1)) > 1 and rng.random() < 0.7:
        chosen["num_microbatches"] = str(rng.choice((8, 16, 64)))
    for name in rng.sample(sorted(Strategy.model_fields), rng.choice((0, 0, 1, 1, 2, 3, 6))):
        if name not in chosen:
            chosen[name] = option_value(rng, name)
    return ",".join(f"{name}={value}" for name, value in chosen.items() if value)


def option_value(rng: random.Random, name: str) -> str:
    for known in (DEGREES, SIZES, FLOATS):
        if name in known:
            return str(rng.choice(known[name]))
    if name == "rank_order":
        return rng.choice(("tp-cp-ep-dp-pp", "tp-pp-dp-cp-ep", "dp-tp-cp-ep-pp"))
    if name == "recompute_modules":
        return "+".join(rng.sample(RECOMPUTE_MODULES, rng.randint(1, 3)))
    if name == "placement":
        return rng.choice(("embedding.V=none+lm_head.V=none+loss.V=none", "lm_head.V=none+lm_head.s=cp", "mlp.f=none", "attention.o_proj.a=none"))
    if name == "hierarchical_context_parallel_sizes":
        return "2+2"
    if name == "pipeline_model_parallel_layout":
        return rng.choice(LAYOUTS)
    choices = _choices(Strategy.model_fields[name].annotation)
    return str(rng.choice(choices)).lower() if choices else ""


def _choices(annotation: Any) -> list[Any]:
    if annotation is bool:
        return [True, False]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return [c for part in get_args(annotation) for c in _choices(part)]
    return []


AXES = (
    "tp=1,2,4", "pp=1,2", "dp=1,2,4,8", "micro_batch_size=1:4", "num_microbatches=4,8,16", "seq_length=1024:8192:*2", "sp==tp>1", "zero=0,1",
    "recompute=none,full,selective", "cp=1,2", "ep=1,2,4", "schedule=1f1b,gpipe,zb_h1", "fusion=te,eager", "precision=bf16,fp16", "vpp=1,2",
    "system=h100-sxm,mi300x", "assume.causal=half,full", "dp=16/(tp*pp)", "hidden_size=4096,8192", "num_layers=8,16", "lam=1,1.5",
    "accelerator.memory_bandwidth=2 TB/s,3 TB/s", "distribute_saved_activations=true,false", "global_batch_size=64", "optimizer=adam,sgd",
)  # fmt: skip
WHERE = ("memory.peak <= 80e9", "tp*pp <= 8", "mfu > 0.3", "world == 16 or world == 8", "params.per_rank < 1e10", "not sp", "zero == 1")
BY = ("time.step", "mfu", "memory.peak", "tokens_per_second", "time.step/(micro_batch_size*num_microbatches)", "max(time.bubble, 1)", "N")


def _sweep(rng: random.Random, given: list[str], *, timed: bool) -> Case:
    axes = {axis.partition("=")[0]: axis for axis in rng.sample(AXES, rng.randint(1, 4))}
    arguments = ["sweep", *given, *(f"--axis={axis}" for axis in axes.values()), "--backend", "numpy"]
    if rng.random() < 0.3:
        arguments += ["--where", rng.choice(WHERE)]
    if timed and rng.random() < 0.2:
        arguments += ["--fits"]
    asked = rng.choice(("top", "columns", "pareto", "plain"))
    if asked == "top":
        arguments += ["--top", str(rng.choice((1, 3, 100))), "--by", rng.choice(BY)]
        arguments += ["--search", rng.choice(("auto", "scan", "bounds"))]
    elif asked == "pareto":
        arguments += ["--pareto", ",".join(rng.sample(("time.step", "memory.peak", "world", "mfu", "params.per_rank"), 2))]
    if asked != "plain" and rng.random() < 0.6:
        known = [*QUANTITIES, *Strategy.model_fields, "N", "M_stage_peak", "world", "system", "assume.causal"]
        arguments += ["--columns", ",".join(rng.sample(known, rng.randint(1, 5)))]
    output = rng.choice((None, "x.csv", "x.parquet"))
    if output is not None:
        return Case((*arguments, "-o", output), output=output)
    return Case((*arguments, *(["--json"] if rng.random() < 0.4 else [])))
