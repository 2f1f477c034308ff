"""The strategy and the assumptions that Megatron-LM's arguments give, with its defaults where they are not symsim's."""

from __future__ import annotations

from symsim.errors import InputError, cut
from symsim.importers.assumed import deterministic
from symsim.importers.documents import balanced
from symsim.importers.keys import Keys, natural
from symsim.importers.megatron import zero_bubble
from symsim.importers.megatron.dispatcher import KEYS as DISPATCHER
from symsim.importers.megatron.dispatcher import dispatcher
from symsim.importers.megatron.fusions import fusions
from symsim.importers.megatron.graphs import graphs
from symsim.importers.megatron.hybrid import stages as hybrid_stages
from symsim.importers.megatron.overlap import boundary_tensors, tensor_parallel_messages, timers
from symsim.importers.megatron.precision import precision, weights
from symsim.importers.megatron.settings import Settings
from symsim.importers.megatron.source import Dialect
from symsim.importers.megatron.streams import streams
from symsim.importers.megatron.update import kept_parameters, optimizer
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import RECOMPUTE_MODULES
from symsim.pipeline.layout import pipeline_layout
from symsim.pipeline.stages import stages

_SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_AUX = {"aux_loss": "aux_loss", "seq_aux_loss": "seq_aux_loss", "global_aux_loss": "global_aux_loss", "none": "none", "sinkhorn": "none"}
_UNCOUNTED = {"quantile_balancing": "none"}
_PLAIN = {
    "hierarchical_context_parallel_sizes": "a list of degrees",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "pipeline_model_parallel_size": "pp",
    "microbatch_group_size_per_virtual_pipeline_stage": "microbatch_group_size_per_vp_stage",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "num_distributed_optimizer_instances": "num_distributed_optimizer_instances",
}
_OF_EXPERTS = """
    moe_router_force_load_balancing moe_expert_capacity_factor moe_pad_expert_input_to_capacity moe_router_dtype moe_router_load_balancing_type
    moe_aux_loss_coeff moe_z_loss_coeff moe_permute_fusion moe_grouped_gemm use_transformer_engine_op_fuser
    moe_shared_expert_overlap moe_router_padding_for_quantization moe_router_padding_for_fp8
    """.split()
_PADDED = _OF_EXPERTS[-2:]
_SWITCHES = {
    "sequence_parallel": "sp",
    "account_for_embedding_in_pipeline_split": "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split": "account_for_loss_in_pipeline_split",
    "tp_comm_overlap": "tp_comm_overlap",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
    "overlap_param_gather_with_optimizer_step": "overlap_param_gather_with_optimizer_step",
    "moe_shared_expert_overlap": "moe_shared_expert_overlap",
    "use_transformer_engine_op_fuser": "use_transformer_engine_op_fuser",
    "overlap_moe_expert_parallel_comm": "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute": "delay_wgrad_compute",
    "overlap_dispatch_backward_with_experts_wgrad": "overlap_dispatch_backward_with_experts_wgrad",
    "ep_overlap_early_attn_memory_release": "ep_overlap_early_attn_memory_release",
    "ddp_pad_buckets_for_high_nccl_busbw": "pad_buckets_for_high_nccl_busbw",
    "fp32_residual_connection": "fp32_residual_connection",
    "distribute_saved_activations": "distribute_saved_activations",
    "activation_func_fp8_input_store": "activation_func_fp8_input_store",
    "moe_pad_expert_input_to_capacity": "moe_pad_expert_input_to_capacity",
    "use_precision_aware_optimizer": "use_precision_aware_optimizer",
    "optimizer_cpu_offload": "optimizer_cpu_offload",
    "log_num_zeros_in_grad": "log_num_zeros_in_grad",
    "log_params_norm": "log_params_norm",
}


def read_strategy(keys: Keys, dialect: Dialect, architecture: Architecture | None) -> Settings:
    """The options and assumptions of the arguments; InputError for a value that cannot be."""
    read = Settings(keys, dialect, architecture)
    keys.known.add("torch_fsdp2_no_reshard_after_forward")
    _mesh(read)
    tensor_parallel_messages(read)
    _pipeline(read)
    boundary_tensors(read)
    timers(read)
    _batch(read)
    _data_parallel(read)
    precision(read)
    optimizer(read)
    weights(read)
    kept_parameters(read)
    _recompute(read)
    streams(read)
    _partial(read)
    _offload(read)
    _kernels(read)
    if read.mixture or architecture is None:
        _experts(read)
    _indexer(read)
    graphs(read)
    for key in (*_OF_EXPERTS, *DISPATCHER):
        if keys.has(key) and not read.mixture and architecture is not None:
            keys.note(key, "no_cost_effect", why="the model has no experts")
            read.options.pop(key, None)
    return read


