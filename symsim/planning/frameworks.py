"""What a framework can run, as data: the options that a plan settles, and those that it tries as single changes of what it found.

Sources: megatron: Megatron-Core, megatron/training/arguments.py; torchtitan: torchtitan/config (job_config.py); deepspeed: the JSON of
deepspeed/runtime/config.py with the Trainer of transformers, and whatever optimizer that has or is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from symsim.exporters.refused import rules_of
from symsim.inputs.architecture import Architecture
from symsim.lowering.checks import Rule
from symsim.planning.given import one_of

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Choice:
    """Options that are chosen together: `rows` of their values. applies: to which models, under which assumptions."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    applies: Callable[[Architecture, Mapping[str, str]], bool] = lambda model, given: True


@dataclass(frozen=True)
class Framework:
    """target: what `symsim export` writes for it. title: as people write it. fixed: options that all its runs have. degrees: the axes of
    parallelism besides data that it has. derived: options that follow from others. staged: options that a pipeline of several stages has, with one
    chunk a rank and with several. ends: whether embedding and head count as layers where it is cut (`SPLITS`). assumptions: what it does by itself
    that others do otherwise. choices: what a plan tries all combinations of. further: NAME=VALUE texts that are tried one at a time on what was
    found. refused: what it does not start with, as its exporter says it. known: the values that it has of options of which others have more.
    without: with which models it does not do what is assumed."""

    target: str
    title: str
    fixed: Mapping[str, Any]
    degrees: frozenset[str]
    derived: Mapping[str, str]
    staged: Mapping[str, tuple[Any, Any]]
    ends: tuple[tuple[bool, bool], ...]
    assumptions: Mapping[str, str]
    choices: tuple[Choice, ...]
    further: tuple[str, ...]
    refused: tuple[Rule, ...]
    known: Mapping[str, Row] = field(default_factory=dict)
    without: Mapping[str, Callable[[Architecture], bool]] = field(default_factory=dict)

    def assumptions_of(self, model: Architecture) -> dict[str, str]:
        return {name: value for name, value in self.assumptions.items() if name not in self.without or not self.without[name](model)}


def _experts(model: Architecture, given: Mapping[str, str]) -> bool:
    return model.moe is not None


def _no_experts(model: Architecture, given: Mapping[str, str]) -> bool:
    return model.moe is None


def _shared_experts(model: Architecture, given: Mapping[str, str]) -> bool:
    return model.moe is not None and bool(model.moe.moe_shared_expert_intermediate_size)


def _latent(model: Architecture, given: Mapping[str, str]) -> bool:
    return model.attention.kind == "mla"


def _scores_kept(model: Architecture, given: Mapping[str, str]) -> bool:
    """A fused kernel of attention keeps none, and running it again frees nothing."""
    return given["attention_kernel"] in ("math", "eager")


def _keys_chosen(model: Architecture) -> bool:
    """DeepSeek's sparse attention, of Megatron-LM (`--experimental-attention-variant dsa`)."""
    return model.attention.dsa_indexer_topk is not None and not model.attention.dsa_indexer_block


def _chosen_keys(model: Architecture, given: Mapping[str, str]) -> bool:
    """Over context ranks it runs with keys and values gathered alone (`exporters/refused.py`)."""
    return _keys_chosen(model)


def _windowed(model: Architecture, given: Mapping[str, str]) -> bool:
    """Keys and values of a window do not go around a ring (`lowering/checks.py`)."""
    return not model.has_sinks and any(model.layer_kinds[kind].window is not None for kind in model.kind_names())


def _sinks(model: Architecture, given: Mapping[str, str]) -> bool:
    return model.has_sinks


_DATA_OVERLAP = Choice(("overlap_grad_reduce", "overlap_param_gather"), ((False, False), (True, True)))

_AS_CUT = ((False, False),)

# the loss is of the next token, and no weight is stored in fewer bits than products read
_PRETRAINING = {"task_type": ("causal_lm",), "quantize_base": ("none",)}

