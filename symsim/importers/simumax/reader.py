"""SimuMax's three files, system, strategy and model (v1.0 to v1.2), as a job.

Keys, defaults and meanings: SimuMax v1.2 (git 4dcaae5), simumax/core/config.py, StrategyConfig and ModelConfig; docs/strategy.md has the
older ones. What its own formulas do otherwise is said in the ledger, not imitated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys, of_document, silent
from symsim.importers.rules import padded_vocabulary, settle
from symsim.importers.several import by_kind
from symsim.importers.simumax import system as simumax_system
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model
from symsim.inputs.reading import Document
from symsim.inputs.strategy import Strategy
from symsim.inputs.validation import validate

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_WHO = "SimuMax"
_DROPOUT = 0.1  # SimuMax has a switch and no rate; Megatron-LM's default
_VOCABULARY_MULTIPLE = 128
_DUMMY_WGRAD_SINCE = (2, 3)

# docs/b200/b200_release_v1.2_summary.json: of seven Llama runs of 8 ranks at 32,768 and 131,072 tokens the peaks here are 0.0 to 0.5 % below
_EXCHANGE = (
    "how many of the up to four copies of q, k and v are there at once: no seconds, and bytes of attention where a layer holds more in its "
    "feed-forward network"
)
_STRATEGY_TABLE = {
    **silent(
        "no_cost_effect",
        "which links a group runs over follows from the network's tiers, as `auto` there",
        "tp_net cp_net pp_net dp_net ep_net etp_net edp_net",
    ),
    **silent("no_cost_effect", "never read there: data-parallel messages add up, as they do here without overlap", "overlap_grad_reduce"),
    **silent("no_cost_effect", "from which version te_version counts", "te_dummy_wgrad_min_version te_grouped_linear_dummy_wgrad_min_version"),
    **silent("no_cost_effect", "from which version te_version counts", "te_cp_a2a_save_pre_posta2a_min_version"),
    **silent("no_cost_effect", _EXCHANGE, "cp_a2a_mode"),
}
_MODEL_TABLE = silent("no_cost_effect", "a label", "model_type model_name orig_vocab_size")
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
_FUSIONS = {
    "use_fused_norm": "norm_fusion",
    "use_fused_swiglu": "bias_activation_fusion",
    "use_accm_weight": "gradient_accumulation_fusion",
    "use_fused_grad_accumulation": "gradient_accumulation_fusion",
}
_GRANULARITIES = {
    "full_block": "full",
    "sdp_only": "core_attn",
    "selective_recompute": "regions",
    "attn_only": "attention",
    "mlp_only": "network",
    "null": None,
    "None": None,
}
_REGIONS = {
    "attention": "attention runs again",
    "mla_rms_recompute": "the input norm and the down-projections run again",
    "attn_recompute": "attention but its output projection runs again",
    "network": "the feed-forward network or the experts run again",
    "mlp_rms_recompute": "the norm before the feed-forward network, the router and shared experts run again",
    "mlp_recompute": "the products of the feed-forward network or the experts run again",
}


_FLAGS = sorted(name for name in _REGIONS if name.endswith("_recompute"))


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of SYSTEM.json STRATEGY.json MODEL.json, in any order; each may be left out. InputError for what is none of them."""
    files = by_kind(inputs, _what)
    settings = Keys("SimuMax's strategy", of_document(files["strategy"]), _STRATEGY_TABLE, options.lenient) if "strategy" in files else None
    assumptions: dict[str, str] = {}
    strategy = _strategy(settings, assumptions) if settings is not None else None
    rows: list[Entry] = []
    architecture = load_model(options.model).architecture if options.model else None
    if "model" in files:
        model = Keys("SimuMax's model", of_document(files["model"]), _MODEL_TABLE, options.lenient)
        data, routed = _model(model, files["model"], (strategy or {}).get("tp", 1), assumptions)
        if settings is not None and settings.flag("enable_dropout", False, to="hidden_dropout, attention_dropout", why=f"at {_DROPOUT}"):
            data |= {"hidden_dropout": _DROPOUT, "attention_dropout": _DROPOUT}
        architecture = validate(Architecture, data, files["model"].where)
        strategy = {**(strategy or {}), **routed} if strategy is not None or routed else None
        rows += model.finish()
    if settings is not None and strategy is not None:
        _recomputed(settings, strategy, architecture)
        _from_narrow(settings, strategy, architecture)
        _without_experts(settings, strategy, architecture)
        settle(settings, strategy, architecture, _WHO)
        rows += settings.finish()
    fused = (strategy or {}).get("cross_entropy_fusion") == "te"
    system, found = simumax_system.read(files["system"], options.lenient, fused) if "system" in files else (None, ())
    given = {what: document.data for what, document in files.items()}
    return Job("simumax", (*rows, *found), architecture, strategy, system, assumptions, given=given)