def _mesh(read: Settings) -> None:
    keys = read.keys
    read.options["tp"] = keys.integer("tensor_model_parallel_size", 1, to="tp", least=1)
    for argument, option in _PLAIN.items():
        if argument == "hierarchical_context_parallel_sizes":
            sizes = _listed(keys, argument, argument)
            degrees = [natural(size) or 0 for size in sizes or ()]
            if not all(0 < degree < 10**9 for degree in degrees):
                raise keys.wrong(argument, "degrees whose product is context_parallel_size, such as 2 4")
            if sizes is not None:
                read.options[argument] = degrees
        elif keys.has(argument):
            read.options[option] = keys.integer(argument, to=option, least=1)
    for argument, option in _SWITCHES.items():
        if keys.flag(argument, False, to=option):
            read.options[option] = True
    kinds = _listed(keys, "cp_comm_type", "cp_comm_type")
    if kinds:
        if any(kind not in ("p2p", "all_gather", "allgather", "a2a", "a2a+p2p") for kind in kinds):
            raise keys.wrong("cp_comm_type", "one of p2p, all_gather, a2a, a2a+p2p")
        if len(set(kinds)) > 1:
            keys.refuse("cp_comm_type", "one way for all layers is modelled; give the one that most layers have")
        if read.options.get("cp", 1) > 1:
            read.options["cp_comm_type"] = kinds[0].replace("allgather", "all_gather")
        else:
            keys.note("cp_comm_type", "no_cost_effect", why="there is no context parallelism")
    if keys.flag("use_tp_pp_dp_mapping", False, to="rank_order"):
        read.options["rank_order"] = "tp-cp-ep-pp-dp"
    order = keys.text("order", None, to="rank_order")
    if order is not None:
        read.options["rank_order"] = order
    if "etp" not in read.options and read.mixture and read.options["tp"] > 1:
        keys.note("expert_tensor_parallel_size", "derived", "etp", f"{read.options['tp']}: tensor_model_parallel_size")


def _listed(keys: Keys, key: str, to: str) -> list[str] | None:
    """The values of an argument that takes several: a list, one value, or text such as `[a b]` and `a,b`."""
    if not keys.has(key):
        return None
    value = keys.given[key].value
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, (dict, list)) for part in parts):
        raise keys.wrong(key, "a list of names")
    keys.note(key, to=to)
    return [word for part in parts for word in str(part).strip().strip("[]()").replace(",", " ").split()]