FRAMEWORKS: dict[str, Framework] = {
    "megatron": Framework(
        "megatron",
        "Megatron-LM",
        {"fusion": "te", "zero": 1},
        frozenset({"tp", "pp", "vpp", "cp", "ep", "etp"}),
        {"sp": "tp>1", "overlap_p2p_comm": "vpp>1"},
        # boundary tensors in one exchange that the host waits for, unless they travel beside computation
        {"p2p_comm": ("batched", "asynchronous"), "batch_p2p_sync": (True, False)},
        ((False, False), (False, True), (True, False), (True, True)),
        {"layernorm_linear_fusion": "fused", "apply_rope_fusion": "true"},
        (
            Choice(("recompute", "recompute_modules"), (("none", "core_attn"), ("full", "core_attn"))),
            Choice(("recompute", "recompute_modules"), (("selective", "moe_act+layernorm"), ("selective", "moe")), _experts),
            Choice(("recompute", "recompute_modules"), (("selective", "mla_up_proj"),), _latent),
            Choice(("recompute", "recompute_modules"), (("selective", "mlp+layernorm"),), _no_experts),
            Choice(("recompute", "recompute_modules"), (("selective", "core_attn"),), _scores_kept),
            _DATA_OVERLAP,
            Choice(("tp_comm_overlap",), ((False,), (True,)), _no_experts),
            Choice(("moe_token_dispatcher_type",), (("alltoall",), ("flex",)), _experts),
            Choice(("overlap_moe_expert_parallel_comm",), ((False,), (True,)), _experts),
            Choice(("moe_shared_expert_overlap",), ((False,), (True,)), _shared_experts),
            Choice(("cp_comm_type",), (("a2a",), ("all_gather",)), _windowed),
            Choice(("cp_comm_type",), (("a2a",),), _sinks),
            Choice(("cp_comm_type",), (("all_gather",),), _chosen_keys),
        ),
        (
            "cuda_graph_impl=local",
            # of experts without a fixed number of rows what stands before their dispatch
            "cuda_graph_impl=transformer_engine,cuda_graph_scope=attn+moe_router",
            "cross_entropy_fusion=te",
            "cross_entropy_fusion=linear",
            "defer_embedding_wgrad_compute=true",
            "delay_wgrad_compute=true",
            "use_precision_aware_optimizer=true",
            "use_precision_aware_optimizer=true,exp_avg_dtype=bf16,exp_avg_sq_dtype=bf16",
            "grad_reduce_in_fp32=false",
            "optimizer_cpu_offload=true,use_precision_aware_optimizer=true",
            "schedule=zb_h1",
        ),
        rules_of("megatron"),
        {"fusion": ("te",), "optimizer": ("adam", "sgd", "sgd_momentum", "lion", "muon"), "optimizer_bits": (32,), **_PRETRAINING},
        # transformer_config.py: rope fusion is not supported for DSAttention
        {"apply_rope_fusion": _keys_chosen},
    ),
    "torchtitan": Framework(
        "torchtitan",
        "torchtitan",
        # keys and values are gathered unless a TOML file says otherwise; others cannot
        {"fusion": "compile", "grad_reduce_in_fp32": True, "cp_comm_type": "all_gather", "zero": 3},
        frozenset({"tp", "pp", "cp", "ep"}),
        {"sp": "tp>1"},
        # stages keep what they gathered, and reduce gradients, until the last micro-batch (distributed/pipelining)
        {"reshard_after_backward": (False, False), "gradient_sync": ("last_microbatch", "last_microbatch")},
        _AS_CUT,
        {"fsdp_parameters": "main", "recompute_early_stop": "false"},
        (
            Choice(("reshard_after_forward",), ((True,), (False,))),
            Choice(("recompute",), (("none",), ("full",), ("sac_mm_attn",))),
        ),
        ("cross_entropy_fusion=chunked", "offload_parameters=true", "fusion=eager"),
        rules_of("torchtitan"),
        {"zero": (0, 3), "optimizer": ("adam", "sgd", "sgd_momentum", "muon"), "optimizer_bits": (32,), **_PRETRAINING},
    ),
    "deepspeed": Framework(
        "deepspeed",
        "DeepSpeed",
        # buckets, and limits of stage 3, are these unless given
        {
            "fusion": "eager",
            "ddp_bucket_size": 500_000_000,
            "allgather_bucket_size": 500_000_000,
            "prefetch_bucket_size": 50_000_000,
            "max_live_parameters": 1_000_000_000,
            "max_reuse_distance": 1_000_000_000,
            "param_persistence_threshold": 100_000,
        },
        frozenset({"ep"}),
        {},
        {},
        _AS_CUT,
        {"fsdp_unit": "module", "zero_reduction": "all_reduce"},
        (
            Choice(("zero",), ((0,), (1,), (2,), (3,))),
            Choice(("recompute",), (("none",), ("full",))),
            Choice(("overlap_grad_reduce",), ((False,), (True,))),
        ),
        ("fused_kernels=norm+activation+rope", "fusion=compile", "optimizer_cpu_offload=true", "cross_entropy_fusion=liger"),
        rules_of("deepspeed"),
    ),
}


def framework_of(name: str) -> Framework:
    """InputError for one that is not here."""
    return FRAMEWORKS[one_of("--framework", name, FRAMEWORKS)]
