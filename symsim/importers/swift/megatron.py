"""Megatron-SWIFT's arguments as those of Megatron-LM, whose reader then says what they are to a step.

ms-swift hands its arguments on to Megatron-LM by their own names, with defaults of its own (54e9c5050 swift/megatron/argument/megatron_args.py,
3602360a5 swift/megatron/arguments/megatron_args.py); what follows here is what those defaults and a few other names come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from symsim.errors import InputError
from symsim.importers.assumed import deterministic
from symsim.importers.keys import Entry, Fate, Given, Keys
from symsim.importers.megatron.strategy import read_strategy
from symsim.importers.rules import data_parallel
from symsim.importers.swift.reading import Reading, own, precision, rows
from symsim.inputs.strategy import Strategy

# arguments that Megatron-LM's reader takes as they are
SAME = frozenset(
    """micro_batch_size global_batch_size tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size sequence_parallel
    expert_model_parallel_size expert_tensor_parallel_size decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split pipeline_model_parallel_layout cp_comm_type tp_comm_overlap
    batch_p2p_comm overlap_grad_reduce overlap_param_gather overlap_param_gather_with_optimizer_step use_distributed_optimizer use_megatron_fsdp
    data_parallel_sharding_strategy clip_grad
    optimizer muon_tp_mode muon_num_ns_steps muon_fp32_matmul_prec muon_scalar_optimizer sgd_momentum
    use_precision_aware_optimizer main_params_dtype main_grads_dtype exp_avg_dtype exp_avg_sq_dtype optimizer_cpu_offload
    optimizer_offload_fraction recompute_granularity recompute_method recompute_num_layers recompute_modules moe_layer_recompute
    cross_entropy_loss_fusion cross_entropy_fusion_impl attention_backend use_flash_attn transformer_impl no_rope_fusion fp8_format fp8_recipe
    fp8_param_gather fp4_format fp4_param_gather log_params_norm moe_token_dispatcher_type
    moe_flex_dispatcher_backend moe_enable_deepep moe_expert_capacity_factor moe_pad_expert_input_to_capacity moe_router_dtype
    moe_router_load_balancing_type moe_aux_loss_coeff moe_z_loss_coeff dsa_indexer_loss_coeff dsa_indexer_use_sparse_loss
    moe_permute_fusion moe_grouped_gemm moe_shared_expert_overlap use_fused_mhc mhc_recompute_layer_num""".split()
)
RENAMED = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "microbatch_group_size_per_vp_stage": "microbatch_group_size_per_virtual_pipeline_stage",
}
OPPOSITE = {"muon_split_qkv": "muon_no_split_qkv", "apply_rope_fusion": "no_rope_fusion", "overlap_p2p_comm": "no_overlap_p2p_communication"}
# arguments that are left out where ms-swift says none
_NONE = {"recompute_granularity": "recompute", "moe_router_dtype": "moe_router_dtype"}
_LISTS = ("moe_aux_loss_coeff",)
# defaults by ms-swift's names, where Megatron-LM's are others
DEFAULTS: dict[str, dict[str, Any]] = {
    "seed": {
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "use_distributed_optimizer": True,
        "recompute_granularity": "selective",
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "aux_loss",
    },
    "head": {
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "use_distributed_optimizer": True,
        "recompute_granularity": "selective",
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_dtype": "fp32",
        "moe_grouped_gemm": True,
        "cross_entropy_loss_fusion": True,
        "apply_rope_fusion": False,
        "expert_tensor_parallel_size": 1,
    },
}
_OF_EXPERTS = ("moe_", "expert_")
_WRITTEN = ("micro_batch_size", "global_batch_size", "dp", "etp")


def of_megatron(r: Reading, world: int | None) -> None:
    """Read every argument of Megatron-SWIFT that changes a step. world: ranks, where the environment says. InputError for a value that
    cannot be."""
    r.keys.known |= {*SAME, *RENAMED, *OPPOSITE}
    rows(r)
    kind = precision(r)
    filled = _defaults(r)
    given = {**filled, **dict(_handed_on(r)), **_gradients(r, kind)}
    keys = Keys(r.keys.what, given, {}, r.keys.lenient)
    read = read_strategy(keys, "arguments", r.architecture)
    _rows_back(r, keys, frozenset(filled), read.options, read.assumptions)
    r.strategy |= read.options
    r.assumptions |= read.assumptions
    _own_arguments(r)
    _variants(r)
    _together(r)
    _prediction(r)
    _ranks(r, world)
    if r.version == "seed":
        r.assumptions["te_dummy_wgrad"] = "false"
        if r.experts:
            r.assumptions["moe_probabilities"] = "combine"
    r.strategy = _ordered(r.strategy)


def _defaults(r: Reading) -> dict[str, Given]:
    """Defaults of the version for arguments that are not given, under Megatron-LM's names."""
    found = dict(DEFAULTS[r.version])
    if r.whole_experts:
        found["expert_tensor_parallel_size"] = 1
    if r.version == "seed" and r.experts:
        # config.json's router_aux_loss_coef, which a model of symsim does not have
        found["moe_aux_loss_coeff"] = ["0.001"]
    if r.version == "head":
        found["variable_seq_lengths"] = True  # megatron/model/gpt/model.py, whatever the arguments
    return {
        argument: Given(value, f"ms-swift ({r.version})")
        for key, value in found.items()
        for argument, value in (_named(key, value),)
        if not any(r.keys.has(name) for name in _names_of(argument)) and (r.experts or not key.startswith(_OF_EXPERTS))
    }


