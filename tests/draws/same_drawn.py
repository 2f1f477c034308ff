"""Evaluations drawn for same.py: a model, a strategy that it can be trained under (most often), a system, assumptions and settings."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache

from inputs_good import assumed

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.models import load_model
from symsim.inputs.shipped import list_models, list_systems
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import RECOMPUTE_MODULES, Strategy
from symsim.lowering.checks import check

Options = dict[str, str]
UNCHECKED = 0.08  # of the cases keep options that are refused, so that refusals are compared too
SCHEDULES = ("gpipe", "1f1b", "zb_h1", "zb_h2", "ds_default", "merak_1f1b", "pre_recompute_1f1b", "last_no_recompute_1f1b", "shifted_critical_path")
CHUNKED = ("interleaved", "looped_bfs", "interleaved_zb", "grouped_interleaved", "zbv", "v_half", "v_min", "1f1b_v", "dualpipev")
SETTINGS = ("eta_gemm=0.6", "B_2=100 GB/s", "B_hbm=2 TB/s", "alpha_1=2 us", "accelerator.memory=40 GB")


def case(seed: int, number: int, only: str | None = None) -> list[str]:
    """The arguments of the evaluation of this number: every model in turn, or only one."""
    rng = random.Random(f"same {seed} {number}")
    models = [only] if only else list_models()
    model = models[number % len(models)]
    architecture = _architecture(model)
    strategy = _strategy(rng, architecture)
    system = rng.choice(list_systems()) if rng.random() < 0.85 else None
    given = ["eval", model, "-s", ",".join(f"{name}={value}" for name, value in strategy.items())]
    given += ["-y", system] if system else []
    settings = [f"assume.{name}={assumed(rng, name)}" for name in rng.sample(sorted(ASSUMPTIONS), rng.choice((0, 0, 1, 2, 4)))]
    if architecture.moe is not None and rng.random() < 0.3:
        settings.append(f"lam={rng.choice(('1.2', '1.5', '2'))}")
    if system and rng.random() < 0.2:
        settings.append(rng.choice(SETTINGS))
    return [*given, *(part for setting in settings for part in ("--set", setting)), "--json"]


@cache
def _architecture(model: str) -> Architecture:
    return load_model(model).architecture


def _strategy(rng: random.Random, architecture: Architecture) -> Options:
    """Groups of options that go together, each kept if the model can be trained so."""
    unchecked = rng.random() < UNCHECKED
    made: Options = {"dp": "1"}
    rest = rng.sample(GROUPS, rng.choice((0, 1, 2, 4, 8, len(GROUPS))))
    for group in (_degrees, _pipeline, *rest):
        for _ in range(4):
            tried = {**made, **group(rng, architecture, made)}
            if unchecked or _trains(architecture, tried):
                made = tried
                break
    return made


def _trains(architecture: Architecture, options: Mapping[str, str]) -> bool:
    try:
        check(architecture, load_strategy(",".join(f"{name}={value}" for name, value in options.items()), {}))
    except InputError:
        return False
    return True


Group = Callable[[random.Random, Architecture, Options], Options]


def _degrees(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    tp = rng.choice((1, 1, 2, 2, 4, 8, 16))
    found = {"tp": tp, "cp": rng.choice((1, 1, 1, 2, 4)), "dp": rng.choice((1, 2, 4, 8, 64))}
    if architecture.moe is not None:
        found |= {"ep": rng.choice((1, 2, 4, 8)), "etp": rng.choice((1, 1, tp))}
        found["dp"] *= rng.choice((1, found["ep"]))
    sp = {"sp": "true"} if tp > 1 and (architecture.moe is not None or rng.random() < 0.7) else {}
    return {**{name: str(degree) for name, degree in found.items()}, **sp}


def _pipeline(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    pp = rng.choice((1, 1, 2, 2, 3, 4, 8))
    if pp == 1:
        return {"num_microbatches": str(rng.choice((1, 4, 7)))}
    found = {"pp": str(pp), "num_microbatches": str(pp * rng.choice((1, 2, 4, 5)))}
    kind = rng.random()
    if kind < 0.3:
        found |= {"schedule": rng.choice(SCHEDULES)}
    elif kind < 0.5:
        found |= {"schedule": rng.choice(CHUNKED), "vpp": "2"}
    elif kind < 0.6:
        found |= {"vpp": str(rng.choice((2, 3))), "microbatch_group_size_per_vp_stage": str(pp * rng.choice((1, 2)))}
    elif kind < 0.65:
        found |= {"schedule": "dualpipe", "num_microbatches": str(4 * pp)}
    return {**found, **_split(rng, architecture, pp * int(found.get("vpp", 1)))}


def _split(rng: random.Random, architecture: Architecture, chunks: int) -> Options:
    """How the layers are cut into stages: evenly most often."""
    kind, layers = rng.random(), architecture.num_layers
    if kind < 0.15:
        cuts = sorted(rng.randint(0, layers) for _ in range(chunks - 1))
        parts = ["t" * (b - a) for a, b in zip([0, *cuts], [*cuts, layers])]
        return {"pipeline_model_parallel_layout": "E" + "|".join(parts) + "m" * architecture.mtp_num_layers + "L"}
    if kind < 0.3:
        ends = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
        return {name: str(rng.randint(1, max(1, 2 * layers // chunks))) for name in rng.sample(ends, rng.choice((1, 2)))}
    if kind < 0.4:
        counted = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
        return {name: "true" for name in rng.sample(counted, rng.choice((1, 2)))}
    return {}


def _recompute(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    kind = rng.choice(("full", "full", "selective", "selective", "sac_mm", "sac_attn", "sac_mm_attn"))
    if kind == "full":
        spread = {"distribute_saved_activations": "true"} if "sp" not in made and rng.random() < 0.4 else {}
        layers = str(rng.choice((1, 1, 2, 3)))
        return {"recompute": kind, "recompute_method": rng.choice(("uniform", "block")), "recompute_num_layers": layers, **spread}
    if kind == "selective":
        return {"recompute": kind, "recompute_modules": "+".join(rng.sample(RECOMPUTE_MODULES, rng.choice((1, 1, 2, 3))))}
    return {"recompute": kind, "fusion": "eager"}


def _context(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    kind = rng.choice(("p2p", "all_gather", "a2a", "a2a+p2p"))
    if kind == "a2a+p2p":
        return {"cp": "4", "cp_comm_type": kind, "hierarchical_context_parallel_sizes": "2+2"}
    return {"cp_comm_type": kind}


def _experts(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    if rng.random() < 0.4:
        return {"moe_expert_capacity_factor": rng.choice(("0.5", "1", "1.25")), "moe_pad_expert_input_to_capacity": rng.choice(("true", "false"))}
    return {
        "moe_token_dispatcher_type": rng.choice(("alltoall", "allgather")),
        "moe_router_dtype": rng.choice(("compute", "fp32")),
        "moe_router_load_balancing_type": rng.choice(("none", "aux_loss", "seq_aux_loss", "global_aux_loss")),
    }


def _optimizer(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    if rng.random() < 0.4:
        return {"optimizer": rng.choice(("adam", "sgd", "sgd_momentum"))}
    found = {"use_precision_aware_optimizer": "true"}
    for name, types in (("main_grads_dtype", ("bf16",)), ("exp_avg_dtype", ("fp16", "bf16", "fp8")), ("exp_avg_sq_dtype", ("fp16", "bf16", "fp8"))):
        found |= {name: rng.choice(types)} if rng.random() < 0.5 else {}
    if rng.random() < 0.4:
        found |= {"optimizer_cpu_offload": "true", "optimizer_offload_fraction": rng.choice(("0.25", "1"))}
    return found


def _sharded(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    found = {"zero": rng.choice(("0", "1", "2", "3", "3"))}
    if rng.random() < 0.5:
        found |= {"reshard_after_forward": rng.choice(("true", "false", "2")), "gradient_sync": rng.choice(("every_microbatch", "last_microbatch"))}
    if rng.random() < 0.3:
        found |= {"num_distributed_optimizer_instances": "2"}
    return found


def _overlap(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    names = ("overlap_grad_reduce", "overlap_p2p_comm", "tp_comm_overlap", "moe_shared_expert_overlap", "overlap_moe_expert_parallel_comm")
    name = rng.choice(names)
    with_it = {"overlap_grad_reduce": "overlap_param_gather", "overlap_moe_expert_parallel_comm": "delay_wgrad_compute"}.get(name)
    return {name: "true", **({with_it: "true"} if with_it and rng.random() < 0.5 else {})}


def _sizes(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    found = {"seq_length": str(rng.choice((512, 1024, 8192, 32768))), "micro_batch_size": str(rng.choice((1, 2, 3, 8)))}
    return {**found, **({"packed_document_length": "256"} if rng.random() < 0.3 else {})}


def _precision(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    if rng.random() < 0.5:
        return {"fp8": rng.choice(("tensorwise", "blockwise", "mxfp8"))}
    return {"precision": rng.choice(("bf16", "fp16", "fp32"))}


def _depths(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    return {"mtp_num_layers": str(rng.choice((0, 1, 2)))} if architecture.mtp_num_layers or rng.random() < 0.3 else {}


def _order(rng: random.Random, architecture: Architecture, made: Options) -> Options:
    return {"rank_order": rng.choice(("tp-cp-ep-dp-pp", "tp-pp-dp-cp-ep", "dp-tp-cp-ep-pp"))}


def _one_of(name: str, *values: str) -> Group:
    return lambda rng, architecture, made: {name: rng.choice(values)}


def _switches() -> list[Group]:
    """Every option that is on or off, and those of few values."""
    return [_one_of(name, "true", "false") for name, entry in Strategy.model_fields.items() if entry.annotation is bool and name != "sp"]


GROUPS: list[Group] = [
    *(_recompute, _context, _experts, _optimizer, _sharded, _overlap, _sizes, _precision, _depths, _order),
    _one_of("fusion", "te", "eager"),
    _one_of("cross_entropy_fusion", "unfused", "native", "te"),
    _one_of("clip_grad", "0", "1"),
    _one_of("cpu_offloading_num_layers", "1", "4"),
    *_switches(),
]