def _from_narrow(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Experts that run again from the FP8 copy of their rows (core/transformer/moe_module.py QuantizedGroupLinearCol)."""
    key, runs = "cache_groupgemm_col_fp8_inputs", strategy.get("recompute_operations", ())
    again = strategy.get("recompute") == "full" or any(run.split("..")[0] in ("moe", "moe.experts.fc1") for run in runs)
    if keys.flag(key, False, to="recompute_from_fp8") is not True:
        return
    if "fp8" in strategy and again and not _no_experts(architecture):
        strategy["recompute_from_fp8"] = ["moe.experts.fc1"]
    else:
        keys.note(key, "no_cost_effect", why="no experts run again in FP8")


def _no_experts(architecture: Architecture | None) -> bool:
    return architecture is not None and all(architecture.layer_kinds[kind].ffn != "moe" for kind in architecture.kind_names())


def _without_experts(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Nothing of experts goes to the host where there are none, or where all of a layer runs again."""
    none = _no_experts(architecture)
    if "offload_operations" in strategy and (none or strategy.get("recompute") == "full"):
        del strategy["offload_operations"]
        keys.note("offload_groupgemm_col_inputs", "no_cost_effect", why="no experts" if none else "layers that run again keep none of them")


def _what(document: Document) -> str:
    for key, what in (("accelerator", "system"), ("networks", "system"), ("hidden_size", "model"), ("head_num", "model"), ("layer_num", "model")):
        if key in document.data:
            return what
    if {"tp_size", "pp_size", "seq_len", "world_size", "micro_batch_size", "micro_batch_num"} & document.data.keys():
        return "strategy"
    raise InputError(f"{document.where}: no file of SimuMax: a system has 'accelerator', a model 'hidden_size', a strategy 'tp_size'")


def _strategy(keys: Keys, assumptions: dict[str, str]) -> dict[str, Any]:
    """StrategyConfig but recomputation, which asks for the model."""
    found: dict[str, Any] = {}
    for key, option in (("tp_size", "tp"), ("cp_size", "cp"), ("pp_size", "pp"), ("ep_size", "ep")):
        found[option] = keys.integer(key, 1, to=option, least=1)
    found["etp"] = keys.integer("etp_size", 1, to="etp", least=1)
    if not keys.has("etp_size") and found["tp"] > 1:
        keys.note("etp_size", "derived", "etp", "1 there; tp unless written here")
    world = keys.integer("world_size", 8, to="dp", why="dp = world / (tp cp pp)", least=1)
    if not keys.has("world_size"):
        keys.note("world_size", "derived", "dp", "8 ranks there")
    each = found["tp"] * found["cp"] * found["pp"]
    if world % each:
        raise keys.wrong("world_size", f"a multiple of tp_size cp_size pp_size = {each}")
    found["dp"] = world // each
    found |= _batch(keys, found["dp"])
    if keys.flag("offload_groupgemm_col_inputs", False, to="offload_operations", why="inputs of the experts' first product"):
        found["offload_operations"] = ["moe.experts.fc1"]
    found |= {option: False for key, option in _FUSIONS.items() if keys.flag(key, True, to=option) is False}
    if keys.flag("enable_sequence_parallel", True, to="sp"):
        found["sp"] = True
    if keys.choice("cp_comm_type", {"a2a": "a2a", "all_gather": "all_gather"}, "a2a", to="cp_comm_type") == "a2a" and found["cp"] > 1:
        found["cp_comm_type"] = "a2a"
    elif found["cp"] > 1:
        found["cp_comm_type"] = "all_gather"
    _output_kept(keys, found)
    found["rank_order"] = keys.text("order_of_paralielism", "tp-cp-ep-dp-pp", to="rank_order")
    keys.choice("moe_dispatcher_policy", {"all2all": 0, "all2all-seq": 0}, to="moe_token_dispatcher_type")
    found |= _pipeline(keys)
    found["zero"] = keys.integer("zero_state", 1, to="zero")
    sixteen = keys.flag("grad_reduce_in_bf16", False, to="grad_reduce_in_fp32", why="inverted")
    single = keys.flag("use_fp32_accum_grad", True, to="grad_reduce_in_fp32")
    found["grad_reduce_in_fp32"] = single and not sixteen
    found["precision"] = keys.choice("dtype", {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}, "bf16", to="precision")
    if keys.flag("fp8", False, to="fp8", why="tensorwise: a switch without a recipe there, one scale a tensor in its cost"):
        found["fp8"] = "tensorwise"
    if keys.flag("cross_entropy_loss_fusion", False, to="cross_entropy_fusion", why="te"):
        found["cross_entropy_fusion"] = "te"
    _assumed(keys, assumptions)
    _in_use(keys, found)
    return found


def _output_kept(keys: Keys, strategy: dict[str, Any]) -> None:
    """Attention's output under an exchange of heads: TransformerEngine keeps it as it was made from 2.8 on, by default."""
    if strategy.get("cp_comm_type") != "a2a":
        return
    since, own = (_version(keys, key, default) for key, default in (("te_cp_a2a_save_pre_posta2a_min_version", "2.8.0"), ("te_version", None)))
    if own < since:
        strategy["cp_saved_output"] = "projection"
        why = "projection: exchanged again for the backward before TransformerEngine 2.8"
        keys.rows["attention output"] = Entry("attention output", "(default)", "derived", "cp_saved_output", why)


def _version(keys: Keys, key: str, default: str | None) -> tuple[int, ...]:
    """The numbers of a version; none where nothing says one."""
    text = keys.text(key, default)
    parts = [int(part) if part.isascii() and part.isdigit() and len(part) < 9 else -1 for part in (text or "0").split(".")[:2]]
    if -1 in parts:
        raise keys.wrong(key, "a version such as 2.11.0")
    return tuple(parts)


def _batch(keys: Keys, dp: int) -> dict[str, Any]:
    found = {"seq_length": keys.integer("seq_len", 4096, to="seq_length", least=1)}
    found["micro_batch_size"] = keys.integer("micro_batch_size", 1, to="micro_batch_size", least=1)
    count = keys.integer("micro_batch_num", None, to="num_microbatches", least=1)
    together = keys.integer("global_batch_size", None, to="num_microbatches", why="derived from the others there", least=1)
    if count is None and together is not None:
        count, left = divmod(together, dp * found["micro_batch_size"])
        if left:
            raise keys.wrong("global_batch_size", f"a multiple of dp micro_batch_size = {dp * found['micro_batch_size']}")
    found["num_microbatches"] = count or 1
    return found


def _pipeline(keys: Keys) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "microbatch_group_size_per_vp_stage"):
        value = keys.integer(name, None, to=name, least=1)
        if value is not None:
            found[name] = value
    for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        if keys.flag(name, False, to=name):
            found[name] = True
    for name in ("attention_sparse_ratio", "attention_sparse_rati"):
        ratio = keys.number(name, None, to="attention_sparse_ratio")
        if ratio is not None and not 0 <= ratio < 1:
            raise keys.wrong(name, "a share from 0 up, below 1")
        if ratio:
            found["attention_sparse_ratio"] = ratio
    found["vpp"] = keys.integer("interleaving_size", 1, to="vpp", least=1)
    beside = keys.flag("pp_comm_async", True, to="overlap_p2p_comm")
    if beside and found["vpp"] > 1:
        found["overlap_p2p_comm"] = True
    elif not beside and found["vpp"] == 1:
        found["p2p_comm"] = "batched"
        keys.note("pp_comm_async", to="p2p_comm", why="batched: a rank waits for each exchange")
    elif keys.has("pp_comm_async"):
        why = "not read by the plain 1F1B of its cost model" if beside else "boundary tensors wait here too"
        keys.note("pp_comm_async", "no_cost_effect", why=why)
    return found