def _pipeline(read: Settings) -> None:
    keys, options = read.keys, read.options
    pp = options.get("pp", 1)
    layout = keys.text("pipeline_model_parallel_layout", None, to="pipeline_model_parallel_layout")
    if keys.has("pipeline_model_parallel_layout") and isinstance(keys.given["pipeline_model_parallel_layout"].value, list):
        raise keys.wrong("pipeline_model_parallel_layout", "text such as Et*3|(tt|)*29,m|L")
    layout = layout or hybrid_stages(keys)
    virtual = keys.integer("num_virtual_stages_per_pipeline_rank", None, to="vpp", least=1)
    each = keys.integer("num_layers_per_virtual_pipeline_stage", None, to="vpp", least=1)
    if layout is not None:
        options["pipeline_model_parallel_layout"] = layout
        stages = len(pipeline_layout(layout))
        if virtual is None and stages % pp == 0 and stages > pp:
            virtual = stages // pp
            named = "pipeline_model_parallel_layout"
            keys.note(named, "mapped" if keys.has(named) else "derived", named, f"{stages} parts on {pp} stages: vpp={virtual}")
    elif each is not None and virtual is None:
        if read.architecture is None:
            raise keys.wrong("num_layers_per_virtual_pipeline_stage", "given with the model, whose layers it divides")
        extra = sum(options.get(f"account_for_{end}_in_pipeline_split", False) for end in ("embedding", "loss"))
        layers = zero_bubble.padded_layers(read, read.architecture.num_layers) + extra
        if layers % (pp * each):
            raise keys.wrong("num_layers_per_virtual_pipeline_stage", f"a divisor of the {layers} layers over {pp} stages")
        virtual = layers // (pp * each)
        keys.note("num_layers_per_virtual_pipeline_stage", to="vpp", why=f"{layers} layers / {pp} stages / {each} = {virtual}")
    if virtual is not None and virtual > 1:
        options["vpp"] = virtual
    off = keys.flag("no_overlap_p2p_communication", None, to="overlap_p2p_comm", why="the opposite")
    if options.get("vpp", 1) > 1:
        if off is False:
            options["overlap_p2p_comm"] = True
        elif off is None and read.dialect != "fields":
            read.derived("no_overlap_p2p_communication", "overlap_p2p_comm", True, "true: on by default in the interleaved schedule")
    elif off is False:
        keys.note("no_overlap_p2p_communication", "no_cost_effect", "overlap_p2p_comm", "read by the interleaved schedule only")
    if keys.flag("use_dualpipev", False, to="schedule, vpp", why="FlagScale's: two chunks a rank in the shape of a V") and pp > 1:
        options |= {"schedule": "dualpipev", "vpp": 2}
    zero_bubble.schedule(read)
    if layout is None:
        zero_bubble.padded_layout(read)
    freed = keys.flag("deallocate_pipeline_outputs", None, to="deallocate_pipeline_outputs")
    if freed is not None or read.dialect == "fields":
        options["deallocate_pipeline_outputs"] = bool(freed)
        if freed is None:
            keys.note("deallocate_pipeline_outputs", "derived", "deallocate_pipeline_outputs", "false, the field's default")
    if pp == 1:
        options.pop("deallocate_pipeline_outputs", None)


def _batch(read: Settings) -> None:
    keys, options = read.keys, read.options
    length, own = (keys.integer(key, None, to="seq_length", least=1) for key in ("seq_length", "encoder_seq_length"))
    if length and own:
        keys.note("encoder_seq_length", "no_cost_effect", why="rows of the data are as long as they say")
    length = length or own
    if length is not None:
        options["seq_length"] = length
    if "micro_batch_size" not in options and read.dialect == "arguments" and "global_batch_size" in options:
        raise InputError(f"{keys.place('global_batch_size')}: global_batch_size is given, and micro_batch_size is not")


def _data_parallel(read: Settings) -> None:
    keys, options = read.keys, read.options
    sharded = keys.flag("use_distributed_optimizer", None, to="zero", why="1")
    sharding = keys.choice("data_parallel_sharding_strategy", _SHARDING, None, to="zero")
    torchs = keys.flag("use_torch_fsdp2", False, to="zero", why="3")
    whole = keys.flag("torch_fsdp2_no_reshard_after_forward", False, to="reshard_after_forward", why="false")
    if keys.has("torch_fsdp2_no_reshard_after_forward") and not torchs:
        keys.note("torch_fsdp2_no_reshard_after_forward", "no_cost_effect", why="read with use_torch_fsdp2 only")
    if keys.flag("use_megatron_fsdp", False, to="zero"):
        options["zero"] = 3 if sharding is None else sharding
        if sharding is None:
            keys.note("data_parallel_sharding_strategy", "derived", "zero", "3: optim_grads_params")
    elif torchs:
        options["zero"] = 3
        if options.get("pp", 1) > 1:
            # training/arguments.py validate_args
            keys.refuse("use_torch_fsdp2", f"Megatron-LM runs it without a pipeline; give pipeline_model_parallel_size 1, not {options['pp']}")
        if whole:
            options["reshard_after_forward"] = False
    else:
        if sharding is not None:
            keys.note("data_parallel_sharding_strategy", "no_cost_effect", why="read with use_megatron_fsdp only")
        if sharded is not None:
            options["zero"] = int(sharded)
        elif read.dialect == "arguments":
            read.derived("use_distributed_optimizer", "zero", 0, "0: optimizer states on every rank unless it is given")
        elif read.dialect == "recipe":
            read.derived("use_distributed_optimizer", "zero", 1, "1: recipes of Megatron-Bridge use it")
    outer = keys.choice("outer_dp_sharding_strategy", {"no_shard": "no_shard", "optim": "optim"}, "no_shard", to="outer_dp_sharding_strategy")
    if keys.flag("enable_full_sharding_in_hsdp", False, to="outer_dp_sharding_strategy", why="optim"):
        outer = "optim"
    if outer == "optim":
        if options.get("zero") == 3 and options.get("num_distributed_optimizer_instances", 1) > 1:
            options["outer_dp_sharding_strategy"] = "optim"
        else:
            for key in ("outer_dp_sharding_strategy", "enable_full_sharding_in_hsdp"):
                if keys.has(key):
                    keys.note(key, "no_cost_effect", why="read with several instances of FSDP")
    if options.get("zero") == 0:
        options.pop("num_distributed_optimizer_instances", None)
    size = keys.integer("ddp_bucket_size", None, to="ddp_bucket_size", least=1)
    if size is not None and options.get("overlap_grad_reduce"):
        options["ddp_bucket_size"] = size
    elif size is not None:
        keys.note("ddp_bucket_size", "no_cost_effect", why="one bucket without overlap_grad_reduce")