def _named(key: str, value: Any) -> tuple[str, Any]:
    """Megatron-LM's argument for one of ms-swift's, and its value."""
    if key in OPPOSITE:
        return OPPOSITE[key], not value
    return RENAMED.get(key, key), value


def _names_of(argument: str) -> Iterator[str]:
    """What ms-swift calls an argument of Megatron-LM, in any version."""
    yield argument
    yield from (key for names in (RENAMED, OPPOSITE) for key, name in names.items() if name == argument)


def _handed_on(r: Reading) -> Iterator[tuple[str, Given]]:
    """The arguments given, as Megatron-LM has them."""
    keys = r.keys
    for key, given in keys.given.items():
        if key not in SAME and key not in RENAMED and key not in OPPOSITE and key not in r.passed:
            continue
        value = given.value
        if key in _NONE and value == "none":
            keys.note(key, to=_NONE[key])
        elif key in OPPOSITE:
            flag = keys.flag(key)
            if flag is not None:
                yield OPPOSITE[key], Given(not flag, given.where)
        elif key == "attention_backend" and value in ("flash_2", "flash_3", "flash_4"):
            yield key, Given("flash", given.where)
        elif key in _LISTS and isinstance(value, (int, float)):
            yield key, Given([str(value)], given.where)
        elif value is not None or key in r.passed:
            yield RENAMED.get(key, key), given


def _gradients(r: Reading, kind: str) -> dict[str, Given]:
    """The type of products and that of gradients, which bf16 with main gradients in fp32 sets."""
    keys, key = r.keys, "accumulate_allreduce_grads_in_fp32"
    told = keys.flag(key, to="grad_reduce_in_fp32")
    wide = kind == "bf16" and (not keys.has("main_grads_dtype") or keys.given["main_grads_dtype"].value == "fp32")
    if wide and told is not None:
        keys.note(key, "mapped" if told else "no_cost_effect", "grad_reduce_in_fp32" if told else "", "bf16 with main gradients in fp32 sets it")
    where = keys.given[key].where if told is not None else "ms-swift"
    return {kind: Given(True, where), key: Given(wide or bool(told), where)}


def _rows_back(r: Reading, keys: Keys, filled: frozenset[str], options: dict[str, Any], assumptions: dict[str, str]) -> None:
    """The rows of Megatron-LM's reader under the names that were given; those of defaults where symsim's own are others."""
    for argument, row in keys.rows.items():
        given = next((name for name in _names_of(argument) if name in r.keys.given), None)
        if argument in ("bf16", "fp16") or (argument == "accumulate_allreduce_grads_in_fp32" and given is not None):
            continue
        if given is not None:
            said = row.why.removeprefix("the opposite").lstrip("; ") if given in OPPOSITE or given == "no_rope_fusion" else row.why
            r.keys.note(given, row.fate, row.to, said)
        elif _other(row.to, options, assumptions):
            name = next(iter(name for name in _names_of(argument) if name in DEFAULTS[r.version]), argument)
            fate: Fate = "not_modelled" if row.fate == "not_modelled" else "derived"
            r.keys.note(name, fate, row.to, f"default of ms-swift ({r.version})" if argument in filled else row.why)


def _other(to: str, options: dict[str, Any], assumptions: dict[str, str]) -> bool:
    """Whether what a row names is not symsim's own default."""
    for name in to.split(", "):
        plain = name.removeprefix("assume.")
        value = (assumptions if plain != name else options).get(plain)
        if value is not None and (plain in assumptions or plain in Strategy.model_fields) and value != own(name):
            return True
    return False


def _own_arguments(r: Reading) -> None:
    """Arguments that ms-swift does not hand on, or that Megatron-LM's reader refuses."""
    keys = r.keys
    deterministic(keys, r.assumptions, "deterministic_mode", "full_determinism")
    for key in ("sequence_parallel_size", "attn_impl"):
        if keys.has(key):
            decides = "context_parallel_size" if key == "sequence_parallel_size" else "attention_backend"
            keys.note(key, "no_cost_effect", why=f"{decides} decides under Megatron")
    for name in ("bias_dropout_fusion", "bias_swiglu_fusion", "bias_activation_fusion", "gradient_accumulation_fusion"):
        option = name.replace("swiglu", "activation")
        for key, off in ((name, False), (f"no_{name}", True)):
            value = keys.flag(key, to=option, why="the opposite" if off else "")
            if value is off:
                r.strategy[option] = False


