"""SimuMax's three JSON files: strategy, model and, with a system, its accelerator and network.

Keys: SimuMax v1.2 (git 4dcaae5), simumax/core/config.py. A system's curves become one share for each kind of kernel.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, Tier

if TYPE_CHECKING:
    from symsim.exporters.export import Asked

_GIB = 2**30
_OPS = {"all_reduce": (2, -1), "all_gather": (1, -1), "reduce_scatter": (1, -1), "p2p": (1, 0), "all2all": (1, -1)}
_DUMMY_WGRAD = "2.3.0"
# of TransformerEngine, which keeps attention's output as it was made from then on
_OUTPUT_AS_MADE = "2.8.0"
_VOCABULARY_MULTIPLE = 128


def files(asked: "Asked") -> dict[str, str]:
    """strategy.json, model.json and system.json. InputError for a model that has no such file."""
    made = {"strategy.json": _strategy(asked), "model.json": _model(asked.architecture, asked.strategy)}
    if asked.system is not None:
        made["system.json"] = _system(asked.system)
    return {name: json.dumps(data, indent=4) + "\n" for name, data in made.items()}


def _strategy(asked: "Asked") -> dict[str, Any]:
    s, assumed = asked.strategy, asked.assumptions
    made: dict[str, Any] = {
        "seq_len": s.seq_length,
        "micro_batch_size": s.micro_batch_size,
        "micro_batch_num": s.microbatches,
        "dtype": s.precision,
        "fp8": s.fp8 != "none",
        "world_size": s.world_size,
        "tp_size": s.tp,
        "cp_size": s.cp,
        "pp_size": s.pp,
        "ep_size": s.ep,
        "etp_size": s.expert_tp,
        "order_of_paralielism": s.rank_order,
        "moe_dispatcher_policy": "all2all",
        "enable_sequence_parallel": s.sp,
        "num_layers_in_first_pipeline_stage": s.num_layers_in_first_pipeline_stage,
        "num_layers_in_last_pipeline_stage": s.num_layers_in_last_pipeline_stage,
        "account_for_embedding_in_pipeline_split": s.account_for_embedding_in_pipeline_split,
        "account_for_loss_in_pipeline_split": s.account_for_loss_in_pipeline_split,
        "interleaving_size": s.vpp,
        "microbatch_group_size_per_vp_stage": s.microbatch_group_size_per_vp_stage,
        "pp_comm_async": s.overlap_p2p_comm if s.vpp > 1 else s.p2p_comm == "asynchronous",
        "enable_straggler_model": assumed.get("stragglers") == "nodes",
        "attention_sparse_ratio": float(s.attention_sparse_ratio),
        "zero_state": s.zero,
        "grad_reduce_in_bf16": not s.grad_reduce_in_fp32,
        "use_fp32_accum_grad": s.grad_reduce_in_fp32,
        "cross_entropy_loss_fusion": s.cross_entropy_fusion == "te",
        "enable_dropout": bool(asked.architecture.hidden_dropout or asked.architecture.attention_dropout),
        "use_flash_sdp": assumed.get("attention_kernel", "flash") == "flash",
        "recompute_variance": assumed.get("recompute_early_stop") == "true",
        "dispatch_probs": assumed.get("moe_probabilities", "experts") == "experts",
        "te_version": _DUMMY_WGRAD if assumed.get("te_dummy_wgrad", "true") == "true" else None,
        **_recomputed(s),
        "use_fused_norm": s.norm_fusion,
        "use_fused_swiglu": s.bias_activation_fusion,
        "use_accm_weight": s.gradient_accumulation_fusion,
        "use_fused_grad_accumulation": s.gradient_accumulation_fusion,
        "mem_factor": s.allocator_in_use,
    }
    if s.cp > 1:
        made["cp_comm_type"] = "all_gather" if _gathers(asked) else "a2a"
        if made["te_version"] is not None and s.cp_saved_output == "attention":
            made["te_version"] = _OUTPUT_AS_MADE
    return made


def _gathers(asked: "Asked") -> bool:
    """Whether keys and values are gathered over context ranks: where that is asked for, or heads are too few to be exchanged."""
    s = asked.strategy
    return s.cp > 1 and (s.cp_comm_type == "all_gather" or asked.architecture.query_groups % (s.tp * s.cp) != 0)


def _recomputed(s: Strategy) -> dict[str, Any]:
    if s.recompute == "full":
        return {"enable_recompute": True, "recompute_granularity": "full_block", "recompute_layer_num": s.recompute_num_layers}
    if s.recompute == "selective" and tuple(s.recompute_modules) == ("core_attn",):
        return {"enable_recompute": True, "recompute_granularity": "sdp_only"}
    if s.recompute == "selective":
        return {"enable_recompute": True, "megatron_recompute": True, "megatron_recompute_modules": list(s.recompute_modules)}
    return {"enable_recompute": False, "recompute_granularity": None}


def _model(a: Architecture, s: Strategy) -> dict[str, Any]:
    if a.vocab_size % (_VOCABULARY_MULTIPLE * s.tp):
        multiple = next((n for n in (64, 32, 16, 8, 4, 2) if a.vocab_size % (n * s.tp) == 0), 1)
    else:
        multiple = _VOCABULARY_MULTIPLE
    at = a.attention
    made: dict[str, Any] = {
        "model_name": a.name,
        "model_type": "moe" if a.moe else "dense",
        "hidden_size": a.hidden_size,
        "head_num": at.num_attention_heads,
        "kv_head_num": at.num_query_groups or at.num_attention_heads,
        "head_size": a.head_dim if at.kind == "gqa" else None,
        "attention_type": "mla" if at.kind == "mla" else "mha",
        "layer_num": a.num_layers,
        "vocab_size": a.vocab_size,
        "make_vocab_size_divisible_by": multiple,
        "use_swiglu": (a.mlp or a.moe).gated,  # type: ignore[union-attr]
        "intermediate_size": a.mlp.ffn_hidden_size if a.mlp else None,
        "dense_layers": _dense_layers(a),
    }
    if at.kind == "mla":
        made |= {name: getattr(at, name) for name in ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")}
    if a.moe is not None:
        made |= {
            "expert_num": a.moe.num_moe_experts,
            "topk": a.moe.moe_router_topk,
            "moe_ffn_hidden_size": a.moe.moe_ffn_hidden_size,
            "moe_shared_expert_intermediate_size": a.moe.moe_shared_expert_intermediate_size,
            "moe_pad_expert_input_to_capacity": s.moe_pad_expert_input_to_capacity,
            "capacity": s.moe_expert_capacity_factor or 1,
        }
    return {key: value for key, value in made.items() if value is not None}


def _dense_layers(a: Architecture) -> int | None:
    """Leading layers without experts. InputError where dense and mixed layers alternate, which SimuMax cannot say."""
    mixed = [a.layer_kinds[kind].ffn == "moe" for segment in a.layers for _ in range(segment.repeat) for kind in segment.kinds]
    if not any(mixed):
        return None
    dense = mixed.index(True)
    if not all(mixed[dense:]):
        raise InputError(f"SimuMax cannot say the layers of {a.name}: it has dense layers after its first mixture of experts")
    return dense


def said(asked: "Asked") -> list[str]:
    """What no key of the files holds besides options: of a system."""
    left = []
    if _gathers(asked):
        left.append("SimuMax 1.2 reads cp_comm_type=all_gather and does not run it: with cp_comm_type=a2a, of heads that tp*cp divides, it does")
    if asked.system is None:
        return left
    left += [f"SimuMax has one share for each kind of kernel: of {asked.system.name} the curves, the host, price and power are left out"]
    if len(asked.system.network) > len(_tiers(asked.system)):
        left.append(f"SimuMax has two tiers of a network: {asked.system.name} has {len(asked.system.network)}")
    return left


def _tiers(system: System) -> dict[str, Tier]:
    inner = next((tier for tier in system.network if tier.ranks != "all"), None)
    outer = system.network[-1] if system.network[-1] is not inner else None
    return {name: tier for name, tier in (("high_intra_node", inner), ("inter_node", outer)) if tier is not None}


def _system(system: System) -> dict[str, Any]:
    chip, kernels, tiers = system.accelerator, system.kernels, _tiers(system)
    inner = tiers.get("high_intra_node")
    node = int(inner.ranks) if inner is not None else 1
    peak = float(chip.peak.bf16.value) / 1e12
    rate, start = float(chip.memory_bandwidth.value) / _GIB, float(kernels.memory.start.value) * 1e6

    def moved(share: Any) -> dict[str, float]:
        return {"gbps": rate, "efficient_factor": float(share.value), "latency_us": start}

    ops = {
        "default": {"tflops": peak, "efficient_factor": float(kernels.gemm.efficiency.value)},
        "matmul": {"tflops": peak, "efficient_factor": float(kernels.gemm.efficiency.value)},
        "group_matmul": {"tflops": peak, "efficient_factor": float(kernels.grouped_gemm.efficiency.value)},
        # there the whole square of a causal kernel's scores counts
        "sdp_fwd": {"tflops": peak, "efficient_factor": 2 * float(kernels.attention.forward.value)},
        "sdp_bwd": {"tflops": peak, "efficient_factor": 2 * float(kernels.attention.backward.value)},
    }
    if chip.peak.fp8 is not None:
        share = float(kernels.gemm.efficiency.value) * float(chip.fp8_share.value if chip.fp8_share else 1)
        fast = {"tflops": float(chip.peak.fp8.value) / 1e12, "efficient_factor": share}
        ops |= {"fp8_matmul": fast, "fp8_group_matmul": fast}
    return {
        "sys_name": system.name,
        "num_per_node": node,
        "accelerator": {
            "backend": "cuda",
            "mem_gbs": float(chip.memory.value) / _GIB,
            "mode": "roofline",
            "op": ops,
            "bandwidth": {
                "default": moved(kernels.memory.elementwise),
                "permute_fwd": moved(kernels.memory.permute),
                "permute_bwd": moved(kernels.memory.permute),
                "ce": moved(kernels.memory.cross_entropy),
            },
        },
        "networks": {"intra_with_pcie": False, **{name: _tier(tier, node if name == "inter_node" else 1) for name, tier in tiers.items()}},
    }


def _tier(tier: Tier, sharing: int) -> dict[str, Any]:
    """A tier; between nodes its rate is that of a node, whose ranks share it."""
    latency, default = float(tier.latency.value) * 1e6, tier.efficiency.get("default")
    ops: dict[str, dict[str, float]] = {}
    for op, (scale, offset) in _OPS.items():
        ops[op] = {"scale": scale, "offset": offset}
        own = tier.efficiency.get("all_to_all" if op == "all2all" else op)
        if own is not None:
            ops[op]["efficient_factor"] = float(own.value)
        if tier.launch is not None and op != "p2p":
            ops[op]["fixed_latency_us"] = float(tier.launch.value) * 1e6
    rate, share = float(tier.bandwidth.value) * sharing / _GIB, float(default.value) if default else 1.0
    return {"processor_usage": 0.0, "bandwidth": {"gbps": rate, "efficient_factor": share, "latency_us": latency}, "op": ops}