def _recompute(read: Settings) -> None:
    keys, options = read.keys, read.options
    granularity = keys.choice("recompute_granularity", {"full": "full", "selective": "selective"}, None, to="recompute")
    numbers = _listed(keys, _BY_NUMBER, "recompute_layers_per_stage")
    if numbers is not None and granularity == "full" and read.architecture is not None:
        options |= {"recompute": "full", "recompute_layers_per_stage": _numbered(read, numbers)}
        return
    if keys.flag("recompute_activations", False, to="recompute", why="selective"):
        granularity = "selective"
    method = keys.choice("recompute_method", {"uniform": "uniform", "block": "block"}, None, to="recompute_method")
    count = keys.integer("recompute_num_layers", None, to="recompute_num_layers")
    if count == 0 and granularity == "full":
        granularity = None
        keys.note("recompute_granularity", "no_cost_effect", why="of no layer, as recompute_num_layers says")
    modules = _listed(keys, "recompute_modules", "recompute_modules")
    if keys.flag("moe_layer_recompute", False, to="recompute_modules", why="moe"):
        granularity = granularity or "selective"
        modules = [*(modules or ["core_attn"]), "moe"]
    if granularity is None:
        for key in ("recompute_method", "recompute_num_layers", "recompute_modules"):
            if keys.has(key):
                keys.note(key, "no_cost_effect", why="read with recompute_granularity only")
        options.pop("distribute_saved_activations", None)
        return
    options["recompute"] = granularity
    if granularity == "full":
        if method is not None:
            options["recompute_method"] = method
        if count is not None:
            options["recompute_num_layers"] = count
        if modules is not None and keys.has("recompute_modules"):
            keys.note("recompute_modules", "no_cost_effect", why="not read under full recomputation")
        return
    for key in ("recompute_method", "recompute_num_layers"):
        if keys.has(key):
            keys.note(key, "no_cost_effect", why="read under full recomputation only")
    if modules is not None:
        strange = [module for module in modules if module not in RECOMPUTE_MODULES]
        if strange:
            keys.refuse("recompute_modules", f"'{cut(strange[0])}' is none of its modules; give some of {', '.join(RECOMPUTE_MODULES)}")
        options["recompute_modules"] = list(dict.fromkeys(module for module in modules if module not in strange)) or ["core_attn"]


_BY_NUMBER = "recompute_layer_ids"


def _numbered(read: Settings, numbers: list[str]) -> list[int]:
    """Layers of every stage that run again, which Primus names by their numbers in the whole model, depths of prediction behind them
    (Primus backends/megatron/patches, TransformerBlock._checkpointed_forward)."""
    architecture = read.architecture
    assert architecture is not None
    chosen = {place for number in numbers if (place := natural(number)) is not None}
    if None in map(natural, numbers) or max(chosen, default=0) >= architecture.num_layers + architecture.mtp_num_layers:
        raise read.keys.wrong(_BY_NUMBER, f"numbers of layers, from 0 to {architecture.num_layers - 1}")
    cut = {name: value for name, value in read.options.items() if name in _CUTS}
    parts = stages(architecture, load_strategy(cut), 0)
    counts = [sum(at in chosen for chunk in stage.chunks for at in range(chunk.first, chunk.last)) for stage in parts]
    why = f"{sum(counts)} of {architecture.num_layers} layers: {'+'.join(map(str, counts))} of the stages, taken for their first ones"
    read.keys.note(_BY_NUMBER, to="recompute_layers_per_stage", why=why)
    return counts