def _in_use(keys: Keys, strategy: dict[str, Any]) -> None:
    """The share of reserved memory that is in use."""
    share = keys.number("mem_factor", None, to="allocator_in_use", why="assume.memory=reserved divides a peak by it; a peak is of bytes in use else")
    if share is not None and not 0 < share <= 1:
        raise keys.wrong("mem_factor", "a share above 0 and up to 1")
    strategy |= {} if share in (None, Strategy().allocator_in_use) else {"allocator_in_use": share}


def _assumed(keys: Keys, assumptions: dict[str, str]) -> None:
    """Keys that are assumptions here."""
    flash = keys.flag("use_flash_sdp", True, to="assume.attention_kernel")
    keys.flag("use_math_sdp", False, to="assume.attention_kernel", why="use_flash_sdp decides")
    if not flash:
        assumptions["attention_kernel"] = "math"
    if keys.flag("enable_straggler_model", True, to="assume.stragglers", why="by nodes"):
        assumptions["stragglers"] = "nodes"
    if not keys.has("enable_straggler_model"):
        keys.note("enable_straggler_model", "derived", "assume.stragglers", "by nodes: on there")
    if keys.flag("recompute_variance", False, to="assume.recompute_early_stop"):
        assumptions["recompute_early_stop"] = "true"
    assumptions["moe_probabilities"] = "experts" if keys.flag("dispatch_probs", False, to="assume.moe_probabilities") else "combine"
    if not keys.has("dispatch_probs"):
        keys.note("dispatch_probs", "derived", "assume.moe_probabilities", "combine: false there, as Megatron-Core 0.12")
    keys.text("te_version", None, to="assume.te_dummy_wgrad", why="true from 2.3 on")
    assumptions["te_dummy_wgrad"] = "true" if _version(keys, "te_version", None) >= _DUMMY_WGRAD_SINCE else "false"