_FUSED_INDEX = "the attention of an indexer and its loss in kernels of their own, as they are timed here"


def _together(r: Reading) -> None:
    """What chunks of a pipeline do at once has no effect where a rank has one."""
    chunks = r.strategy.get("vpp", 1) > 1
    for key, option in (("align_grad_reduce", "overlap_grad_reduce"), ("align_param_gather", "overlap_param_gather")):
        if r.keys.has(key) and not (chunks and r.strategy.get(option)):
            r.keys.note(key, "no_cost_effect", why=f"read where a rank has several chunks, with {option}")


def _variants(r: Reading) -> None:
    """How rows are parted, and arguments of layers that few models have."""
    keys, model = r.keys, r.architecture
    if keys.choice("cp_partition_mode", {"zigzag": False, "contiguous": True}, False, to="cp_partition_mode"):
        r.strategy["cp_partition_mode"] = "contiguous"
    index = model is not None and model.attention.dsa_indexer_topk is not None
    linear = model is not None and any(model.layer_kinds[kind].mixer == "linear_attention" for kind in model.kind_names())
    narrow = r.strategy.get("fp8", "none") != "none" or r.strategy.get("fp4", "none") != "none"
    said: tuple[tuple[str, bool, Fate, str, str], ...] = (
        ("apply_dsa_kernel_fusion", index, "no_cost_effect", _FUSED_INDEX, "the model has no indexer"),
        ("csa_dense_mode", False, "no_cost_effect", "", "of compressed sparse attention, which the model does not have"),
        ("linear_decoupled_in_proj", linear and narrow, "not_modelled", _APART, "read by linear attention under FP8 only"),
    )
    for key, has, fate, why, without in said:
        if keys.has(key):
            known = keys.flag(key)
            keys.note(key, fate if has and known else "no_cost_effect", why=why if has and known else "off at this value" if not known else without)


_APART = "two numbers a head of linear attention's first product are multiplied in 16 bits by a product of their own, below 1 % of a layer's FLOPs"


def _prediction(r: Reading) -> None:
    """Multi-token prediction is trained where its depth is given."""
    keys = r.keys
    depth = keys.integer("mtp_num_layers", to="mtp_num_layers")
    shared = keys.flag("mtp_shared_weights", to="model's mtp_use_repeated_layer")
    if keys.flag("mtp_decoder_input_detach", False, to="model's mtp_detaches_embedding") and depth and r.architecture is not None:
        r.architecture = r.architecture.model_copy(update={"mtp_detaches_embedding": True})
    if depth is not None:
        r.strategy["mtp_num_layers"] = depth
    elif r.architecture is not None and r.architecture.mtp_num_layers:
        r.strategy["mtp_num_layers"] = 0
        keys.note("mtp_num_layers", "derived", "mtp_num_layers", "ms-swift trains none unless asked to")
    if shared and r.architecture is not None:
        r.architecture = r.architecture.model_copy(update={"mtp_use_repeated_layer": True})


def _ranks(r: Reading, world: int | None) -> None:
    """dp of what tensor, context and pipeline parallelism leave of the ranks; etp where the experts have one."""
    if r.experts and "etp" not in r.strategy and r.strategy.get("tp", 1) > 1:
        r.strategy["etp"] = r.strategy["tp"]
        r.keys.note("expert_tensor_parallel_size", "derived", "etp", "tp, Megatron-Core's default")
    dp = data_parallel(r.strategy, world)
    if dp is None:
        degrees = "*".join(f"{name}={r.strategy.get(name, 1)}" for name in ("tp", "cp", "pp"))
        raise InputError(f"NPROC_PER_NODE * NNODES = {world} ranks are no multiple of {degrees}")
    r.strategy["dp"] = dp
    if world is None:
        said = "the fewest replicas that hold the model; --var NPROC_PER_NODE=8 says how many ranks run"
        r.keys.rows["NPROC_PER_NODE"] = Entry("NPROC_PER_NODE", "(default)", "derived", "dp", said)


def _ordered(strategy: dict[str, Any]) -> dict[str, Any]:
    """The options in the order of the strategy's own fields, without those that are symsim's defaults."""
    kept = {name: value for name, value in strategy.items() if name in _WRITTEN or (tuple(value) if isinstance(value, list) else value) != own(name)}
    return {name: kept[name] for name in Strategy.model_fields if name in kept}
