"""Megatron-SWIFT's arguments as options of a strategy and assumptions: those that change a step, with the defaults of both versions."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from symsim.errors import InputError
from symsim.importers.keys import Entry
from symsim.importers.rules import data_parallel
from symsim.importers.swift_reading import Reading, precision, rows

_EXPERTS = "of experts, which the model has none of"


class Plain(NamedTuple):
    """An argument that is an option, or an assumption where `to` begins with assume. ; its defaults in the seed's version and today."""

    key: str
    to: str
    read: Literal["integer", "flag", "number", "text"]
    seed: Any
    head: Any
    experts: bool = False


PLAIN = (
    Plain("micro_batch_size", "micro_batch_size", "integer", 1, 1),
    Plain("global_batch_size", "global_batch_size", "integer", 16, 16),
    Plain("tensor_model_parallel_size", "tp", "integer", 1, 1),
    Plain("pipeline_model_parallel_size", "pp", "integer", 1, 1),
    Plain("context_parallel_size", "cp", "integer", 1, 1),
    Plain("sequence_parallel", "sp", "flag", False, False),
    Plain("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage", "integer", None, None),
    Plain("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage", "integer", None, None),
    Plain("account_for_embedding_in_pipeline_split", "account_for_embedding_in_pipeline_split", "flag", False, False),
    Plain("account_for_loss_in_pipeline_split", "account_for_loss_in_pipeline_split", "flag", False, False),
    Plain("microbatch_group_size_per_vp_stage", "microbatch_group_size_per_vp_stage", "integer", None, None),
    Plain("tp_comm_overlap", "tp_comm_overlap", "flag", False, False),
    Plain("overlap_grad_reduce", "overlap_grad_reduce", "flag", False, False),
    Plain("overlap_param_gather", "overlap_param_gather", "flag", False, False),
    Plain("clip_grad", "clip_grad", "number", 1.0, 1.0),
    Plain("use_precision_aware_optimizer", "use_precision_aware_optimizer", "flag", False, False),
    Plain("optimizer_cpu_offload", "optimizer_cpu_offload", "flag", False, False),
    Plain("optimizer_offload_fraction", "optimizer_offload_fraction", "number", 1.0, 1.0),
    Plain("expert_model_parallel_size", "ep", "integer", 1, 1, experts=True),
    Plain("expert_tensor_parallel_size", "etp", "integer", None, 1, experts=True),
    Plain("moe_shared_expert_overlap", "moe_shared_expert_overlap", "flag", False, False, experts=True),
    Plain("moe_expert_capacity_factor", "moe_expert_capacity_factor", "number", None, None, experts=True),
    Plain("moe_pad_expert_input_to_capacity", "moe_pad_expert_input_to_capacity", "flag", False, False, experts=True),
    Plain("moe_grouped_gemm", "assume.moe_grouped_gemm", "flag", False, True, experts=True),
    Plain("moe_permute_fusion", "assume.moe_permute_fusion", "flag", False, False, experts=True),
)
_DTYPES = ("main_params_dtype", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
_SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_ATTENTION = {"flash": "flash", "flash_2": "flash", "flash_3": "flash", "flash_4": "flash", "fused": "flash", "auto": "flash"}
_BALANCED = {"aux_loss": "aux_loss", "seq_aux_loss": "seq_aux_loss", "global_aux_loss": "global_aux_loss", "none": "none", "sinkhorn": "none"}


def of_megatron(r: Reading, world: int | None) -> None:
    """Read every argument of Megatron-SWIFT that changes a step. world: ranks, where the environment says. InputError for a value that
    cannot be."""
    for plain in PLAIN:
        if not plain.experts or r.experts:
            _plain(r, plain)
        elif r.keys.has(plain.key):
            r.keys.note(plain.key, "no_cost_effect", why=_EXPERTS)
    if r.experts and "etp" not in r.strategy and r.strategy.get("tp", 1) > 1:
        r.strategy["etp"] = r.strategy["tp"]
        r.keys.note("expert_tensor_parallel_size", "derived", "etp", "tp, Megatron-Core's default")
    rows(r)
    _recomputation(r)
    _pipeline(r)
    _sharding(r)
    _optimizer(r)
    _kernels(r)
    _router(r)
    _prediction(r)
    if r.keys.has("sequence_parallel_size"):
        r.keys.note("sequence_parallel_size", "no_cost_effect", why="context_parallel_size decides under Megatron")
    context = r.keys.text("cp_comm_type", to="cp_comm_type")
    if context is not None and r.strategy.get("cp", 1) > 1:
        r.put("cp_comm_type", "cp_comm_type", r.keys.choice("cp_comm_type", {k: k for k in ("p2p", "all_gather", "a2a", "a2a+p2p")}), True)
    _ranks(r, world)
    if r.version == "seed":
        r.assumptions["te_dummy_wgrad"] = "false"
        if r.experts:
            r.assumptions["moe_probabilities"] = "combine"


def _plain(r: Reading, plain: Plain) -> None:
    value = getattr(r.keys, plain.read)(plain.key, to=plain.to)
    given = value is not None
    seed = 1 if plain.to == "etp" and r.whole_experts else plain.seed
    r.put(plain.key, plain.to, value if given else r.default(seed, plain.head), given)


def _recomputation(r: Reading) -> None:
    keys = r.keys
    given = keys.has("recompute_granularity")
    granularity = keys.choice("recompute_granularity", {"selective": "selective", "full": "full", "none": "none"}, "selective", to="recompute")
    r.put("recompute_granularity", "recompute", granularity, given)
    method = keys.choice("recompute_method", {"uniform": "uniform", "block": "block"})
    layers = keys.integer("recompute_num_layers")
    modules = keys.texts("recompute_modules")
    whole = keys.flag("moe_layer_recompute")
    if granularity == "full":
        r.put("recompute_method", "recompute_method", method, method is not None)
        r.put("recompute_num_layers", "recompute_num_layers", layers, layers is not None)
    for key, value in (("recompute_method", method), ("recompute_num_layers", layers)):
        if value is not None and granularity != "full":
            keys.note(key, "no_cost_effect", why="read under full recomputation only")
    if granularity == "selective" and (modules is not None or whole):
        every = [*(modules if modules is not None else ["core_attn"]), *(["moe"] if whole else [])]
        r.strategy["recompute_modules"] = list(dict.fromkeys(every))
        for key in (key for key, value in (("recompute_modules", modules), ("moe_layer_recompute", whole)) if value):
            keys.note(key, to="recompute_modules")
    elif granularity != "selective":
        for key in (key for key, value in (("recompute_modules", modules), ("moe_layer_recompute", whole)) if value is not None):
            keys.note(key, "no_cost_effect", why="read under selective recomputation only")


def _pipeline(r: Reading) -> None:
    keys = r.keys
    chunks = keys.integer("virtual_pipeline_model_parallel_size", to="vpp", least=1)
    layout = keys.text("pipeline_model_parallel_layout", to="pipeline_model_parallel_layout")
    if layout is not None:
        from symsim.pipeline.layout import pipeline_layout

        stages, pp = len(pipeline_layout(layout)), r.strategy.get("pp", 1)
        if stages % pp:
            raise keys.wrong("pipeline_model_parallel_layout", f"so many stages, of which it has {stages}, as pp={pp} divides")
        r.strategy["pipeline_model_parallel_layout"] = layout
        if chunks is not None:
            keys.note("virtual_pipeline_model_parallel_size", "no_cost_effect", why="pipeline_model_parallel_layout decides")
        chunks = stages // pp
    if chunks is not None and chunks > 1:
        r.strategy["vpp"] = chunks
    apart = keys.flag("overlap_p2p_comm", to="overlap_p2p_comm")
    interleaved = chunks is not None and chunks > 1
    if interleaved and apart is not False and r.version == "head" or apart:
        r.put("overlap_p2p_comm", "overlap_p2p_comm", True, apart is not None)
    if keys.flag("batch_p2p_comm") is not None:
        keys.note(
            "batch_p2p_comm", "not_modelled", why="sends and receives issued together or one by one: what of them hides, a few per cent of a step"
        )


def _sharding(r: Reading) -> None:
    keys, default = r.keys, "data_parallel_sharding_strategy"
    distributed = keys.flag("use_distributed_optimizer", to="zero")
    fully = keys.flag("use_megatron_fsdp", to="zero")
    level = keys.choice(default, _SHARDED, to="zero")
    stage = 1 if distributed is None or distributed else 0
    if fully:
        stage = 3 if level is None else level
        keys.note("use_megatron_fsdp", "mapped", "zero")
    elif level is not None:
        keys.note(default, "no_cost_effect", why="read with use_megatron_fsdp only")
    r.put(default if fully and level is not None else "use_distributed_optimizer", "zero", stage, distributed is not None or bool(fully))


def _optimizer(r: Reading) -> None:
    keys = r.keys
    name = keys.choice("optimizer", {"adam": "adam", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}, "adam", to="optimizer")
    momentum = keys.number("sgd_momentum", 0.9)
    if name == "sgd":
        r.put("optimizer", "optimizer", "sgd_momentum" if momentum else "sgd", True)
    elif keys.has("sgd_momentum"):
        keys.note("sgd_momentum", "no_cost_effect", why="read with sgd only")
    if name == "muon":
        r.strategy.update(optimizer="sgd_momentum", zero=0)
        why = "one moment of every parameter, states on every replica; Newton-Schulz's products, below 1 % of a step, and Adam's vectors are missing"
        keys.note("optimizer", "not_modelled", "optimizer", why)
    kind = precision(r)
    aware = bool(r.strategy.get("use_precision_aware_optimizer"))
    types = {key: keys.choice(key, {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}) for key in _DTYPES}
    for key, value in types.items():
        if value is not None and aware:
            r.put(key, key, value, True)
        elif value is not None:
            keys.note(key, "no_cost_effect", why="read with use_precision_aware_optimizer only")
    summed = keys.flag("accumulate_allreduce_grads_in_fp32", to="grad_reduce_in_fp32")
    wide = kind == "bf16" and types["main_grads_dtype"] in (None, "fp32")
    if wide and summed is False:
        keys.note("accumulate_allreduce_grads_in_fp32", "no_cost_effect", why="bf16 with main gradients in fp32 sets it")
    r.put(
        "accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32", wide or bool(summed), bool(summed), "main gradients decide" if not wide else ""
    )


def _kernels(r: Reading) -> None:
    keys = r.keys
    fused = keys.flag("cross_entropy_loss_fusion", to="cross_entropy_fusion")
    kind = keys.choice("cross_entropy_fusion_impl", {"native": "native", "te": "te"})
    on = r.default(False, True) if fused is None else fused
    r.put("cross_entropy_loss_fusion", "cross_entropy_fusion", (kind or "native") if on else "unfused", fused is not None)
    if kind is not None:
        keys.note("cross_entropy_fusion_impl", *(("mapped", "cross_entropy_fusion") if on else ("no_cost_effect", "", "read with the fusion only")))
    _attention(r)
    _fusions(r)


def _attention(r: Reading) -> None:
    keys, why = r.keys, "the version of flash attention is a number of the system"
    backend = keys.choice("attention_backend", {**_ATTENTION, "unfused": "math", "local": "math"}, to="assume.attention_kernel")
    flash = keys.flag("use_flash_attn", to="assume.attention_kernel")
    if keys.has("attn_impl"):
        keys.note("attn_impl", "no_cost_effect", why="attention_backend decides under Megatron")
    if backend is not None:
        r.put("attention_backend", "assume.attention_kernel", backend, True, why if backend == "flash" else "scores of unfused attention are kept")
    if flash is not None:
        keys.note(
            "use_flash_attn",
            *(
                ("mapped", "assume.attention_kernel", why)
                if flash and backend in (None, "flash")
                else ("no_cost_effect", "", "the backend is chosen from what is installed, flash attention first")
            ),
        )


def _fusions(r: Reading) -> None:
    """Single fusions: the seed's version names them by what is switched off."""
    keys = r.keys
    rotary, no_rotary = keys.flag("apply_rope_fusion"), keys.flag("no_rope_fusion")
    key = "no_rope_fusion" if no_rotary is not None and rotary is None else "apply_rope_fusion"
    on = rotary if rotary is not None else not no_rotary if no_rotary is not None else r.default(True, False)
    r.put(key, "assume.apply_rope_fusion", on, rotary is not None or no_rotary is not None)
    for name, what in (
        ("bias_dropout_fusion", "a pass over the residual stream more, forward and backward; none without dropout and biases"),
        ("bias_swiglu_fusion", "a pass over the feed-forward's width more, forward and backward"),
        ("bias_activation_fusion", "a pass over the feed-forward's width more, forward and backward"),
        (
            "gradient_accumulation_fusion",
            "weight gradients in 16 bits, written, kept for a while and added to the accumulated ones in a pass of their own",
        ),
    ):
        for key, off in ((name, False), (f"no_{name}", True)):
            value = keys.flag(key)
            if value is None:
                continue
            if value is off:
                keys.note(key, "not_modelled", why=what)
            else:
                keys.note(key, "mapped", "fusion=te", "as symsim's kernels are")


def _router(r: Reading) -> None:
    keys = r.keys
    coefficients = keys.texts("moe_aux_loss_coeff")
    kinds = keys.texts("moe_router_load_balancing_type")
    dispatcher = keys.text("moe_token_dispatcher_type")
    width = keys.choice("moe_router_dtype", {"none": "compute", "fp32": "fp32", "fp64": "fp32"})
    deep = keys.flag("moe_enable_deepep")
    if not r.experts:
        given = ("moe_aux_loss_coeff", "moe_router_load_balancing_type", "moe_token_dispatcher_type", "moe_router_dtype", "moe_enable_deepep")
        for key in given:
            if keys.has(key):
                keys.note(key, "no_cost_effect", why=_EXPERTS)
        return
    r.put("moe_router_dtype", "moe_router_dtype", width or r.default("compute", "fp32"), width is not None)
    _balancing(r, coefficients, kinds)
    if dispatcher is not None:
        route = keys.choice(
            "moe_token_dispatcher_type", {"alltoall": "alltoall", "allgather": "allgather", "alltoall_seq": "alltoall", "flex": "alltoall"}
        )
        r.put("moe_token_dispatcher_type", "moe_token_dispatcher_type", route, True)
    if dispatcher == "flex" or deep:
        r.assumptions["moe_exchange"] = "once_per_node"
        why = "multiprocessors that the exchange takes from other kernels, and its own latency"
        keys.note("moe_enable_deepep" if deep else "moe_token_dispatcher_type", "not_modelled", "assume.moe_exchange=once_per_node", why)
    elif deep is not None:
        keys.note("moe_enable_deepep", "no_cost_effect", why="off at this value")


def _balancing(r: Reading, coefficients: list[str] | None, kinds: list[str] | None) -> None:
    """An auxiliary loss is there where its coefficient is not 0."""
    keys, key = r.keys, "moe_router_load_balancing_type"
    for name in kinds or ():
        if name not in _BALANCED:
            raise keys.wrong(key, f"one of {', '.join(_BALANCED)}")
    kind = _BALANCED[kinds[0]] if kinds else r.default("aux_loss", "aux_loss")
    if coefficients is not None:
        try:
            weighed = any(float(text) != 0 for text in coefficients)
        except ValueError:
            raise keys.wrong("moe_aux_loss_coeff", "a number") from None
        r.put("moe_aux_loss_coeff", "moe_router_load_balancing_type", kind if weighed else "none", True, "" if weighed else "its coefficient is 0")
    elif r.version == "seed":
        r.put(key, "moe_router_load_balancing_type", kind, kinds is not None, "" if kinds else "the seed's default, weighed as config.json says")
    if kinds is not None:
        lost = "sinkhorn" in kinds or len(kinds) > 1
        told = (
            "the first of them; others add a pass over the router's logits"
            if len(kinds) > 1
            else "sinkhorn's rounds over the router's logits are missing"
        )
        keys.note(key, "not_modelled" if lost else "mapped", "moe_router_load_balancing_type", told if lost else "with moe_aux_loss_coeff above 0")


def _prediction(r: Reading) -> None:
    """Multi-token prediction is trained where its depth is given."""
    keys = r.keys
    depth = keys.integer("mtp_num_layers", to="mtp_num_layers")
    shared = keys.flag("mtp_shared_weights", to="model's mtp_use_repeated_layer")
    if depth is not None:
        r.strategy["mtp_num_layers"] = depth
    elif r.architecture is not None and r.architecture.mtp_num_layers:
        r.strategy["mtp_num_layers"] = 0
        keys.note("mtp_num_layers", "derived", "mtp_num_layers", "ms-swift trains none unless asked to")
    if shared and r.architecture is not None:
        r.architecture = r.architecture.model_copy(update={"mtp_use_repeated_layer": True})


def _ranks(r: Reading, world: int | None) -> None:
    """dp of what tensor, context and pipeline parallelism leave of the ranks."""
    dp = data_parallel(r.strategy, world)
    if dp is None:
        degrees = "*".join(f"{name}={r.strategy.get(name, 1)}" for name in ("tp", "cp", "pp"))
        raise InputError(f"NPROC_PER_NODE * NNODES = {world} ranks are no multiple of {degrees}")
    r.strategy["dp"] = dp
    if world is None:
        r.keys.rows["NPROC_PER_NODE"] = Entry(
            "NPROC_PER_NODE", "(default)", "derived", "dp", "the fewest replicas that hold the model; --var NPROC_PER_NODE=8 says how many ranks run"
        )