_CUTS = frozenset(
    """pp vpp pipeline_model_parallel_layout num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split""".split()
)


def _partial(read: Settings) -> None:
    """Micro-batches of a stage's window that keep what the others run again."""
    keys, name = read.keys, "num_microbatches_with_partial_activation_checkpoints"
    count = keys.integer(name, None, to=name)
    if count is None:
        return
    options = read.options
    if options.get("recompute") != "full":
        keys.note(name, "no_cost_effect" if "recompute" not in options else "not_modelled", why="counts micro-batches of full recomputation here")
    elif options.get("pp", 1) == 1:
        keys.note(name, "no_cost_effect", why="without a pipeline the schedule does not read it")
    else:
        options[name] = count


def _offload(read: Settings) -> None:
    keys = read.keys
    on = keys.flag("cpu_offloading", None, to="cpu_offloading_num_layers")
    kept = keys.flag("cpu_offloading_activations", True, to="cpu_offloading_num_layers")
    count = keys.integer("cpu_offloading_num_layers", 0, to="cpu_offloading_num_layers")
    if count and on is not False and kept:
        read.options["cpu_offloading_num_layers"] = count
    elif keys.has("cpu_offloading_num_layers"):
        keys.note("cpu_offloading_num_layers", "no_cost_effect", why="no activations wait on the host")
    if keys.has("cpu_offloading_activations") and not (count and on is not False):
        keys.note("cpu_offloading_activations", "no_cost_effect", why="read with cpu_offloading only")


def _kernels(read: Settings) -> None:
    keys, options = read.keys, read.options
    fused = keys.flag("cross_entropy_loss_fusion", False, to="cross_entropy_fusion")
    with_what = keys.choice("cross_entropy_fusion_impl", {"native": "native", "te": "te", "linear": "linear"}, None, to="cross_entropy_fusion")
    if fused:
        options["cross_entropy_fusion"] = with_what or "native"
    elif with_what is not None:
        keys.note("cross_entropy_fusion_impl", "no_cost_effect", why="read with cross_entropy_loss_fusion only")
    local = keys.choice("transformer_impl", {"local": True, "transformer_engine": False, "inference_optimized": False}, None)
    _attention_kernel(read, bool(local))
    deterministic(keys, read.assumptions, "deterministic_mode")
    balanced(keys, read.assumptions, "hybrid_context_parallel")
    if keys.integer("max_seqlen_per_dp_cp_rank", to="assume.row_balance", why="how many ranks share a sample") is not None:
        if "row_balance" not in read.assumptions:
            keys.note("max_seqlen_per_dp_cp_rank", "no_cost_effect", why="read with hybrid_context_parallel only")
    if keys.flag("ddp_average_in_collective", False):
        read.assumed("ddp_average_in_collective", "gradient_scaling", "collective", "the collective divides")
    if local:
        read.assumed("transformer_impl", "layernorm_linear_fusion", "separate", "separate: norms are modules of their own")
    else:
        said = "fused: TransformerEngine's LayerNormLinear"
        read.assumed("transformer_impl", "layernorm_linear_fusion", "fused", said, default=local is None)
    fusions(read)


def _attention_kernel(read: Settings, local: bool) -> None:
    """TransformerEngine's backends; of the local modules Megatron-Core has its own alone (core/models/backends.py), older ones flash too."""
    keys = read.keys
    backend = None
    if keys.has("attention_backend"):
        text = str(keys.given["attention_backend"].value).replace("AttnBackend.", "")
        if text not in ("flash", "fused", "unfused", "local", "auto"):
            raise keys.wrong("attention_backend", "one of flash, fused, unfused, local, auto")
        backend = text
    flash = keys.flag("use_flash_attn", None)
    if backend in ("unfused", "local"):
        read.assumed("attention_backend", "attention_kernel", "math", "math: scores are kept for backward")
    elif local and not flash:
        read.assumed("attention_backend", "attention_kernel", "math", "math: the local modules keep scores for backward", default=backend is None)
    elif backend is not None:
        keys.note("attention_backend", to="assume.attention_kernel", why="flash: a fused kernel that keeps no scores")
    if flash and backend not in ("unfused", "local"):
        keys.note("use_flash_attn", to="assume.attention_kernel", why="flash")
    elif flash is not None:
        keys.note("use_flash_attn", "no_cost_effect", why="attention_backend decides")


