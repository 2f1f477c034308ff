"""An axolotl YAML, with the DeepSpeed JSON that it names.

What its keys do beside the Trainer's: axolotl 067b021c8 (2026-07-24), src/axolotl/utils/config, loaders/model.py, utils/distributed.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut
from symsim.importers.adapted import Names, adapters, drawn_layers, four_bits, opened, stored_base
from symsim.importers.adapter_ranks import ranks
from symsim.importers.axolotl.tables import HOST, SILENT, WHOLE
from symsim.importers.compiled import compiled
from symsim.importers.documents import SAID, balanced, documents_said, free_rows, packed_rows, padded_rows
from symsim.importers.fsdp import narrow_gathers, sharded, silent_names
from symsim.importers.heads import headed
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys
from symsim.importers.losses import liger_loss
from symsim.importers.preferences import preferred
from symsim.importers.presets import with_deepspeed
from symsim.importers.ranks import known_variables, spread
from symsim.importers.rules import padded_vocabulary, parts_apart, settle
from symsim.importers.sections import of_sections
from symsim.importers.targets import of_parameters, some_layers
from symsim.importers.trainer import OTHER_MODELS, autocast, buckets, checkpoints_on_host, update
from symsim.importers.weights import model_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.hf.config import NO_EFFECT
from symsim.inputs.reading import read_json, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_ROWS = re.compile(r"\[\d*:-?\d*\]$")
_FLASH = "flash_attention sdp_attention flex_attention xformers_attention sage_attention flash_optimum".split()
_KERNELS = {
    "eager": "eager",
    **dict.fromkeys(("sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "xformers", "sage"), "flash"),
}
# Liger's kernels, and those of flash-attention
_LIGER = {
    "norm": ("liger_rms_norm", "liger_layer_norm", "flash_attn_rms_norm"),
    "activation": ("liger_glu_activation", "liger_swiglu", "flash_attn_fuse_mlp"),
    "rope": ("liger_rope",),
}
_WHOLE = "TransformerEngine's kernels, which stand for FP8 here, have the loss whole: up to 12 bytes a logit more at the peak"
_OF_PARAMETERS = "their products beside the experts'; peft adds them to the experts' weights in every forward, a copy of those more"
_ROLLS = {name: "generation in every step is another workload; the policy's step is timed" for name in ("grpo", "gdpo", "ebft", "ppo")}
_PAIRS = {name: OTHER_MODELS for name in ("dpo", "ipo", "kto", "orpo", "simpo", "bco")}


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of an axolotl YAML. InputError for a key that there is not or a value that cannot be."""
    if len(inputs) > 2 or (len(inputs) == 2 and not inputs[1].lower().endswith(".json")):
        raise InputError("'symsim import axolotl' reads a YAML and, where it names one, its DeepSpeed JSON")
    known_variables(options, SAID)
    document = read_json(inputs[0]) if inputs[0].lower().endswith(".json") else read_yaml(inputs[0])
    keys = Keys("an axolotl file", of_sections(document, WHOLE), {**SILENT, **silent_names("fsdp_config")}, options.lenient)
    strategy: dict[str, Any] = {"fusion": "eager"}
    # named without a value where DeepSpeed shards
    keys.known.add("fsdp")
    assumptions: dict[str, str] = {}
    architecture = _resized(keys, model_of(keys, "base_model", options))
    _overridden(keys)
    _tuned(keys, strategy, architecture)
    pure = _precision(keys, strategy)
    _batch(keys, strategy, options)
    found = _degrees(keys, strategy)
    balanced(keys, assumptions, "group_by_length")
    update(keys, strategy, assumptions, "optimizer", "adamw_torch_fused")
    _checkpoints(keys, strategy, assumptions, architecture)
    _attention(keys, assumptions)
    compiled(keys, strategy, "torch_compile")
    _loss(keys, strategy, architecture)
    told = with_deepspeed(document, inputs[1] if len(inputs) == 2 else None, keys, strategy, assumptions, architecture, options, overlap=True)
    if told is None:
        spread(keys, options, strategy, found, "dp_shard_size and dp_replicate_size")
        _replicas(keys, strategy, assumptions, pure)
    _stored(keys, strategy)
    _unpacked(keys, strategy, assumptions)
    _headed(keys, strategy)
    _workload(keys, strategy)
    narrow_gathers(keys, strategy, "fp8_enable_fsdp_float8_all_gather")
    _functions(keys, strategy)
    parts_apart(keys, strategy, architecture, next((key for key in _PARTS if key in keys.given), _PARTS[0]))
    settle(keys, strategy, architecture, "axolotl")
    rows = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    notes = () if architecture is not None else ("no model is known by that name; --of MODEL says which",)
    return Job("axolotl", (*rows, *(told or ())), architecture, strategy, None, assumptions, notes)