def _recomputed(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """What runs again. SimuMax counts layers of a stage; here `block` counts those of a chunk."""
    on = keys.flag("enable_recompute", True, to="recompute", why="the switch of all of them")
    how = keys.choice("recompute_granularity", _GRANULARITIES, None, to="recompute")
    layers = keys.integer("recompute_layer_num", 0, to="recompute_num_layers")
    regions = {name for name in _FLAGS if keys.flag(name, False)}
    megatron = keys.flag("megatron_recompute", False, to="recompute", why="selective")
    modules = keys.texts("megatron_recompute_modules", None, to="recompute_modules")
    for name in _FLAGS:
        if keys.has(name) and (how != "regions" or name not in regions):
            keys.note(name, "no_cost_effect", why="off" if name not in regions else "read with recompute_granularity=selective_recompute")
    if on and megatron and modules:
        strategy |= {"recompute": "selective", "recompute_modules": modules}
    elif on and how == "full" and layers:
        strategy |= {"recompute": "full", "recompute_method": "block", "recompute_num_layers": _at_most(layers, strategy, architecture)}
    elif on and how == "core_attn":
        strategy |= {"recompute": "selective", "recompute_modules": ["core_attn"]}
    elif on and how == "full":
        keys.note("recompute_granularity", "no_cost_effect", why="recompute_layer_num=0: no layer runs again")
    elif on and how is not None:
        _selective(keys, strategy, regions if how == "regions" else {how}, architecture)


def _selective(keys: Keys, strategy: dict[str, Any], regions: set[str], architecture: Architecture | None) -> None:
    """Its regions as runs of operations."""
    runs: list[str] = []
    for region in sorted(regions, key=list(_REGIONS).index):
        found = _operations(region, architecture) if architecture is not None else []
        key = region if region in keys.given else "recompute_granularity"
        if found:
            runs += found
            keys.note(key, "mapped", "recompute_operations", _REGIONS[region])
        else:
            keys.note(key, "not_modelled", why=f"{_REGIONS[region]}: which they are follows from the model; --of names it")
    if runs:
        strategy |= {"recompute": "selective", "recompute_operations": list(dict.fromkeys(runs))}


def _operations(region: str, architecture: Architecture) -> list[str]:
    """A region as operations here (config.py parse_attention_recompute, parse_mlp_recompute)."""
    kinds = [architecture.layer_kinds[kind] for kind in architecture.kind_names()]
    dense, experts = any(kind.ffn == "mlp" for kind in kinds), any(kind.ffn == "moe" for kind in kinds)
    shared = experts and architecture.moe is not None and architecture.moe.moe_shared_expert_intermediate_size
    queries = ["q_a_layernorm", "q_b_proj"] if architecture.attention.q_lora_rank else ["q_proj"]
    latent = [f"attention.{name}" for name in (*queries, "kv_a_layernorm..attention.core")]
    mla = architecture.attention.kind == "mla"
    down = [f"attention.{name}" for name in (*(["q_a_proj"] if architecture.attention.q_lora_rank else []), "kv_a_proj_with_mqa..attention.kv_split")]
    return {
        "attention": ["attention"],
        "attn_recompute": latent if mla else ["attention.qkv..attention.core"],
        "mla_rms_recompute": ["pre_attention_norm", *(down if mla else [])],
        "network": [*(["mlp"] if dense else []), *(["moe"] if experts else [])],
        "mlp_recompute": [*(["mlp"] if dense else []), *(["moe.experts.fc1..moe.experts.fc2"] if experts else [])],
        "mlp_rms_recompute": ["pre_mlp_norm", *(["moe.gate"] if experts else []), *(["moe.shared_experts"] if shared else [])],
    }[region]


def _at_most(layers: int, strategy: dict[str, Any], architecture: Architecture | None) -> int:
    """Layers of a chunk that run again: no more than its longest has."""
    if architecture is None:
        return layers
    chunks = strategy["pp"] * strategy["vpp"]
    ends = [strategy.get(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    rest, others = architecture.num_layers - sum(n or 0 for n in ends), chunks - strategy["vpp"] * sum(n is not None for n in ends)
    longest = max(-(-rest // others) if others > 0 else 0, *(-(-(n or 0) // strategy["vpp"]) for n in ends), 1)
    return min(layers, longest)


def _model(keys: Keys, document: Document, tp: int, assumptions: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """ModelConfig as a model file, and what of it is a strategy here (how rows of experts are padded)."""
    hidden, heads = _needed(keys, "hidden_size", "hidden_size"), _needed(keys, "head_num", "attention.num_attention_heads")
    attention: dict[str, Any] = {"num_attention_heads": heads}
    latent = keys.choice("attention_type", {"mha": False, "mla": True}, False, to="attention.kind")
    groups = keys.integer("kv_head_num", heads, to="attention.num_query_groups", least=1)
    head = keys.integer("head_size", None, to="attention.kv_channels", least=1)
    sizes = {name: keys.integer(name, None, to=f"attention.{name}", least=1) for name in _LATENT}
    if latent:
        attention |= {"kind": "mla", **{name: size for name, size in sizes.items() if size is not None}}
    else:
        attention |= {"num_query_groups": groups, **({"kv_channels": head} if head else {})}
    gated = keys.flag("use_swiglu", False, to="mlp.gated, mlp.activation")
    network = {"gated": gated, "activation": "silu" if gated else "gelu"}
    width = keys.integer("intermediate_size", None, to="mlp.ffn_hidden_size", least=1)
    layers, experts = _needed(keys, "layer_num", "layers"), keys.integer("expert_num", 1, to="moe.num_moe_experts", least=1)
    dense = keys.integer("dense_layers", 0, to="layers") if experts > 1 else layers
    keys.known.add("dense_layers")
    data: dict[str, Any] = {
        "name": keys.text("model_name", "") or _stem(document.where),
        "hidden_size": hidden,
        "vocab_size": _vocabulary(keys, tp),
        "attention": attention,
        "layers": " + ".join(f"{n} * {kind}" for n, kind in ((min(dense, layers), "dense"), (layers - dense, "moe")) if n > 0),
    }
    if "model_name" in keys.rows:
        keys.note("model_name", "mapped", "name")
    if dense:
        if width is None:
            raise InputError(f"{document.where}: intermediate_size is missing")
        data["mlp"] = {"ffn_hidden_size": width, **network}
    routed = _experts(keys, experts, width, network, data, assumptions) if experts > 1 else {}
    if layers <= dense:
        for key in routed:
            keys.note(_CAPACITY[key], "no_cost_effect", why="no layer has experts")
        routed = {}
    return data, routed


_CAPACITY = {"moe_pad_expert_input_to_capacity": "moe_pad_expert_input_to_capacity", "moe_expert_capacity_factor": "capacity"}


def _experts(
    keys: Keys, experts: int, width: int | None, network: dict[str, Any], data: dict[str, Any], assumptions: dict[str, str]
) -> dict[str, Any]:
    shared = keys.integer("moe_shared_expert_intermediate_size", None, to="moe.moe_shared_expert_intermediate_size", least=1)
    data["layer_kinds"] = {**({"dense": {"ffn": "mlp"}} if "mlp" in data else {}), "moe": {"ffn": "moe"}}
    data["moe"] = {
        "num_moe_experts": experts,
        "moe_router_topk": _needed(keys, "topk", "moe.moe_router_topk"),
        "moe_ffn_hidden_size": keys.integer("moe_ffn_hidden_size", width, to="moe.moe_ffn_hidden_size", least=1),
        **network,
        **({"moe_shared_expert_intermediate_size": shared} if shared else {}),
    }
    serial = keys.choice("group_linear_mode", {"parallel": False, "serial": True}, False, to="assume.moe_grouped_gemm")
    if serial:
        assumptions["moe_grouped_gemm"] = "false"
    capacity = keys.number("capacity", 1, to="moe_expert_capacity_factor")
    if not keys.flag("moe_pad_expert_input_to_capacity", True, to="moe_pad_expert_input_to_capacity"):
        return {}
    return {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": float(capacity)}


def _vocabulary(keys: Keys, tp: int) -> int:
    """The vocabulary as it is padded there: to a multiple of 128 tp unless said otherwise."""
    size = _needed(keys, "vocab_size", "vocab_size")
    multiple = keys.integer("make_vocab_size_divisible_by", _VOCABULARY_MULTIPLE, to="vocab_size", least=1) * tp
    if not keys.flag("padded_vocab_size", True, to="vocab_size"):
        return size
    padded = padded_vocabulary(size, multiple)
    if padded != size:
        keys.note("vocab_size", "derived", "vocab_size", f"{padded}: padded to a multiple of {multiple}")
    return padded


def _needed(keys: Keys, key: str, to: str) -> int:
    value = keys.integer(key, None, to=to, least=1)
    if value is None:
        raise InputError(f"{keys.place(key)}: {key} is missing")
    return int(value)


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json") or "model"
