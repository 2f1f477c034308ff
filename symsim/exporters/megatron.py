"""A launch script for Megatron-LM: the arguments of the model and the strategy, on data that it makes itself.

Argument names: Megatron-LM at commit d98e8a64 (2026-08-22), training/arguments.py, core/transformer/transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from symsim.exporters import megatron_arithmetic, refused
from symsim.importers.assumed import ALLOCATOR
from symsim.importers.megatron.fusions import OFFLOADED
from symsim.importers.megatron.hybrid import INDEXER
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import depths
from symsim.pipeline.stages import stages

if TYPE_CHECKING:
    from symsim.exporters.export import Asked

_GPUS_A_NODE = 8
_LARGEST_MULTIPLE = 128
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
_LONG = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
Argument = tuple[str, ...]


def files(asked: "Asked") -> dict[str, str]:
    """train.sh: a launcher, and arguments in groups, a line each. InputError for what Megatron-LM does not start with."""
    a, s = asked.architecture, asked.strategy
    refused.check(refused.rules_of("megatron"), a, s)
    groups = {
        "MODEL_ARGS": [*_model(a, s), *_attention(a), *_layers(a), *megatron_arithmetic.arguments(a)],
        "MOE_ARGS": list(_experts(a, s)),
        "PARALLEL_ARGS": [*_parallel(s), *_pipeline(a, s)],
        "TRAINING_ARGS": [*_training(asked), *_precision(s), *_recompute(s), *_optimizer(s)],
        "DATA_ARGS": list(_data(a, s)),
    }
    node, nodes = machines(s)
    text = f"#!/bin/bash\n# {a.name} on {s.world_size} ranks; run in a checkout of Megatron-LM. Data is made up: --data-path trains on yours.\n"
    variables = {**_connections(s), **environment(asked)}
    text += "".join(f"export {name}={value}\n" for name, value in variables.items()) + ("\n" if variables else "")
    for name, arguments in groups.items():
        lines = "".join(f"    {' '.join(map(_quoted, argument))}\n" for argument in arguments)
        text += f"{name}=(\n{lines})\n\n" if lines else ""
    used = " ".join(f'"${{{name}[@]}}"' for name, arguments in groups.items() if arguments)
    return {"train.sh": text + f"torchrun --nproc-per-node {node} --nnodes {nodes} pretrain_gpt.py {used}\n"}


def _connections(s: Strategy) -> dict[str, str]:
    """How many queues kernels are issued in (arguments.py validate_args): one where messages of tensor or context ranks are to begin in the order in
    which they are issued, not one for FSDP, and many where two micro-batches run beside each other."""
    if s.zero in _SHARDING:
        return {}
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "32" if s.overlap_moe_expert_parallel_comm else "1"}


def environment(asked: "Asked") -> dict[str, str]:
    """Variables that the ranks are started with."""
    return {ALLOCATOR[0]: "expandable_segments:True"} if asked.assumptions.get("allocator") == "expandable" else {}


def run_arguments(asked: "Asked") -> list[Argument]:
    """The arguments of everything but the model and its data."""
    a, s = asked.architecture, asked.strategy
    return [*_experts(a, s), *_parallel(s), *_pipeline(a, s), *_training(asked), *_precision(s), *_recompute(s), *_optimizer(s)]


def said(asked: "Asked") -> list[str]:
    """One sentence: numbers that the model does not say, since no cost follows from them, and their arguments."""
    found = "; ".join(megatron_arithmetic.unknown(asked.architecture))
    return [f"add by hand what {asked.architecture.name} has of these, from which no cost follows: {found}"] if found else []


def machines(s: Strategy) -> tuple[int, int]:
    """Ranks a node and nodes: as full as nodes of eight can be with the same number on each."""
    node = next(ranks for ranks in range(_GPUS_A_NODE, 0, -1) if s.world_size % ranks == 0)
    return node, s.world_size // node


def _quoted(word: str) -> str:
    return word if word and all(c.isascii() and (c.isalnum() or c in "-_.,:/=+") for c in word) else f'"{word}"'


def _on(name: str, condition: Any) -> list[Argument]:
    return [(f"--{name}",)] if condition else []


def _given(name: str, value: Any) -> list[Argument]:
    return [] if value is None else [(f"--{name}", f"{value:g}" if isinstance(value, float) else str(value))]


def _model(a: Architecture, s: Strategy) -> Iterator[Argument]:
    yield ("--use-mcore-models",)
    yield from _given("num-layers", a.num_layers)
    yield from _given("hidden-size", a.hidden_size)
    yield from _given("ffn-hidden-size", a.mlp.ffn_hidden_size if a.mlp else a.moe.moe_ffn_hidden_size if a.moe else None)
    network = a.mlp or a.moe
    assert network is not None
    yield from _on("swiglu", network.gated and network.activation == "silu")
    yield from _on("quick-geglu", network.gated and network.activation in ("gelu", "swiglu_clamped"))
    yield from _on("squared-relu", not network.gated and network.activation == "relu2")
    yield from _on("openai-gelu", not network.gated and network.activation == "gelu_tanh")
    yield from _given("normalization", a.normalization)
    yield from _on("disable-bias-linear", not (a.mlp.bias if a.mlp else a.attention.out_bias))
    yield from _on("untie-embeddings-and-output-weights", not a.tie_word_embeddings)
    rotary = "yarn" if a.attention.rotary_scaled else "rope"
    kind = {"rope": rotary, "learned": "learned_absolute"}.get(a.position_embedding, "none")
    yield from _given("position-embedding-type", kind)
    rows = a.position_embedding_rows if kind == "learned_absolute" else None
    # a table of fewer rows than a sequence has tokens is refused
    yield from _given("max-position-embeddings", max(rows or 0, s.seq_length))
    yield from _given("hidden-dropout", float(a.hidden_dropout))
    yield from _given("attention-dropout", float(a.attention_dropout))
    trained = depths(a, s.mtp_num_layers)
    yield from _given("mtp-num-layers", trained or None)
    yield from _on("mtp-use-repeated-layer", trained and a.mtp_use_repeated_layer)


def _attention(a: Architecture) -> Iterator[Argument]:
    at = a.attention
    yield from _given("num-attention-heads", at.num_attention_heads)
    if at.kind == "mla":
        yield ("--multi-latent-attention",)
        for name in ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"):
            yield from _given(name.replace("_", "-"), getattr(at, name))
        yield from _on("qk-layernorm", at.latent_norm)
        if at.dsa_indexer_topk is not None:
            yield ("--experimental-attention-variant", "dsa")
            yield ("--no-rope-fusion",)
            for name in INDEXER:
                yield from _given(name.replace("_", "-"), getattr(at, name))
        return
    if a.query_groups != at.num_attention_heads:
        yield ("--group-query-attention",)
        yield from _given("num-query-groups", a.query_groups)
    yield from _given("kv-channels", a.head_dim)
    yield from _on("add-qkv-bias", at.qkv_bias and not at.out_bias)
    yield from _on("qk-layernorm", at.qk_norm == "head")
    yield from _on("qk-l2-norm", at.qk_norm == "l2")
    yield from _on("attention-output-gate", at.output_gate)
    yield from _given("softmax-type", "learnable" if at.sinks else None)
    yield from _given("rotary-percent", None if at.rotary_fraction == 1 else float(at.rotary_fraction))


def _layers(a: Architecture) -> Iterator[Argument]:
    """Which layers have experts, a window, no rotary positions, or linear attention."""
    kinds = [a.layer_kinds[kind] for segment in a.layers for _ in range(segment.repeat) for kind in segment.kinds]
    if any(kind.ffn == "moe" for kind in kinds) and any(kind.ffn == "mlp" for kind in kinds):
        yield ("--moe-layer-freq", _pattern([kind.ffn == "moe" for kind in kinds]))
    if a.linear_attention is not None and any(kind.mixer == "linear_attention" for kind in kinds):
        yield ("--experimental-attention-variant", "gated_delta_net")
        yield ("--linear-attention-freq", _pattern([kind.mixer == "linear_attention" for kind in kinds]))
        for name, size in a.linear_attention.model_dump(exclude={"fused_in_proj", "separate_qkv", "low_rank_gates", "kind"}).items():
            yield from _given(name.replace("_", "-"), size)
    windows = {kind.window for kind in kinds if kind.window}
    if windows:
        yield ("--window-size", f"{max(windows) - 1},0")
        yield ("--window-attn-skip-freq", _pattern([kind.window is not None for kind in kinds]))
    if a.position_embedding == "rope" and not all(kind.rope for kind in kinds):
        yield ("--no-rope-freq", _pattern([not kind.rope for kind in kinds]))


def _pattern(flags: Sequence[bool]) -> str:
    return "+".join(f"[{int(flag)}]*{len(list(run))}" for flag, run in groupby(flags))


def _experts(a: Architecture, s: Strategy) -> Iterator[Argument]:
    moe = a.moe
    if moe is None:
        return
    yield from _given("num-experts", moe.num_moe_experts)
    yield from _given("moe-router-topk", moe.moe_router_topk)
    yield from _given("moe-ffn-hidden-size", moe.moe_ffn_hidden_size)
    yield from _given("moe-shared-expert-intermediate-size", moe.moe_shared_expert_intermediate_size)
    yield from _on("moe-shared-expert-gate", moe.moe_shared_expert_gate)
    yield from _given("moe-router-score-function", moe.moe_router_score_function)
    yield from _on("moe-router-pre-softmax", moe.moe_router_pre_softmax)
    yield from _given("moe-router-num-groups", moe.moe_router_num_groups)
    yield from _given("moe-router-group-topk", moe.moe_router_group_topk)
    yield from _given("moe-latent-size", moe.moe_latent_size)
    yield from _on("moe-router-enable-expert-bias", moe.moe_router_enable_expert_bias != "none")
    yield from _on("moe-apply-probs-on-input", moe.router_weight_before_experts)
    yield from _on("use-transformer-engine-op-fuser", s.use_transformer_engine_op_fuser)
    yield from _given("moe-token-dispatcher-type", s.moe_token_dispatcher_type)
    if s.moe_token_dispatcher_type == "flex":
        yield from _given("moe-flex-dispatcher-backend", s.moe_flex_dispatcher_backend)
        # the newest argument replaces one a backend, which older versions have too
        yield from _given(f"moe-{s.moe_flex_dispatcher_backend}-num-sms", s.moe_flex_dispatcher_num_sms)
        yield from _on("moe-permute-fusion-into-hybridep", s.moe_permute_fusion_into_hybridep)
        yield from _given("moe-expert-rank-capacity-factor", s.moe_expert_rank_capacity_factor)
        yield from _on("moe-use-grouped-tensor", s.moe_expert_rank_capacity_factor is not None and not s.use_transformer_engine_op_fuser)
        yield from _on("moe-paged-stash", s.moe_paged_stash)
    yield from _given("moe-expert-capacity-factor", s.moe_expert_capacity_factor)
    yield from _on("moe-pad-expert-input-to-capacity", s.moe_pad_expert_input_to_capacity)
    yield from _on("moe-router-padding-for-quantization", s.moe_router_padding_for_quantization)
    yield from _given("moe-router-dtype", "fp32" if s.moe_router_dtype == "fp32" else None)
    yield from _given("moe-router-load-balancing-type", s.moe_router_load_balancing_type)
    yield from _given("moe-z-loss-coeff", "1e-3" if s.moe_z_loss else None)
    yield from _given("moe-aux-loss-coeff", None if s.moe_router_load_balancing_type == "none" else "1e-3")
    yield from _on("moe-shared-expert-overlap", s.moe_shared_expert_overlap)
    yield from _on("overlap-moe-expert-parallel-comm", s.overlap_moe_expert_parallel_comm)
    yield from _on("delay-wgrad-compute", s.delay_wgrad_compute)
    yield from _on("overlap-dispatch-backward-with-experts-wgrad", s.overlap_dispatch_backward_with_experts_wgrad)
    yield from _on("ep-overlap-early-attn-memory-release", s.ep_overlap_early_attn_memory_release)
    yield from _given("expert-model-parallel-size", s.ep)
    yield from _given("expert-tensor-parallel-size", s.expert_tp)


def _parallel(s: Strategy) -> Iterator[Argument]:
    yield from _given("tensor-model-parallel-size", s.tp)
    yield from _on("sequence-parallel", s.sp)
    yield from _given("context-parallel-size", s.cp)
    if s.cp > 1:
        yield from _given("cp-comm-type", s.cp_comm_type)
        if s.hierarchical_context_parallel_sizes:
            yield ("--hierarchical-context-parallel-sizes", *map(str, s.hierarchical_context_parallel_sizes))
    yield from _given("pipeline-model-parallel-size", s.pp)
    yield from _on("use-tp-pp-dp-mapping", s.rank_order == "tp-cp-ep-pp-dp")
    yield from _sharded(s)
    yield from _on("overlap-grad-reduce", s.overlap_grad_reduce)
    yield from _on("overlap-param-gather", s.overlap_param_gather)
    yield from _on("overlap-param-gather-with-optimizer-step", s.overlap_param_gather_with_optimizer_step)
    yield from _on("tp-comm-overlap", s.tp_comm_overlap)
    if s.cuda_graph_impl != "none":
        yield from _given("cuda-graph-impl", s.cuda_graph_impl)
        if s.cuda_graph_scope:
            yield ("--cuda-graph-scope", *s.cuda_graph_scope)
    if s.tp_comm_overlap:
        for name in ("tp-comm-overlap-ag", "tp-comm-overlap-rs", "tp-comm-bulk-dgrad", "tp-comm-bulk-wgrad"):
            yield from _on(f"no-{name}", not getattr(s, name.replace("-", "_")))
        yield from _on("tp-comm-overlap-rs-dgrad", s.tp_comm_overlap_rs_dgrad)
    yield from _on("ddp-pad-buckets-for-high-nccl-busbw", s.pad_buckets_for_high_nccl_busbw)


def _sharded(s: Strategy) -> Iterator[Argument]:
    """What data ranks share: optimizer states, all of FSDP, or, where experts are cut over other ranks than the rest, weights in shards."""
    several, optim = s.num_distributed_optimizer_instances, s.outer_dp_sharding_strategy == "optim"
    if s.expert_shard_ranks is not None:
        # of a shard that one rank has, its states are that rank's either way
        yield from _on("use-distributed-optimizer", optim or (several == 1 and s.expert_shard_ranks == s.expert_dp))
        yield from _given("tensor-parallel-num-weight-shards", s.tp * s.dp * s.cp // several if several < s.dp * s.cp else None)
        yield from _given("expert-tensor-parallel-num-weight-shards", s.expert_tp * s.expert_shard_ranks)
        return
    yield from _on("use-distributed-optimizer", s.zero == 1)
    if s.zero in _SHARDING:
        yield ("--use-megatron-fsdp",)
        yield ("--data-parallel-sharding-strategy", _SHARDING[s.zero])
        yield ("--ckpt-format", "fsdp_dtensor")
    yield from _given("num-distributed-optimizer-instances", several if several > 1 else None)
    yield from _given("outer-dp-sharding-strategy", "optim" if optim else None)


def _pipeline(a: Architecture, s: Strategy) -> Iterator[Argument]:
    """How layers are split. Megatron-LM divides evenly or refuses: what is left over here is laid out stage by stage."""
    yield from _on("no-overlap-p2p-communication", s.vpp > 1 and not s.overlap_p2p_comm)
    yield from _on("overlap-p2p-communication-warmup-flush", s.vpp > 1 and s.overlap_p2p_comm and s.overlap_p2p_comm_warmup_flush)
    yield from _on("defer-embedding-wgrad-compute", s.defer_embedding_wgrad_compute)
    yield from _given("wgrad-deferral-limit", s.wgrad_deferral_limit if s.defer_embedding_wgrad_compute else None)
    yield from _given("microbatch-group-size-per-virtual-pipeline-stage", s.microbatch_group_size_per_vp_stage)
    counted = s.account_for_embedding_in_pipeline_split + s.account_for_loss_in_pipeline_split
    ends = [n for n in (s.num_layers_in_first_pipeline_stage, s.num_layers_in_last_pipeline_stage) if n is not None]
    left, parts = a.num_layers + counted - sum(ends), (s.pp - len(ends)) * s.vpp
    if s.pipeline_model_parallel_layout or (parts > 0 and left % parts):
        yield ("--pipeline-model-parallel-layout", s.pipeline_model_parallel_layout or _layout(a, s))
        return
    yield from _given("num-virtual-stages-per-pipeline-rank", s.vpp if s.vpp > 1 else None)
    yield from _given("decoder-first-pipeline-num-layers", s.num_layers_in_first_pipeline_stage)
    yield from _given("decoder-last-pipeline-num-layers", s.num_layers_in_last_pipeline_stage)
    yield from _on("account-for-embedding-in-pipeline-split", s.account_for_embedding_in_pipeline_split)
    yield from _on("account-for-loss-in-pipeline-split", s.account_for_loss_in_pipeline_split)


def _layout(a: Architecture, s: Strategy) -> str:
    trained = depths(a, s.mtp_num_layers)
    chunks = sorted((chunk for stage in stages(a, s, trained) for chunk in stage.chunks), key=lambda chunk: (chunk.first, chunk.last))
    return "|".join("E" * c.embedding + f"t*{c.last - c.first}" * (c.last > c.first) + "m" * c.mtp + "L" * c.loss for c in chunks)


def _training(asked: "Asked") -> Iterator[Argument]:
    s = asked.strategy
    yield from _given("seq-length", s.seq_length)
    yield from _given("micro-batch-size", s.micro_batch_size)
    yield from _given("global-batch-size", s.micro_batch_size * s.microbatches * s.dp)
    yield from _given("train-iters", 100)
    yield ("--lr", "1e-4")
    fused = s.cross_entropy_fusion in ("native", "te", "linear")
    yield from _on("cross-entropy-loss-fusion", fused)
    yield from _given("cross-entropy-fusion-impl", s.cross_entropy_fusion if fused else None)
    held = resolve(asked.assumptions)
    for name in ("moe_grouped_gemm", "moe_permute_fusion"):
        yield from _on(name.replace("_", "-"), asked.architecture.moe is not None and held[name] == "true")
    yield from _given("dsa-indexer-loss-coeff", None if s.dsa_indexer_loss == "none" else "1e-2")
    yield from _on("dsa-indexer-use-sparse-loss", s.dsa_indexer_loss == "sparse")
    yield from _on("moe-router-force-load-balancing", asked.architecture.moe is not None and held["expert_load"] == "random")
    yield from _on("deterministic-mode", held["deterministic_attention"] == "true")
    for name in ("log_params_norm", "log_num_zeros_in_grad"):
        yield from _on(name.replace("_", "-"), getattr(s, name))
    gated = asked.architecture.mlp is None or asked.architecture.mlp.gated
    yield from _on(f"no-bias-{'swiglu' if gated else 'gelu'}-fusion", not s.bias_activation_fusion)
    for name in ("gradient_accumulation_fusion", "bias_dropout_fusion", "masked_softmax_fusion"):
        yield from _on(f"no-{name.replace('_', '-')}", not getattr(s, name))
    yield from _given("ddp-bucket-size", s.ddp_bucket_size if s.overlap_grad_reduce else None)
    yield from _given("attention-backend", "unfused" if asked.assumptions.get("attention_kernel") == "math" else None)


def _precision(s: Strategy) -> Iterator[Argument]:
    yield from _on(s.precision, s.precision != "fp32")
    yield from _on("grad-reduce-in-bf16", s.precision == "bf16" and not s.grad_reduce_in_fp32)
    yield from _on("accumulate-allreduce-grads-in-fp32", s.precision == "fp16" and s.grad_reduce_in_fp32)
    if s.fp8 == "nvfp4":
        yield ("--fp4-format", "e2m1")
        yield from _on("fp4-param-gather", s.fp8_param_gather)
    elif s.fp8 != "none":
        yield ("--fp8-format", "e4m3" if s.fp8 == "mxfp8" else "hybrid")
        yield ("--fp8-recipe", s.fp8)
        yield from _on("fp8-param-gather", s.fp8_param_gather)
        yield from _on("fp8-output-proj", s.fp8_output_proj)
    if s.num_layers_at_start_in_bf16 or s.num_layers_at_end_in_bf16:
        yield ("--first-last-layers-bf16",)
        yield ("--num-layers-at-start-in-bf16", str(s.num_layers_at_start_in_bf16))
        yield ("--num-layers-at-end-in-bf16", str(s.num_layers_at_end_in_bf16))
    yield from _on("fp32-residual-connection", s.fp32_residual_connection)


def _recompute(s: Strategy) -> Iterator[Argument]:
    if s.recompute == "full":
        yield ("--recompute-granularity", "full")
        yield ("--recompute-method", s.recompute_method)
        yield from _given("recompute-num-layers", s.recompute_num_layers)
        yield from _on("distribute-saved-activations", s.distribute_saved_activations)
    elif s.recompute == "selective":
        yield ("--recompute-granularity", "selective")
        yield ("--recompute-modules", *s.recompute_modules)
    modules = {operation: module for module, operation in reversed(OFFLOADED.items())}
    if s.offload_operations and set(s.offload_operations) <= modules.keys():
        yield ("--fine-grained-activation-offloading",)
        yield ("--offload-modules", *(modules[operation] for operation in s.offload_operations))
    if s.cpu_offloading_num_layers:
        yield ("--cpu-offloading-num-layers", str(s.cpu_offloading_num_layers))


def _optimizer(s: Strategy) -> Iterator[Argument]:
    own = {"sgd": "sgd", "sgd_momentum": "sgd", "lion": "lion", "muon": "dist_muon" if s.zero else "muon"}
    yield ("--optimizer", own.get(s.optimizer, "adam"))
    if own.get(s.optimizer) == "sgd":
        yield ("--sgd-momentum", "0.9" if s.optimizer == "sgd_momentum" else "0")
    if s.optimizer == "muon":
        yield ("--muon-tp-mode", s.muon_tp_mode)
        yield ("--muon-num-ns-steps", str(s.muon_num_ns_steps))
        yield from _on("muon-no-split-qkv", not s.muon_split_qkv)
        yield ("--muon-fp32-matmul-prec", s.muon_fp32_matmul_prec)
        yield ("--muon-scalar-optimizer", s.muon_scalar_optimizer)
    yield from _given("clip-grad", float(s.clip_grad))
    if s.use_precision_aware_optimizer:
        yield ("--use-precision-aware-optimizer",)
        for name in ("main_params_dtype", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
            value = getattr(s, name)
            yield from _given(name.replace("_", "-"), _LONG[value] if value is not None else None)
    if s.optimizer_cpu_offload:
        yield ("--optimizer-cpu-offload",)
        yield from _given("optimizer-offload-fraction", float(s.optimizer_offload_fraction))


def _data(a: Architecture, s: Strategy) -> Iterator[Argument]:
    """Made-up tokens of the model's own rows, which are a multiple of what they are padded to."""
    multiple = next(n for n in (_LARGEST_MULTIPLE, 64, 32, 16, 8, 4, 2, 1) if a.vocab_size % (n * s.tp) == 0 or n == 1)
    yield ("--mock-data",)
    yield ("--tokenizer-type", "NullTokenizer")
    yield from _given("vocab-size", a.vocab_size)
    yield from _given("make-vocab-size-divisible-by", multiple)