def _experts(read: Settings) -> None:
    keys, options = read.keys, read.options
    dispatcher(read)
    factor = keys.number("moe_expert_capacity_factor", None, to="moe_expert_capacity_factor")
    if factor is not None and factor > 0:
        options["moe_expert_capacity_factor"] = factor
    if options.get("moe_pad_expert_input_to_capacity") and "moe_expert_capacity_factor" not in options:
        options.pop("moe_pad_expert_input_to_capacity")
        keys.note("moe_pad_expert_input_to_capacity", "no_cost_effect", why="read with moe_expert_capacity_factor only")
    wide = keys.choice("moe_router_dtype", {"fp32": True, "fp64": True}, False, to="moe_router_dtype")
    if wide:
        options["moe_router_dtype"] = "fp32"
    if any([keys.flag(name, False, to=_PADDED[0]) for name in _PADDED]):
        options[_PADDED[0]] = True
    _auxiliary(read)
    if keys.flag("moe_router_force_load_balancing", False):
        read.assumed("moe_router_force_load_balancing", "expert_load", "random", "random: logits are drawn")
    permute = keys.flag("moe_permute_fusion", False)
    if permute:
        read.assumed("moe_permute_fusion", "moe_permute_fusion", "true", "true")
    elif keys.has("moe_permute_fusion"):
        keys.note("moe_permute_fusion", to="assume.moe_permute_fusion", why="false")
    grouped = keys.flag("moe_grouped_gemm", None)
    if not grouped and read.mixture:
        read.assumed("moe_grouped_gemm", "moe_grouped_gemm", "false", "false: the experts of a rank run one after the other", default=grouped is None)
    elif grouped is not None:
        keys.note("moe_grouped_gemm", to="assume.moe_grouped_gemm", why="true")


def _indexer(read: Settings) -> None:
    """The loss that an indexer is trained by: over all keys, unless it is asked for over the chosen ones."""
    keys, own = read.keys, "dsa_indexer_loss"
    sparse = keys.flag("dsa_indexer_use_sparse_loss", False, to=own)
    if not keys.number("dsa_indexer_loss_coeff", 0, to=own):
        return
    if read.architecture is not None and read.architecture.attention.dsa_indexer_topk is None:
        keys.note("dsa_indexer_loss_coeff", "no_cost_effect", why="the model has no indexer")
    elif read.options.get("cp", 1) > 1 and read.options.get("cp_comm_type") != "all_gather":
        why = "over cp Megatron-LM runs this attention with cp_comm_type=allgather alone: the indexer is taken as not trained"
        keys.note("dsa_indexer_loss_coeff", "not_modelled", why=why)
    else:
        read.options[own] = "sparse" if sparse else "dense"


def _auxiliary(read: Settings) -> None:
    keys = read.keys
    if keys.number("moe_z_loss_coeff", 0, to="moe_z_loss"):
        if read.mixture:
            read.options["moe_z_loss"] = True
        else:
            keys.note("moe_z_loss_coeff", "no_cost_effect", why="the model has no experts")
    kinds = _listed(keys, "moe_router_load_balancing_type", "moe_router_load_balancing_type") or ["aux_loss"]
    rates = _listed(keys, "moe_aux_loss_coeff", "moe_router_load_balancing_type") or ["0"]
    for kind in kinds:
        if kind not in _AUX and kind not in _UNCOUNTED:
            raise keys.wrong("moe_router_load_balancing_type", f"one of {', '.join((*_AUX, *_UNCOUNTED))}")
    try:
        on = [float(rate) != 0 for rate in rates]
    except ValueError:
        raise keys.wrong("moe_aux_loss_coeff", "a number") from None
    active = [_AUX.get(kind, "none") for at, kind in enumerate(kinds) if on[min(at, len(on) - 1)]]
    counted = [kind for kind in active if kind != "none"]
    if counted:
        read.options["moe_router_load_balancing_type"] = counted[0]
    elif keys.has("moe_router_load_balancing_type"):
        why = "no auxiliary loss is counted" if active else "moe_aux_loss_coeff is 0"
        keys.note("moe_router_load_balancing_type", "no_cost_effect", "moe_router_load_balancing_type", why)
    if len(counted) > 1:
        keys.note(
            "moe_router_load_balancing_type", "not_modelled", "moe_router_load_balancing_type", f"{counted[0]} of {len(counted)} losses is counted"
        )