def _workload(keys: Keys, strategy: dict[str, Any]) -> None:
    """What is trained of which model: full training is timed and pairs with their reference, what else is asked for is said."""
    kind = keys.choice("rl", {name: name for name in (*_ROLLS, *_PAIRS)}, None)
    if kind is not None and not preferred(keys, "rl", kind, strategy):
        keys.note("rl", "not_modelled", why=_ROLLS.get(kind) or _PAIRS[kind])


def _unpacked(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Weights that come in few bits and are trained in 16 (loaders/model.py _set_quantization_config)."""
    key, section = "model_quantization_config", keys.given.get("model_quantization_config_kwargs")
    told = section.value if section is not None and isinstance(section.value, dict) else {}
    if not keys.has(key) or told.get("dequantize") is not True:
        return
    if str(keys.given[key].value) != "Mxfp4Config" or strategy.get("zero", 0):
        keys.note(key, "no_cost_effect", why="unpacked as they are loaded, before the first step")
        return
    assumptions["checkpoint_unpacking"] = "mxfp4"
    keys.note(key, to="assume.checkpoint_unpacking", why="experts are unpacked on the device as they are loaded, a moment of memory")
    keys.note("model_quantization_config_kwargs", to="assume.checkpoint_unpacking")


_PARTS = ("context_parallel_size", "sequence_parallel_degree", "context_parallel.size")
_FUNCTIONS = ("qkv", "o", "mlp")


def _by_default(keys: Keys, strategy: dict[str, Any]) -> bool:
    """Whether axolotl makes functions of adapters without being told."""
    adapter = str(keys.text("adapter", ""))
    first = strategy["zero"] == 3 and strategy["dp"] > 1 and any(key.startswith("fsdp_config") for key in keys.given)
    first = first and str(keys.given["fsdp_version"].value if keys.has("fsdp_version") else "1") != "2"
    eight = adapter == "lora" and keys.flag("load_in_8bit", False)
    return adapter in ("lora", "qlora") and not (first or eight or keys.has("rl") or keys.flag("trust_remote_code", False))


def _functions(keys: Keys, strategy: dict[str, Any]) -> None:
    """Linear maps with their adapters in functions of their own, of modules that run op by op; that of the network has one kernel for its gate.
    They are on where nothing is said (utils/schemas/config.py check_auto_enable_lora_kernels)."""
    if strategy.get("tuner_type") != "lora":
        return
    said = any(keys.has(f"lora_{name}_kernel") for name in (*_FUNCTIONS, "embedding"))
    found = [name for name in _FUNCTIONS if keys.flag(f"lora_{name}_kernel", not said and _by_default(keys, strategy), to="fused_adapters")]
    if found and not said:
        why = "lora_qkv_kernel, lora_o_kernel and lora_mlp_kernel are on where none of them is given"
        keys.note("lora_mlp_kernel", "derived", "fused_adapters", why)
    if not found:
        return
    strategy["fused_adapters"] = found
    if strategy["fusion"] != "eager" or strategy.get("tp", 1) > 1 or strategy.get("use_dora"):
        del strategy["fused_adapters"]
        for name in found:
            why = "five passes less over the result of every map, and less that is kept of its input; here as without"
            keys.note(f"lora_{name}_kernel", "not_modelled", "fused_adapters", why)
    elif "mlp" in found:
        strategy["fused_kernels"] = list(dict.fromkeys([*strategy.get("fused_kernels", []), "activation"]))


_NAMES = Names("lora_r", "lora_dropout", "lora_target_modules", "lora_modules_to_save")


def _tuned(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Adapters, where there are any; other kinds are timed as LoRA, and base weights in few bits in two bytes."""
    adapter = (keys.text("adapter", to="tuner_type") or "").strip()
    if not adapter:
        _opened(keys, strategy, architecture)
        return
    if adapter == "dora":
        raise keys.wrong("adapter", "lora with peft_use_dora: true, which is DoRA")
    every = keys.flag("lora_target_linear", False, to="target_modules")
    adapters(keys, strategy, architecture, _NAMES)
    if every and strategy["target_modules"] != ["all_linear"]:
        strategy["target_modules"] = ["all_linear", *(t for t in strategy["target_modules"] if t != "all_linear")]
    if adapter not in ("lora", "qlora"):
        keys.note("adapter", "not_modelled", "tuner_type", f"{adapter} is timed as LoRA, whose products are others")
    if keys.flag("peft_use_dora", False, to="use_dora"):
        strategy["use_dora"] = True
    some_layers(keys, "peft_layers_to_transform", strategy, architecture)
    of_parameters(keys, "lora_target_parameters", strategy, architecture, _named(keys), _OF_PARAMETERS)
    ranks(keys, "lora_rank_pattern", strategy, architecture, {})


def _opened(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Parameters that are trained where all others rest."""
    drawn_layers(keys, "lisa_n_layers", strategy, architecture)
    asked = keys.texts("unfrozen_parameters", None, to="freeze_parameters, trainable_parameters")
    if not asked:
        return
    # a dot is one, and a range of rows may stand behind a pattern (utils/freeze.py)
    patterns = {_ROWS.sub("", text).replace(".", r"\."): text for text in asked}
    found, lost = opened(list(patterns), architecture, at_start=True)
    if lost or not found:
        why = f"{', '.join(patterns[text] for text in lost)}: no parameter here is called so; all are trained"
        keys.note("unfrozen_parameters", "not_modelled", "trainable_parameters", why)
        return
    strategy |= {"freeze_parameters": ["embedding", "layers", "lm_head", "final_norm"], "trainable_parameters": found}


def _named(keys: Keys) -> bool:
    return any(key in keys.given for key in ("lora_target_modules", "lora_target_linear"))


def _stored(keys: Keys, strategy: dict[str, Any]) -> None:
    """Base weights in 4 or 8 bits, as loaders/model.py asks bitsandbytes for them."""
    if strategy.get("tuner_type") != "lora":
        return
    double = keys.flag("bnb_config_kwargs.bnb_4bit_use_double_quant", True, to="quantize_base")
    kind = keys.choice("bnb_config_kwargs.bnb_4bit_quant_type", {"nf4": "nf4", "fp4": "fp4"}, "nf4", to="quantize_base")
    four, eight = (keys.flag(key, False, to="quantize_base") for key in ("load_in_4bit", "load_in_8bit"))
    if four:
        stored_base(keys, strategy, four_bits(kind, double), "load_in_4bit")
    elif eight:
        stored_base(keys, strategy, "int8", "load_in_8bit")
    if keys.flag("quantize_moe_experts", False, to="quantize_experts") and "quantize_base" in strategy:
        strategy["quantize_experts"] = True


def _loss(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """The output layer's product inside the loss: Liger's, or Apple's; fp32 copies of logits in chunks; Liger's other kernels."""
    chunks = keys.integer("chunked_cross_entropy_num_chunks", None, to="cross_entropy_chunks", least=1)
    if keys.flag("chunked_cross_entropy", False, to="cross_entropy_fusion"):
        if strategy["fusion"] == "te":
            keys.note("chunked_cross_entropy", "not_modelled", why=_WHOLE)
        else:
            strategy |= {"cross_entropy_fusion": "output_chunks", **({"cross_entropy_chunks": chunks} if chunks else {})}
    found = {name: [keys.flag(key, False, to="fused_kernels") for key in asked] for name, asked in _LIGER.items()}
    if fused := [name for name, given in found.items() if any(given) and strategy["fusion"] == "eager"]:
        strategy["fused_kernels"] = fused
    elif strategy["fusion"] != "eager":
        for key in (key for asked in _LIGER.values() for key in asked if keys.flag(key, False)):
            keys.note(key, "derived", "fusion", f"one kernel in {strategy['fusion']} too")
    if keys.flag("liger_fused_linear_cross_entropy", False, to="cross_entropy_fusion, cross_entropy_chunks"):
        liger_loss(strategy, architecture)
    # integrations/cut_cross_entropy/args.py: on wherever the plugin is
    there = keys.has("plugins") and "CutCrossEntropyPlugin" in str(keys.given["plugins"].value)
    if there and not keys.has("cut_cross_entropy"):
        keys.note("plugins", to="cross_entropy_fusion", why="the loss of cut_cross_entropy is on where its plugin is")
    if keys.flag("cut_cross_entropy", there, to="cross_entropy_fusion"):
        strategy.pop("cross_entropy_chunks", None)
        strategy["cross_entropy_fusion"] = "cut"


def _headed(keys: Keys, strategy: dict[str, Any]) -> None:
    """A score of one column for rewards, of two for every token of processes (loaders/model.py: sequence and token classification)."""
    labels = keys.integer("num_labels", None, to="num_labels", least=1)
    if keys.flag("process_reward_model", False, to="task_type"):
        headed(strategy, "token_cls", labels or 2)
    elif keys.flag("reward_model", False, to="task_type", why="rows are pairs of samples: twice micro_batch_size of them") or labels is not None:
        headed(strategy, "seq_cls", labels or 1)


def _switch(keys: Keys, key: str, default: bool | None = None) -> bool | None:
    """A flag that may also be `auto`, which is the default."""
    if keys.has(key) and str(keys.given[key].value).casefold() == "auto":
        keys.note(key, to="precision", why="auto: bf16 on the accelerators that have it")
        return None
    return bool(keys.flag(key, default, to="precision")) if keys.has(key) else default


def _precision(keys: Keys, strategy: dict[str, Any]) -> bool:
    """The type of products; whether weights and states are in it too (the model is loaded in it, and nothing makes fp32 copies)."""
    fp16 = _switch(keys, "fp16") or _switch(keys, "float16")
    bf16 = _switch(keys, "bf16")
    whole = _switch(keys, "bfloat16")
    full = _switch(keys, "float32", False)
    keys.known |= {"tf32", "torch_dtype"}
    if keys.has("tf32"):
        keys.note("tf32", "no_cost_effect", why="fp32 products of bf16 or fp16 training: the loss's alone")
    if bf16 is None:
        bf16 = not fp16 and not full
        if "bf16" not in keys.given and bf16 and not whole:
            keys.note("bf16", "derived", "precision", "auto by default: bf16")
    strategy["precision"] = "bf16" if bf16 or whole else "fp16" if fp16 else "fp32"
    if keys.flag("fp8", False):
        strategy |= {"fp8": "tensorwise", "fusion": "te"}
        keys.note("fp8", to="fp8, fusion", why="products in 8 bits are te's kernels here, with the weights' copies that it keeps")
    return strategy["precision"] != "fp32"


def _batch(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    each = keys.integer("micro_batch_size", None, to="micro_batch_size", least=1)
    many = keys.integer("gradient_accumulation_steps", None, to="num_microbatches", least=1)
    whole = keys.integer("batch_size", None, to="num_microbatches", least=1)
    if each is None:
        keys.note("micro_batch_size", "derived", "micro_batch_size", "1 by default")
    if many is None and whole is not None:
        if whole % (each or 1):
            raise keys.wrong("batch_size", f"a multiple of micro_batch_size, {each or 1}")
        many = whole // (each or 1)
    strategy |= {"micro_batch_size": each or 1, "num_microbatches": many or 1}
    strategy["seq_length"] = keys.integer("sequence_len", 512, to="seq_length", least=1)
    if "sequence_len" not in keys.given:
        keys.note("sequence_len", "derived", "seq_length", "512 by default")
    _rows(keys, strategy, options)


def _resized(keys: Keys, architecture: Architecture | None) -> Architecture | None:
    """The vocabulary up to a multiple of 32 (loaders/model.py, _resize_token_embeddings)."""
    if not keys.flag("resize_token_embeddings_to_32x", False, to="vocab_size") or architecture is None:
        return architecture
    size = padded_vocabulary(architecture.vocab_size, 32)
    if size == architecture.vocab_size:
        keys.note("resize_token_embeddings_to_32x", "no_cost_effect", why=f"{size} is a multiple of 32, and shrink_embeddings alone makes less of it")
    return architecture.model_copy(update={"vocab_size": size})


def _overridden(keys: Keys) -> None:
    """Keys of the model's config.json that the file gives other values (loaders/utils.py, load_model_config)."""
    for key in ("overrides_of_model_config", "model_config"):
        section = keys.given[key].value if keys.has(key) else None
        if not isinstance(section, dict):
            continue
        sizes = [name for name in section if name not in NO_EFFECT]
        if sizes:
            keys.note(key, "not_modelled", why=f"the model's own {cut(', '.join(map(str, sizes)))}: of other sizes, or another mask")
        else:
            keys.note(key, "no_cost_effect", why="; ".join(dict.fromkeys(NO_EFFECT[name] for name in section)))


def _rows(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    """How rows of sequence_len come about: packed, padded, or as long as their samples."""
    said = documents_said(options, strategy)
    packed = keys.flag("sample_packing", False)
    flattened = keys.text("batch_flattening", "false").casefold() in ("true", "auto")
    if packed:
        packed_rows(keys, "sample_packing", said)
    elif flattened:
        free_rows(keys, "batch_flattening", said, strategy)
    padded = keys.flag("pad_to_sequence_len", packed, to="seq_length")
    if not packed and not padded:
        padded_rows(keys, "pad_to_sequence_len", "" if flattened else said, strategy)


def _degrees(keys: Keys, strategy: dict[str, Any]) -> int | None:
    """tp, cp, ep and HSDP's two degrees; the number of ranks that they make, where they say."""
    tp = keys.integer("tensor_parallel_size", 1, to="tp")
    cp = keys.integer(_PARTS[0], 1, to="cp")
    cp = max(cp, keys.integer(_PARTS[1], 1, to="cp", why="the older name"))
    cp = max(cp, keys.integer(_PARTS[2], 1, to="cp", why="of the plugin"))
    ways = {"ulysses": "a2a", "ring": "p2p", "auto": None, "usp": None}
    way = keys.choice("context_parallel.backend", ways, None, to="cp_comm_type")
    ring = way or keys.choice("ring_attn_func", {"varlen_llama3": "all_gather", "batch_ring": "p2p"}, None, to="cp_comm_type")
    ep = keys.integer("expert_parallel_size", 1, to="ep", least=1)
    if tp > 1:
        strategy["tp"] = tp
    if cp > 1:
        packed = keys.has("sample_packing") and keys.given["sample_packing"].value is True
        by_plugin = "a2a" if keys.has(_PARTS[2]) else "all_gather" if packed else "p2p"
        strategy |= {"cp": cp, "cp_comm_type": ring or by_plugin}
        if keys.has(_PARTS[2]) and not way:
            keys.note("context_parallel.backend", "derived", "cp_comm_type", "heads are exchanged, as where they are enough and a node holds them")
    if ep > 1:
        strategy["ep"] = ep
    shards = keys.integer("dp_shard_size", 0, to="dp, zero")
    replicas = keys.integer("dp_replicate_size", 0, to="num_distributed_optimizer_instances")
    if replicas > 1 and shards > 1:
        strategy["num_distributed_optimizer_instances"] = replicas
    degrees = max(shards, 1) * max(replicas, 1) * max(tp, 1) * max(cp, 1)
    return degrees if shards > 1 or replicas > 1 else None


def _checkpoints(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: Architecture | None) -> None:
    modes = {**{word: "full" for word in ("true", "True", "unsloth")}, **{word: "none" for word in ("false", "False")}}
    mode = keys.choice("gradient_checkpointing", {**modes, "offload": "host", "offload_disk": "host"}, "none", to="recompute")
    reentrant = keys.flag("gradient_checkpointing_kwargs.use_reentrant", None, to="assume.recompute_early_stop")
    keys.known.add("gradient_checkpointing_kwargs")
    way = str(keys.text("activation_offloading", "")).casefold()
    offloaded = way in ("true", "legacy", "hidden_states")
    if keys.has("activation_offloading") and not (offloaded and mode == "full"):
        off = way in ("false", "")
        keys.note("activation_offloading", "no_cost_effect" if off else "not_modelled", why="off at this value" if off else HOST)
    if mode == "host" or (offloaded and mode == "full"):
        key = "gradient_checkpointing" if mode == "host" else "activation_offloading"
        mode = "full"
        checkpoints_on_host(keys, key, strategy, architecture)
    if keys.has("selective_checkpointing") and keys.given["selective_checkpointing"].value:
        mode = "attention"
        why = "attention's output is kept and the rest of a layer runs again"
        keys.note("selective_checkpointing", to="recompute", why=why)
    if mode == "none":
        return
    strategy["recompute"] = "sac_attn" if mode == "attention" else "full"
    if reentrant is not None:
        assumptions["recompute_early_stop"] = "false" if reentrant else "true"


def _attention(keys: Keys, assumptions: dict[str, str]) -> None:
    for key in _FLASH:
        keys.flag(key, None, to="assume.attention_kernel")
    eager = bool(keys.flag("eager_attention", False, to="assume.attention_kernel"))
    if keys.has("attn_implementation"):
        name = str(keys.text("attn_implementation", to="assume.attention_kernel"))
        if name not in _KERNELS and "/" not in name:
            keys.note("attn_implementation", "not_modelled", "assume.attention_kernel", "taken as flash attention, whose passes other kernels share")
        eager = eager or _KERNELS.get(name) == "eager"
    if eager:
        assumptions["attention_kernel"] = "eager"


def _replicas(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], pure: bool) -> None:
    """FSDP, where accelerate keeps fp32 main parameters; else DDP, where weights and states are in the type that the model is loaded in."""
    if keys.has("fsdp_version"):
        keys.note("fsdp_version", "no_cost_effect", why="version 1 and 2 shard the same bytes")
    if not keys.has("fsdp") and any(key.startswith("fsdp_config.") for key in keys.given):
        keys = _with_switch(keys)
    if sharded(keys, strategy, assumptions):
        strategy["grad_reduce_in_fp32"] = strategy["precision"] == "fp32"
        return
    wide = keys.flag("peft_autocast_adapter_dtype", True, to="autocast") and strategy.get("tuner_type") == "lora"
    strategy |= {"zero": 0, "overlap_grad_reduce": True, "grad_reduce_in_fp32": not pure}
    keys.rows["ddp"] = Entry("ddp", "(default)", "derived", "zero, overlap_grad_reduce", "replicas that reduce buckets beside backward")
    buckets(keys, strategy, "ddp_bucket_cap_mb", 2 if pure else 4)
    if wide:
        autocast(keys, strategy, "adapters")
    elif pure:
        strategy["main_params_dtype"] = strategy["precision"]
        why = "the model is loaded in the compute type, and weights, gradients and states stay in it: 8 bytes a parameter with Adam"
        keys.rows["weights"] = Entry("weights", "(default)", "derived", "main_params_dtype, grad_reduce_in_fp32", why)


def _with_switch(keys: Keys) -> Keys:
    """The keys with FSDP on, as its section alone turns it on since version 2."""
    where = next(one.where for key, one in keys.given.items() if key.startswith("fsdp_config."))
    keys.given = {**keys.given, "fsdp": Given(True, where)}
    return keys
