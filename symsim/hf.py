"""Hugging Face config.json -> Architecture, as transformers 5.23 builds AutoModelForCausalLM from it.

A family says in tables what its module code fixes, what it reads from the config and transformers' own default of each
key (src/transformers/models/<type>/configuration_<type>.py and modeling_<type>.py). The values of the tables are
constants, or functions of the config being read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from .architecture import Architecture, Attention, LayerKind, LinearAttention, Mlp, Moe, compress
from .errors import InputError, nearest

Row = tuple[str, str, str]
Fields = dict[str, Any]

_MAX_LAYERS = 10_000
_ABSENT = object()

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_new", "relu": "relu", "relu2": "relu2",
}

# ---------------------------------------------------------------- keys without a cost

NO_EFFECT: dict[str, str] = {
    key: why for why, keys in {
        "names a token": "pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id unk_token_id decoder_start_token_id "
                         "image_token_index image_token_id boi_token_index eoi_token_index boi_token_id eoi_token_id suppress_tokens "
                         "begin_suppress_tokens forced_bos_token_id forced_eos_token_id prefix tokenizer_class word_embed_proj_bias",
        "sets the angles of rotary positions": "rope_theta rope_scaling rope_parameters rope_type rope_interleave rope_local_base_freq "
                                               "rotary_emb_base rope_ratio original_max_position_embeddings max_position_embeddings "
                                               "max_seq_len seq_length n_ctx "
                                   "max_sequence_length initial_context_length use_dynamic_ntk alibi_bias_max",
        "initial weights": "initializer_range init_std initializer_factor init_device init_config initializer_cutoff_factor "
                           "mup_use_scaling",
        "small constant of a norm": "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps moe_norm_min",
        "scale, clamp or noise, elementwise": "routed_scaling_factor embedding_multiplier logits_scaling residual_multiplier attention_multiplier "
                                "logit_scale query_pre_attn_scalar attn_scale floor_scale attn_temperature_tuning scale_attn_weights "
                                "scale_attn_by_inverse_layer_idx clip_qkv attn_config.clip_qkv softmax_scale attn_config.softmax_scale "
                                "swiglu_alpha swiglu_limit router_jitter_noise input_jitter_noise ffn_config.moe_jitter_eps",
        "weight of an auxiliary loss": "router_aux_loss_coef output_router_logits aux_loss_alpha seq_aux router_z_loss_coef z_loss_coef "
                                       "ffn_config.moe_loss_weight for_llm_finetuning",
        "how transformers runs, saves or loads the model": "use_cache torch_dtype dtype architectures transformers_version auto_map _name_or_path "
                      "_commit_hash _attn_implementation attn_implementation _attn_implementation_autoset _flash_attn_2_enabled "
                      "use_flash_attn flash_attn fused_mlp output_attentions output_hidden_states return_dict use_return_dict torchscript "
                      "pretraining_tp slow_but_exact ep_size ep_num offload gradient_checkpointing reorder_and_upcast_attn "
                      "chunk_size_feed_forward is_decoder tf_legacy_loss use_bfloat16 pruned_heads cross_attention_hidden_size "
                      "keys_to_ignore_at_inference skip_bias_add skip_bias_add_qkv bias_dropout_fusion masked_softmax_fusion "
                      "attention_softmax_in_fp32 cache_implementation unk_token model_max_length",
        "classification and generation heads": "id2label label2id num_labels problem_type finetuning_task task_specific_params classifier_dropout "
                           "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout do_sample "
                           "max_length min_length num_beams num_beam_groups temperature top_k top_p typical_p repetition_penalty "
                           "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences early_stopping "
                           "diversity_penalty bad_words_ids exponential_decay_length_penalty return_dict_in_generate output_scores "
                           "remove_invalid_values",
    }.items() for key in keys.split()
}

# transformers builds no multi-token-prediction modules, whatever these say
_MTP_COUNTS = ("num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules")
_MTP_DETAILS = ("use_mtp", "mtp_transformer_layers", "mtp_loss_factor", "mtp_layer_types", "mtp_use_repeated_layer")

_FORBIDDEN = {
    "is_encoder_decoder": "only decoder-only models are supported",
    "add_cross_attention": "cross-attention is not supported",
    "use_bidirectional_attention": "only causal attention is supported",
    "prefix_lm": "only causal attention is supported",
    "attn_config.prefix_lm": "only causal attention is supported",
}

# ---------------------------------------------------------------- reading one config


class Config:
    """Typed look-ups in one config.json, remembering which field of the architecture every key went to."""

    def __init__(self, values: Mapping[str, Any], family: Family, where: str) -> None:
        self.values, self.family, self.where = values, family, where
        self.target = ""
        self.used: dict[str, list[str]] = {}
        self.defaulted: dict[str, Any] = {}
        self.notes: dict[str, str] = {}

    def look(self, key: str) -> tuple[str, Any]:
        """The key as this config spells it, and its value or transformers' default."""
        names = (*self.family.names.get(key, ()), key)
        for name in names:
            if name in self.values:
                targets = self.used.setdefault(name, [])
                if self.target and self.target not in targets:
                    targets.append(self.target)
                return name, self.values[name]
        default = self.family.defaults.get(key, _COMMON.get(key, _ABSENT))
        if default is _ABSENT:
            raise InputError(f"{self.where}: key '{names[0]}' is missing.")
        self.defaulted[names[0]] = default
        return names[0], default

    def refuse(self, name: str, need: str, value: Any) -> InputError:
        shown = repr(value)
        return InputError(f"{self.where}: key '{name}' must be {need}, not {shown[:60]}{'...' if len(shown) > 60 else ''}.")

    def integer(self, key: str, low: int = 1) -> int:
        name, value = self.look(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**40:
            raise self.refuse(name, "a positive integer" if low == 1 else f"an integer of at least {low}", value)
        return value

    def optional(self, key: str, low: int = 1) -> int | None:
        return None if self.look(key)[1] is None else self.integer(key, low)

    def flag(self, key: str) -> bool:
        name, value = self.look(key)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(name, "true or false", value)
        return bool(value)

    def number(self, key: str, low: float = 0.0, high: float = 1.0) -> float:
        name, value = self.look(key)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.refuse(name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def word(self, key: str, valid: Mapping[str, str]) -> str:
        name, value = self.look(key)
        if not isinstance(value, str) or value not in valid:
            raise InputError(f"{self.where}: key '{name}' has the unsupported value {value!r:.60}; {nearest(str(value), list(valid))}")
        return valid[value]

    def items(self, key: str, kind: type, length: int | None = None) -> list[Any] | None:
        name, value = self.look(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, kind) for v in value):
            raise self.refuse(name, f"a list of {'integers' if kind is int else 'strings'}", value)
        if length is not None and len(value) != length:
            raise InputError(f"{self.where}: key '{name}' has {len(value)} entries, but there are {length} layers.")
        return list(value)

    def has(self, key: str) -> bool:
        return any(name in self.values for name in (*self.family.names.get(key, ()), key))

    @property
    def depth(self) -> int:
        name, _ = self.look("num_hidden_layers")
        depth = self.integer("num_hidden_layers")
        if depth > _MAX_LAYERS:
            raise self.refuse(name, f"at most {_MAX_LAYERS}", depth)
        return depth

    def resolve(self, part: str, fields: Fields) -> dict[str, Any]:
        """The fields of one part of the schema, with the functions among them applied to this config."""
        done = {}
        for key, value in fields.items():
            self.target = f"{part}.{key}" if part else key
            done[key] = value(self) if callable(value) else value
        self.target = ""
        return done


Value = Callable[[Config], Any]


def integer(key: str) -> Value:
    return lambda c: c.integer(key)


def flag(key: str) -> Value:
    return lambda c: c.flag(key)


def number(key: str) -> Value:
    return lambda c: c.number(key)


def act(key: str = "hidden_act") -> Value:
    return lambda c: c.word(key, ACTIVATIONS)


def choose(key: str, yes: Any, no: Any) -> Value:
    return lambda c: yes if c.flag(key) else no


def given(key: str) -> Value:
    """Whether the key has a value at all."""
    return lambda c: c.look(key)[1] is not None


# ---------------------------------------------------------------- attention


def _groups(c: Config) -> int | None:
    heads, groups = c.integer("num_attention_heads"), c.optional("num_key_value_heads")
    if groups and heads % groups:
        name, _ = c.look("num_key_value_heads")
        raise InputError(f"{c.where}: key '{name}' is {groups}, which does not divide {c.look('num_attention_heads')[0]} {heads}.")
    return None if groups == heads else groups


def _head_dim(c: Config) -> int | None:
    hidden, heads, dim = c.integer("hidden_size"), c.integer("num_attention_heads"), c.optional("head_dim")
    return None if dim is not None and dim * heads == hidden else dim


def _falcon_groups(c: Config) -> int | None:
    """modeling_falcon.py, FalconAttention: num_kv_heads counts in the new decoder only."""
    heads, groups = c.integer("num_attention_heads"), c.optional("num_kv_heads")
    multi_query = c.flag("multi_query")
    if c.flag("new_decoder_architecture"):
        return groups if groups != heads else None
    return 1 if multi_query else None


def _rotary(c: Config) -> float:
    """partial_rotary_factor stands at the top level, or inside the rope dictionary since transformers 5."""
    for place in ("rope_parameters", "rope_scaling"):
        inner = c.values.get(place)
        if isinstance(inner, Mapping) and "partial_rotary_factor" in inner:
            value = inner["partial_rotary_factor"]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise c.refuse(f"{place}.partial_rotary_factor", "a number from 0 to 1", value)
            c.notes[place] = "only its partial_rotary_factor counts: attention.rotary_fraction"
            return float(value)
    return c.number("partial_rotary_factor")


def _rotary_dim(c: Config) -> float:
    """configuration_minimax_m2.py: rotary_dim / head_dim."""
    dim, head = c.optional("rotary_dim"), c.optional("head_dim") or c.integer("hidden_size") // c.integer("num_attention_heads")
    if dim is not None and dim > head:
        raise c.refuse("rotary_dim", f"at most the head dimension {head}", dim)
    return c.number("partial_rotary_factor") if dim is None else dim / head


HEADS: Fields = {"num_attention_heads": integer("num_attention_heads"), "num_query_groups": _groups, "kv_channels": _head_dim}
SQUARE: Fields = {"kv_channels": None}  # the module code knows no head_dim
FUSED_MHA: Fields = SQUARE | {"num_query_groups": None, "fused_qkv": True}
BIASED: Fields = {"qkv_bias": flag("attention_bias"), "out_bias": flag("attention_bias")}
MLA: Fields = BIASED | {
    "kind": "mla", "num_query_groups": None, "kv_channels": None,
    "q_lora_rank": lambda c: c.optional("q_lora_rank"), "kv_lora_rank": integer("kv_lora_rank"),
    "qk_head_dim": integer("qk_nope_head_dim"), "qk_pos_emb_head_dim": integer("qk_rope_head_dim"), "v_head_dim": integer("v_head_dim"),
}

# ---------------------------------------------------------------- feed-forward networks

GATED: Fields = {"ffn_hidden_size": integer("intermediate_size"), "activation": act()}
PLAIN: Fields = GATED | {"gated": False}


def _four_wide(c: Config) -> int:
    return 4 * c.integer("hidden_size")


def _topk(count: str) -> Value:
    def read(c: Config) -> int:
        chosen, all_experts = c.integer("num_experts_per_tok"), c.integer(count)
        if chosen > all_experts:
            raise c.refuse(c.look("num_experts_per_tok")[0], f"at most {c.look(count)[0]} {all_experts}", chosen)
        return chosen

    return read


def experts(count: str, width: str, **more: Any) -> Fields:
    return {"num_moe_experts": integer(count), "moe_router_topk": _topk(count), "moe_ffn_hidden_size": integer(width),
            "activation": act(), "moe_router_pre_softmax": True} | more


def shared(count: str, width: str) -> Value:
    return lambda c: c.integer(count, 0) * c.integer(width) or None


def _expert_groups(c: Config) -> int | None:
    groups, all_experts = c.optional("n_group"), c.integer("n_routed_experts")
    if groups and all_experts % groups:
        raise InputError(f"{c.where}: key 'n_group' is {groups}, which does not divide the {all_experts} routed experts.")
    return groups if groups and groups > 1 else None


def _group_topk(c: Config) -> int | None:
    topk = c.optional("topk_group")
    return topk if _expert_groups(c) else None


def _v2_limited(c: Config) -> bool:
    return c.word("topk_method", {"greedy": "", "group_limited_greedy": "yes"}) == "yes"


# modeling_deepseek_v3.py and the modules generated from it: sigmoid scores, a selection bias that is a buffer, groups
DEEPSEEK_MOE: Fields = experts(
    "n_routed_experts", "moe_intermediate_size", moe_router_pre_softmax=False, moe_router_score_function="sigmoid",
    moe_router_enable_expert_bias="buffer", norm_topk_prob=flag("norm_topk_prob"), moe_router_num_groups=_expert_groups,
    moe_router_group_topk=_group_topk, moe_shared_expert_intermediate_size=shared("n_shared_experts", "moe_intermediate_size"))
QWEN_MOE: Fields = experts("num_experts", "moe_intermediate_size", norm_topk_prob=flag("norm_topk_prob"))
QWEN_SHARED: Fields = QWEN_MOE | {
    "moe_shared_expert_intermediate_size": integer("shared_expert_intermediate_size"), "moe_shared_expert_gate": True}

# ---------------------------------------------------------------- the kinds of layers

Mixers = Callable[[Config], list[LayerKind]]
Ffns = Callable[[Config], list[str]]


def full(c: Config) -> list[LayerKind]:
    return [LayerKind()] * c.depth


def windowed(c: Config) -> list[LayerKind]:
    """One sliding window for every layer."""
    return [LayerKind(window=c.optional("sliding_window"))] * c.depth


def switched(c: Config) -> list[LayerKind]:
    """modeling_qwen3_moe.py: use_sliding_window turns the window on for every layer."""
    window = c.optional("sliding_window")
    return [LayerKind(window=window if c.flag("use_sliding_window") else None)] * c.depth


def _typed(c: Config, types: list[str], width_key: str = "sliding_window", rope: list[int] | None = None) -> list[LayerKind]:
    """LayerKinds of a list of transformers' layer_types."""
    width = c.optional(width_key, 0) or None
    made = []
    for i, kind in enumerate(types):
        turned = True if rope is None else bool(rope[i])
        if kind in ("full_attention", "attention"):
            made.append(LayerKind(rope=turned))
        elif kind == "sliding_attention" and width_key == "sliding_window":
            made.append(LayerKind(window=width, rope=turned))
        elif kind == "chunked_attention" and width_key == "attention_chunk_size":
            made.append(LayerKind(window=width, chunked=width is not None, rope=turned))
        else:
            raise InputError(f"{c.where}: key 'layer_types' names '{kind}', which this model_type does not have.")
    return made


def qwen_windows(first: bool) -> Mixers:
    """configuration_qwen2.py: the window starts at layer max_window_layers (Qwen2-MoE: alternates before it)."""

    def kinds(c: Config) -> list[LayerKind]:
        on, last = c.flag("use_sliding_window"), c.integer("max_window_layers", 0)
        types = c.items("layer_types", str, c.depth) or [
            "sliding_attention" if on and (i < last and i % 2 == 0 if first else i >= last) else "full_attention" for i in range(c.depth)]
        made = _typed(c, types)
        return made if on else [LayerKind()] * c.depth

    return kinds


def dots_windows(c: Config) -> list[LayerKind]:
    """configuration_dots1.py: as Qwen2, without the switch."""
    last = c.integer("max_window_layers", 0)
    types = c.items("layer_types", str, c.depth) or ["sliding_attention" if i >= last else "full_attention" for i in range(c.depth)]
    return _typed(c, types)


def alternating(period: str | int) -> Mixers:
    """Every `period`-th layer attends to everything, the others to a window (Gemma 2 and 3, gpt-oss)."""

    def kinds(c: Config) -> list[LayerKind]:
        every = period if isinstance(period, int) else c.integer(period)
        types = c.items("layer_types", str, c.depth) or ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(c.depth)]
        return _typed(c, types)

    return kinds


def _rope_layers(c: Config) -> list[int]:
    interval = c.integer("no_rope_layer_interval")
    return c.items("no_rope_layers", int, c.depth) or [int((i + 1) % interval != 0) for i in range(c.depth)]


def llama4_mixers(c: Config) -> list[LayerKind]:
    """configuration_llama4.py: chunked attention where there is RoPE, all of the sequence where there is none."""
    rope = _rope_layers(c)
    types = c.items("layer_types", str, c.depth) or ["chunked_attention" if r else "full_attention" for r in rope]
    return _typed(c, types, "attention_chunk_size", rope)


def smollm3_mixers(c: Config) -> list[LayerKind]:
    """configuration_smollm3.py: the layers without RoPE are the ones that may have a window."""
    rope, on = _rope_layers(c), c.flag("use_sliding_window")
    types = c.items("layer_types", str, c.depth) or ["full_attention" if r or not on else "sliding_attention" for r in rope]
    return [k if on else k.model_copy(update={"window": None}) for k in _typed(c, types, rope=rope)]


def qwen3_next_mixers(c: Config) -> list[LayerKind]:
    """configuration_qwen3_next.py: every full_attention_interval-th layer is attention, the others gated delta nets."""
    every = c.integer("full_attention_interval")
    types = c.items("layer_types", str, c.depth) or ["linear_attention" if (i + 1) % every else "full_attention" for i in range(c.depth)]
    wrong = [t for t in types if t not in ("linear_attention", "full_attention")]
    if wrong:
        raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]}', which this model_type does not have.")
    return [LayerKind(mixer="linear_attention" if t == "linear_attention" else "attention") for t in types]


def dense(c: Config) -> list[str]:
    return ["mlp"] * c.depth


def sparse(c: Config) -> list[str]:
    return ["moe"] * c.depth


def after_first(c: Config) -> list[str]:
    first = c.integer("first_k_dense_replace", 0)
    return ["moe" if i >= first else "mlp" for i in range(c.depth)]


def stepped(c: Config) -> list[str]:
    step, plain, count = c.integer("decoder_sparse_step"), c.items("mlp_only_layers", int) or [], c.integer("num_experts", 0)
    return ["moe" if count and i not in plain and (i + 1) % step == 0 else "mlp" for i in range(c.depth)]


def llama4_ffns(c: Config) -> list[str]:
    step, chosen = c.integer("interleave_moe_layer_step", 0), c.items("moe_layers", int)
    if chosen is None and step == 0:
        raise c.refuse("interleave_moe_layer_step", "a positive integer", step)
    layers = set(range(step - 1, c.depth, step)) if chosen is None else set(chosen)
    return ["moe" if i in layers else "mlp" for i in range(c.depth)]


def ernie_ffns(c: Config) -> list[str]:
    start, every, end = c.integer("moe_layer_start_index", 0), c.integer("moe_layer_interval"), c.integer("moe_layer_end_index", -1)
    last = c.depth - 1 if end == -1 else end
    return ["moe" if (i + 1) % every == 0 and start <= i <= last else "mlp" for i in range(c.depth)]


# ---------------------------------------------------------------- the model around the layers

TWO_NORMS = ("pre_attention", "pre_mlp")
FOUR_NORMS = ("pre_attention", "post_attention", "pre_mlp", "post_mlp")
LAYERNORM: Fields = {"normalization": "LayerNorm", "norm_bias": True}
GEMMA: Fields = {"norm_unit_offset": True, "embedding_scale": True}
BASE: Fields = {"hidden_size": integer("hidden_size"), "vocab_size": integer("vocab_size"),
                "tie_word_embeddings": flag("tie_word_embeddings"), "attention_dropout": number("attention_dropout")}


def _falcon_norms(c: Config) -> tuple[str, ...]:
    """modeling_falcon.py, FalconDecoderLayer: one norm for both branches unless the new decoder (or the key) says two."""
    parallel, new, count = c.flag("parallel_attn"), c.flag("new_decoder_architecture"), c.optional("num_ln_in_parallel_attn")
    if new and not parallel:
        raise InputError(f"{c.where}: key 'parallel_attn' must be true with new_decoder_architecture.")
    if not parallel or (2 if count is None and new else count) == 2:
        return TWO_NORMS
    return ("pre_attention",)


def _opt_width(c: Config) -> int:
    """modeling_opt.py builds two more projections when the embedding is narrower than the model (OPT-350m)."""
    hidden, embedding = c.integer("hidden_size"), c.optional("word_embed_proj_dim")
    if embedding not in (None, hidden):
        raise InputError(f"{c.where}: key 'word_embed_proj_dim' must equal hidden_size {hidden}; projected embeddings are not supported.")
    return hidden


@dataclass(frozen=True)
class Family:
    """What the module code of one model_type makes of a config."""

    defaults: Fields = field(default_factory=dict)  # transformers' defaults where they differ from _COMMON; a key with none is required
    attention: Fields = field(default_factory=dict)
    mlp: Fields = field(default_factory=lambda: GATED)
    moe: Fields | None = None
    linear: Fields | None = None
    mixers: Mixers = full
    ffns: Ffns = dense
    model: Fields = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # our key -> this family's spellings
    require: Mapping[str, tuple[Any, str]] = field(default_factory=dict)  # the only supported value of a key, and why
    unread: Mapping[str, str] = field(default_factory=dict)  # keys that the module code does not read
    heads_divide: bool = False  # transformers checks hidden_size % num_attention_heads even when head_dim is given
    modelling: str = ""


_COMMON: Fields = {
    "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
    "tie_word_embeddings": False, "sliding_window": None, "layer_types": None, "partial_rotary_factor": 1.0,
}
_QWEN_WINDOW: Fields = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_MLA_DEFAULTS: Fields = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
_MLA_UNREAD = {"num_key_value_heads": "latent attention has a key and a value for every query head", "head_dim": "set by qk_rope_head_dim",
               "qk_head_dim": "the sum of the two given", "scoring_func": "fixed by the module code",
               "moe_layer_freq": "not read by transformers"}
_FIXED_ROUTER = {"scoring_func": "fixed by the module code", "topk_method": "fixed by the module code", "use_routing_bias": "always built",
                 "moe_layer_freq": "not read by transformers"}

_DEEPSEEK_V3 = Family(
    _MLA_DEFAULTS | {"n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_group": 8,
                     "topk_group": 4, "first_k_dense_replace": 3, "norm_topk_prob": True},
    attention=MLA, moe=DEEPSEEK_MOE, ffns=after_first, unread=_MLA_UNREAD | _FIXED_ROUTER, names={"n_routed_experts": ("num_local_experts",)},
    modelling="deepseek_v3")

FAMILIES: dict[str, Family] = {
    "llama": Family(attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}, heads_divide=True),
    "mistral": Family({"num_key_value_heads": 8, "sliding_window": 4096}, mixers=windowed),
    "mixtral": Family({"num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 8},
                      moe=experts("num_local_experts", "intermediate_size"), mixers=windowed, ffns=sparse,
                      names={"num_local_experts": ("num_experts",)}),
    "qwen2": Family(_QWEN_WINDOW | {"num_key_value_heads": 32}, attention={"qkv_bias": True}, mixers=qwen_windows(first=False)),
    "qwen2_moe": Family(_QWEN_WINDOW | {"num_key_value_heads": 16, "decoder_sparse_step": 1, "moe_intermediate_size": 1408,
                                        "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
                                        "norm_topk_prob": False, "mlp_only_layers": None, "qkv_bias": True},
                        attention={"qkv_bias": flag("qkv_bias")}, moe=QWEN_SHARED, mixers=qwen_windows(first=True), ffns=stepped),
    "qwen3": Family(_QWEN_WINDOW | {"num_key_value_heads": 32, "head_dim": 128}, attention=BIASED | {"qk_norm": "head"},
                    mixers=qwen_windows(first=False)),
    "qwen3_moe": Family(_QWEN_WINDOW | {"num_key_value_heads": 4, "decoder_sparse_step": 1, "moe_intermediate_size": 768,
                                        "num_experts_per_tok": 8, "num_experts": 128, "norm_topk_prob": False, "mlp_only_layers": None},
                        attention=BIASED | {"qk_norm": "head"}, moe=QWEN_MOE, mixers=switched, ffns=stepped,
                        names={"num_experts": ("num_local_experts",)}, unread={"max_window_layers": "the window is for all layers or none"}),
    "qwen3_next": Family(
        {"num_key_value_heads": 2, "head_dim": 256, "decoder_sparse_step": 1, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10, "num_experts": 512, "norm_topk_prob": True,
         "mlp_only_layers": None, "full_attention_interval": 4, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
         "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32},
        attention=BIASED | {"qk_norm": "head", "output_gate": True, "rotary_fraction": _rotary}, moe=QWEN_SHARED,
        linear={key: integer(key) for key in ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                                              "linear_value_head_dim", "linear_conv_kernel_dim")},
        mixers=qwen3_next_mixers, ffns=stepped, model={"norm_unit_offset": True}),
    "deepseek_v2": Family(
        _MLA_DEFAULTS | {"n_group": None, "topk_group": None, "topk_method": "greedy", "n_routed_experts": 64, "n_shared_experts": 2,
                         "moe_intermediate_size": 1407, "first_k_dense_replace": 0},
        attention=MLA, moe=DEEPSEEK_MOE | {
            "moe_router_score_function": "softmax", "moe_router_pre_softmax": True, "moe_router_enable_expert_bias": "none",
            "norm_topk_prob": False, "moe_router_num_groups": lambda c: _expert_groups(c) if _v2_limited(c) else None,
            "moe_router_group_topk": lambda c: _group_topk(c) if _v2_limited(c) else None},
        ffns=after_first, require={"mlp_bias": (False, "biases in the shared experts are not supported")}, heads_divide=True,
        unread=_MLA_UNREAD | {"norm_topk_prob": "not read by DeepseekV2TopkRouter"}, names={"n_routed_experts": ("num_experts",)}),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt2": Family(
        {"n_inner": None, "hidden_act": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attention_dropout": 0.1,
         "tie_word_embeddings": True, "max_position_embeddings": 1024},
        attention=FUSED_MHA | {"qkv_bias": True, "out_bias": True},
        mlp=PLAIN | {"bias": True, "ffn_hidden_size": lambda c: c.optional("n_inner") or _four_wide(c)},
        model=LAYERNORM | {"position_embedding": "learned", "position_embedding_rows": integer("max_position_embeddings"),
                           "hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")},
        names={"hidden_size": ("n_embd",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",),
               "max_position_embeddings": ("n_positions",), "hidden_act": ("activation_function",), "attention_dropout": ("attn_pdrop",)}),
    "gpt_oss": Family(
        {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4,
         "attention_bias": True},
        attention=BIASED | {"sinks": True}, mixers=alternating(2), ffns=sparse,
        moe=experts("num_local_experts", "intermediate_size", activation="swiglu_clamped", moe_router_pre_softmax=False, expert_bias=True,
                    router_bias=True),
        names={"num_local_experts": ("num_experts",), "num_experts_per_tok": ("experts_per_token",)},
        unread={"hidden_act": "the module code fixes a clamped SwiGLU", "max_window_layers": "not read by transformers"}),
    "gemma": Family({"num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
                    attention=BIASED, model=GEMMA, unread={"hidden_activation": "GemmaMLP reads hidden_act"},
                    # configuration_gemma.py turns the legacy 'gelu' into the tanh form
                    mlp=GATED | {"activation": lambda c: c.word("hidden_act", ACTIVATIONS | {"gelu": "gelu_tanh"})}),
    "gemma2": Family(
        {"num_key_value_heads": 4, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "sliding_window": 4096,
         "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        attention=BIASED | {"logit_softcap": given("attn_logit_softcapping")}, mixers=alternating(2), heads_divide=True,
        model=GEMMA | {"norms": FOUR_NORMS, "logit_softcap": given("final_logit_softcapping")}, names={"hidden_act": ("hidden_activation",)}),
    "gemma3_text": Family(
        {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "hidden_act": "gelu_pytorch_tanh",
         "tie_word_embeddings": True, "sliding_window": 4096, "sliding_window_pattern": 6, "attn_logit_softcapping": None,
         "final_logit_softcapping": None},
        attention=BIASED | {"qk_norm": "head", "logit_softcap": given("attn_logit_softcapping")}, mixers=alternating("sliding_window_pattern"),
        model=GEMMA | {"norms": FOUR_NORMS, "logit_softcap": given("final_logit_softcapping")}, names={"hidden_act": ("hidden_activation",)},
        heads_divide=True, unread={"_sliding_window_pattern": "transformers reads sliding_window_pattern and layer_types"}),
    "olmo": Family(attention=BIASED, model={"normalization": "LayerNorm", "norm_weight": False}),
    "olmo2": Family(attention=BIASED | {"qk_norm": "full"}, model={"norms": ("post_attention", "post_mlp")}),
    "olmoe": Family({"num_experts_per_tok": 8, "num_experts": 64, "norm_topk_prob": False}, attention=BIASED | {"qk_norm": "full"},
                    moe=experts("num_experts", "intermediate_size", norm_topk_prob=flag("norm_topk_prob")), ffns=sparse,
                    names={"num_experts": ("num_local_experts",)}),
    "phi3": Family({"resid_pdrop": 0.0}, attention={"fused_qkv": True, "rotary_fraction": _rotary}, mlp=GATED | {"fused_gate_up": True},
                   mixers=windowed, model={"hidden_dropout": number("resid_pdrop"), "embedding_dropout": 0.0},
                   unread={"embd_pdrop": "not read by Phi3Model", "attention_bias": "Phi3Attention has no bias"}),
    "phimoe": Family({"num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 16, "lm_head_bias": False}, attention=BIASED,
                     moe=experts("num_local_experts", "intermediate_size", norm_topk_prob=False), mixers=windowed, ffns=sparse,
                     model=LAYERNORM | {"lm_head_bias": flag("lm_head_bias")}, names={"num_local_experts": ("num_experts",)},
                     unread={"hidden_dropout": "not read by PhimoeDecoderLayer"}),
    "phi": Family({"hidden_act": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "partial_rotary_factor": 0.5, "qk_layernorm": False},
                  attention={"qkv_bias": True, "out_bias": True, "rotary_fraction": _rotary}, mlp=PLAIN | {"bias": True},
                  model=LAYERNORM | {"parallel_block": True, "norms": ("pre_attention",), "lm_head_bias": True,
                                     "hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")},
                  require={"qk_layernorm": (False, "query and key norms with biases are not supported")}),
    "dbrx": Family(
        {"num_key_value_heads": 1, "ffn_config.ffn_hidden_size": 3584, "ffn_config.moe_num_experts": 4, "num_experts_per_tok": 1,
         "ffn_config.moe_normalize_expert_weights": 1.0, "resid_pdrop": 0.0},
        attention=SQUARE | {"fused_qkv": True}, ffns=sparse,
        moe=experts("ffn_config.moe_num_experts", "ffn_config.ffn_hidden_size",
                    norm_topk_prob=given("ffn_config.moe_normalize_expert_weights")),
        model={"normalization": "LayerNorm", "hidden_dropout": number("resid_pdrop"), "embedding_dropout": 0.0},
        names={"hidden_size": ("d_model",), "num_hidden_layers": ("n_layers",), "num_attention_heads": ("n_heads",),
               "num_key_value_heads": ("attn_config.kv_n_heads",), "attention_dropout": ("attn_config.attn_pdrop",),
               "num_experts_per_tok": ("ffn_config.moe_top_k",), "hidden_act": ("ffn_config.ffn_act_fn.name",)},
        require={"tie_word_embeddings": (False, "transformers refuses it for DBRX")},
        unread={"emb_pdrop": "not read by DbrxModel", "ffn_config.hidden_size": "set from d_model",
                "ffn_config.moe_uniform_expert_assignment": "not read by transformers"}),
    "glm4_moe": Family(
        {"num_key_value_heads": 8, "moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128,
         "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "use_qk_norm": False,
         "partial_rotary_factor": 0.5},
        attention={"qkv_bias": flag("attention_bias"), "qk_norm": choose("use_qk_norm", "head", "none"), "rotary_fraction": _rotary},
        moe=DEEPSEEK_MOE, ffns=after_first, names={"n_routed_experts": ("num_local_experts",)}, unread=_FIXED_ROUTER),
    "glm4": Family({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5},
                   attention={"qkv_bias": flag("attention_bias"), "rotary_fraction": _rotary}, mlp=GATED | {"fused_gate_up": True},
                   model={"norms": FOUR_NORMS}),
    "starcoder2": Family(
        {"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh", "use_bias": True, "residual_dropout": 0.0, "embedding_dropout": 0.0,
         "tie_word_embeddings": True},
        attention={"qkv_bias": flag("use_bias"), "out_bias": flag("use_bias")}, mlp=PLAIN | {"bias": flag("use_bias")}, mixers=windowed,
        model=LAYERNORM | {"hidden_dropout": number("residual_dropout"), "embedding_dropout": number("embedding_dropout")},
        unread={"activation_function": "Starcoder2MLP reads hidden_act", "mlp_type": "fixed by the module code",
                "norm_type": "fixed by the module code"}),
    "falcon": Family(
        {"num_kv_heads": None, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, "alibi": False,
         "num_ln_in_parallel_attn": None, "ffn_hidden_size": None, "hidden_act": "gelu", "hidden_dropout": 0.0, "tie_word_embeddings": True},
        attention=FUSED_MHA | {"num_query_groups": _falcon_groups, "qkv_bias": flag("bias"), "out_bias": flag("bias")},
        mlp=PLAIN | {"bias": flag("bias"), "ffn_hidden_size": lambda c: c.optional("ffn_hidden_size") or _four_wide(c)},
        model=LAYERNORM | {"norms": _falcon_norms, "parallel_block": flag("parallel_attn"), "hidden_dropout": number("hidden_dropout"),
                           "embedding_dropout": 0.0, "position_embedding": choose("alibi", "alibi", "rope")},
        names={"hidden_size": ("n_embed",), "hidden_act": ("activation",)},
        unread={"apply_residual_connection_post_layernorm": "not read by modeling_falcon.py"}),
    "gpt_neox": Family(
        {"hidden_act": "gelu", "hidden_dropout": 0.0, "use_parallel_residual": True, "attention_bias": True, "partial_rotary_factor": 0.25},
        attention=BIASED | FUSED_MHA | {"rotary_fraction": _rotary}, mlp=PLAIN | {"bias": True},
        model=LAYERNORM | {"parallel_block": flag("use_parallel_residual"), "hidden_dropout": number("hidden_dropout")},
        names={"partial_rotary_factor": ("rotary_pct",)}, heads_divide=True),
    "opt": Family(
        {"dropout": 0.1, "hidden_act": "relu", "max_position_embeddings": 2048, "do_layer_norm_before": True, "layerdrop": 0.0,
         "_remove_final_layer_norm": False, "enable_bias": True, "layer_norm_elementwise_affine": True, "word_embed_proj_dim": None,
         "tie_word_embeddings": True},
        attention=SQUARE | {"num_query_groups": None, "qkv_bias": flag("enable_bias"), "out_bias": flag("enable_bias")},
        mlp=PLAIN | {"bias": flag("enable_bias")},
        model={"normalization": "LayerNorm", "norm_bias": flag("layer_norm_elementwise_affine"),
               "norm_weight": flag("layer_norm_elementwise_affine"), "hidden_size": _opt_width, "position_embedding": "learned",
               # modeling_opt.py, OPTLearnedPositionalEmbedding: positions start at 2
               "position_embedding_rows": lambda c: c.integer("max_position_embeddings") + 2,
               "final_norm": choose("_remove_final_layer_norm", False, True), "hidden_dropout": number("dropout"), "embedding_dropout": 0.0},
        names={"intermediate_size": ("ffn_dim",), "hidden_act": ("activation_function",)},
        require={"do_layer_norm_before": (True, "norms after the residual (OPT-350m) are not supported"),
                 "layerdrop": (0.0, "layers skipped at random are not supported")}),
    "bloom": Family(
        {"hidden_dropout": 0.0, "tie_word_embeddings": True, "apply_residual_connection_post_layernorm": False},
        attention=FUSED_MHA | {"qkv_bias": True, "out_bias": True},
        mlp={"ffn_hidden_size": _four_wide, "gated": False, "activation": "gelu_tanh", "bias": True},
        model=LAYERNORM | {"position_embedding": "alibi", "embedding_norm": True, "hidden_dropout": number("hidden_dropout"),
                           "embedding_dropout": 0.0},
        names={"hidden_size": ("n_embed",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",)},
        unread={"apply_residual_connection_post_layernorm": "moves the residual, adds no work"}),
    "mpt": Family(
        {"attn_config.attn_pdrop": 0.0, "tie_word_embeddings": True},
        attention=FUSED_MHA, mlp={"ffn_hidden_size": _four_wide, "gated": False, "activation": "gelu"},
        model={"normalization": "LayerNorm", "position_embedding": "alibi", "hidden_dropout": number("attn_config.attn_pdrop"),
               "embedding_dropout": 0.0},
        names={"hidden_size": ("d_model",), "num_hidden_layers": ("n_layers",), "num_attention_heads": ("n_heads",),
               "attention_dropout": ("attn_config.attn_pdrop",)},
        unread={key: "not read by modeling_mpt.py" for key in (
            "expansion_ratio", "resid_pdrop", "emb_pdrop", "learned_pos_emb", "no_bias", "embedding_fraction", "norm_type", "verbose",
            "attn_config.attn_type", "attn_config.attn_impl", "attn_config.qk_ln", "attn_config.attn_uses_sequence_id",
            "attn_config.alibi", "attn_config")}),
    "cohere": Family({"tie_word_embeddings": True, "use_qk_norm": False},
                     attention=BIASED | {"qk_norm": choose("use_qk_norm", "per_head", "none")},
                     model={"normalization": "LayerNorm", "parallel_block": True, "norms": ("pre_attention",)}),
    "stablelm": Family(
        {"num_key_value_heads": 32, "use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False, "hidden_dropout": 0.0,
         "partial_rotary_factor": 0.25},
        attention=SQUARE | {"qkv_bias": flag("use_qkv_bias"), "qk_norm": choose("qk_layernorm", "per_head", "none"),
                            "rotary_fraction": _rotary},
        model=LAYERNORM | {"parallel_block": flag("use_parallel_residual"),
                           "norms": choose("use_parallel_residual", ("pre_attention",), TWO_NORMS),
                           "hidden_dropout": number("hidden_dropout"), "embedding_dropout": 0.0},
        names={"partial_rotary_factor": ("rope_pct",)}),
    "seed_oss": Family(
        {"num_key_value_heads": 8, "head_dim": 128, "attention_bias": True, "attention_out_bias": False, "attention_dropout": 0.1,
         "residual_dropout": 0.1},
        attention={"qkv_bias": flag("attention_bias"), "out_bias": flag("attention_out_bias")}, mlp=GATED | {"bias": flag("mlp_bias")},
        model={"hidden_dropout": number("residual_dropout"), "embedding_dropout": 0.0}),
    "minimax_m2": Family(
        {"num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 8, "num_local_experts": 256, "rotary_dim": None},
        attention={"qk_norm": "full", "rotary_fraction": _rotary_dim}, ffns=sparse, names={"num_local_experts": ("num_experts",)},
        moe=experts("num_local_experts", "intermediate_size", moe_router_pre_softmax=False, moe_router_score_function="sigmoid",
                    moe_router_enable_expert_bias="buffer"),
        unread=_FIXED_ROUTER | {"use_qk_norm": "always built", "qk_norm_type": "fixed by the module code",
                                "attn_type_list": "not read by transformers",
                                "shared_intermediate_size": "MiniMax-M2 has no shared expert", "layernorm_full_attention_beta": "not read",
                                "layernorm_linear_attention_beta": "not read", "layernorm_mlp_beta": "not read"}),
    "llama4_text": Family(
        {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1, "num_local_experts": 16,
         "moe_layers": None, "interleave_moe_layer_step": 1, "use_qk_norm": True, "no_rope_layers": None, "no_rope_layer_interval": 4,
         "attention_chunk_size": 8192},
        attention=BIASED | {"qk_norm": choose("use_qk_norm", "l2", "none"), "qk_norm_position": choose("use_qk_norm", "after_rope", "before_rope")},
        mlp=GATED | {"ffn_hidden_size": integer("intermediate_size_mlp")}, mixers=llama4_mixers, ffns=llama4_ffns,
        moe=experts("num_local_experts", "intermediate_size", moe_router_pre_softmax=False, moe_router_score_function="sigmoid",
                    norm_topk_prob=False, router_weight_before_experts=True, moe_shared_expert_intermediate_size=integer("intermediate_size"))),
    "dots1": Family(
        {"num_key_value_heads": 32, "moe_intermediate_size": 1408, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
         "norm_topk_prob": False, "max_window_layers": 62, "sliding_window": 4096},
        attention=BIASED | {"qk_norm": "head"}, moe=DEEPSEEK_MOE, mixers=dots_windows, ffns=after_first,
        names={"n_routed_experts": ("num_local_experts",)}, unread=_FIXED_ROUTER | {"mlp_bias": "not read by Dots1MLP"}),
    "ernie4_5_moe": Family(
        {"num_key_value_heads": 4, "tie_word_embeddings": True, "use_bias": False, "moe_intermediate_size": 1536, "num_experts_per_tok": 6,
         "num_experts": 64, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
        moe=experts("num_experts", "moe_intermediate_size", moe_router_enable_expert_bias="parameter",
                    moe_shared_expert_intermediate_size=shared("moe_num_shared_experts", "moe_intermediate_size")),
        ffns=ernie_ffns, names={"num_experts": ("moe_num_experts",), "num_experts_per_tok": ("moe_k",)},
        require={"use_bias": (False, "biases in the shared experts are not supported")},
        unread={"moe_capacity": "no token is dropped", "moe_gate": "fixed by the module code", "moe_use_aux_free": "always built",
                "num_key_value_groups": "not read", "hidden_dropout_prob": "not read by transformers"}),
    "smollm3": Family({"num_key_value_heads": 4, "use_sliding_window": False, "no_rope_layers": None, "no_rope_layer_interval": 4,
                       "tie_word_embeddings": True},
                      attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}, mixers=smollm3_mixers,
                      unread={"max_window_layers": "not read by transformers"}),
    "granite": Family(attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}),
}

SUPPORTED: tuple[str, ...] = tuple(FAMILIES)

# multimodal wrappers whose text tower is one of the above, with its model_type when text_config omits it
TEXT_TOWERS = {"gemma3": "gemma3_text", "llama4": "llama4_text", "mistral3": "mistral"}

# ---------------------------------------------------------------- from config to architecture


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of attn_config and ffn_config (DBRX, MPT) with dotted names, other dictionaries as they are."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("attn_config", "ffn_config", "ffn_config.ffn_act_fn") and isinstance(value, Mapping):
            flat |= _flat({f"{key}.{inner}": v for inner, v in value.items()})
        else:
            flat[key] = value
    return flat


def _tag(kind: LayerKind) -> str:
    if kind.mixer == "linear_attention":
        return "linear"
    if kind.window:
        return "chunked" if kind.chunked else "local"
    return "full" if kind.rope else "nope"


def _layers(c: Config) -> dict[str, Any]:
    """Layer kinds named by what tells them apart, and their run-length pattern."""
    c.target = "layers"
    c.integer("hidden_size")
    pairs = list(zip(c.family.mixers(c), c.family.ffns(c), strict=True))
    c.target = ""
    tags = {_tag(mixer) for mixer, _ in pairs}
    ffns = {ffn for _, ffn in pairs}
    kinds: dict[str, LayerKind] = {}
    names = []
    for mixer, ffn in pairs:
        short = "moe" if ffn == "moe" else "dense"
        parts = ([_tag(mixer)] if len(tags) > 1 else []) + ([short] if len(ffns) > 1 or len(tags) == 1 else [])
        names.append("_".join(parts))
        kinds[names[-1]] = mixer.model_copy(update={"ffn": ffn})
    return {"layers": compress(names), "layer_kinds": kinds}


def _build(c: Config, name: str, model_type: str) -> Architecture:
    family = c.family
    for key, reason in _FORBIDDEN.items():
        if c.has(key) and c.flag(key):
            raise InputError(f"{c.where}: key '{key}' is true, but {reason}.")
    for key, (value, reason) in family.require.items():
        spelled, actual = c.look(key)
        if actual is not None and actual != value:
            raise InputError(f"{c.where}: key '{spelled}' is {actual!r:.40}, but {reason}.")
    model = c.resolve("", BASE | family.model)
    if model.get("embedding_dropout") == model.get("hidden_dropout"):
        model.pop("embedding_dropout", None)
    layers = _layers(c)
    used = {kind.ffn for kind in layers["layer_kinds"].values()}
    parts: dict[str, Any] = {"attention": Attention(**c.resolve("attention", HEADS | family.attention))}
    if "mlp" in used:
        parts["mlp"] = Mlp(**c.resolve("mlp", family.mlp))
    if "moe" in used and family.moe:
        parts["moe"] = Moe(**c.resolve("moe", family.moe))
    if family.linear:
        linear = LinearAttention(**c.resolve("linear_attention", family.linear))
        if linear.linear_num_value_heads % linear.linear_num_key_heads:
            raise InputError(f"{c.where}: key 'linear_num_key_heads' is {linear.linear_num_key_heads}, which does not divide the "
                             f"{linear.linear_num_value_heads} value heads.")
        if any(kind.mixer == "linear_attention" for kind in layers["layer_kinds"].values()):
            parts["linear_attention"] = linear
    attention = parts["attention"]
    needs_dim = attention.kv_channels is None and attention.kind == "gqa"
    if (needs_dim or family.heads_divide) and model["hidden_size"] % attention.num_attention_heads:
        spelled, _ = c.look("num_attention_heads")
        raise InputError(f"{c.where}: key '{spelled}' is {attention.num_attention_heads}, which does not divide hidden_size "
                         f"{model['hidden_size']}.")
    return Architecture(name=name, modelling=family.modelling or model_type, **layers, **model, **parts)


def _rows(c: Config, keys: Mapping[str, Any], prefix: str) -> list[Row]:
    """What became of every key of the config, then the defaults taken for keys it omits."""
    rows: list[Row] = []
    for key, value in keys.items():
        if key in c.used:
            row = ("mapped", ", ".join(c.used[key]) or "checked")
        elif key in c.notes:
            row = ("mapped", c.notes[key])
        elif key.rpartition(".")[2] == "model_type":
            row = ("mapped", "modelling")
        elif key in ("is_encoder_decoder", *_FORBIDDEN) or key.endswith(".is_encoder_decoder"):
            row = ("mapped", "checked")
        elif key in _MTP_COUNTS:
            row = ("refused", f"not built by transformers; train with mtp_num_layers={value}") if value else ("no cost effect", "none")
        elif key in _MTP_DETAILS:
            row = ("no cost effect", "transformers builds no multi-token prediction")
        elif key == "quantization_config":
            row = ("refused", "the weights are taken as trained; a strategy sets their precision")
        elif key in c.family.unread:
            row = ("no cost effect", c.family.unread[key])
        elif key == "intermediate_size":
            row = ("no cost effect", "no layer is dense")
        elif key in NO_EFFECT or key.rpartition(".")[2] in NO_EFFECT:
            row = ("no cost effect", NO_EFFECT.get(key) or NO_EFFECT[key.rpartition(".")[2]])
        elif key.endswith(("dropout", "pdrop")) and not value:
            row = ("no cost effect", "zero")
        elif key in c.family.defaults or any(key in names for names in c.family.names.values()):
            row = ("no cost effect", "no layer uses it")
        else:
            row = ("unknown", "not a key that this model_type is known to read")
        rows.append((prefix + key, *row))
    rows += [(prefix + key, "default", f"omitted; transformers takes {value}") for key, value in c.defaulted.items() if key not in keys]
    return rows


def _tower(config: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[Row]] | None:
    """The text tower of a multimodal config with its rows, or None when the config is a text model."""
    wrapper = config.get("model_type")
    text = config.get("text_config")
    if not isinstance(wrapper, str | None):
        return None
    if wrapper in FAMILIES or (wrapper not in TEXT_TOWERS and not isinstance(text, Mapping)):
        return None
    if not isinstance(text, Mapping):
        raise InputError(f"{where}: key 'text_config' of the multimodal model_type '{wrapper}' is missing or not an object.")
    inner = dict(text)
    inner.setdefault("model_type", TEXT_TOWERS.get(str(wrapper)))
    if "tie_word_embeddings" in config:
        inner.setdefault("tie_word_embeddings", config["tie_word_embeddings"])
    rows: list[Row] = []
    for key in config:
        if key == "text_config":
            rows.append((key, "mapped", f"only the text tower ({inner['model_type']}) of {wrapper} is imported"))
        elif key in ("model_type", "tie_word_embeddings"):
            rows.append((key, "mapped", "taken for the text tower where text_config omits it"))
        elif key.startswith(("vision", "audio", "mm_", "image", "projector", "multimodal", "spatial")) and key not in NO_EFFECT:
            rows.append((key, "refused", "not imported: only the text tower is"))
        elif key in NO_EFFECT:
            rows.append((key, "no cost effect", NO_EFFECT[key]))
        else:
            rows.append((key, "unknown", "not a key of a text tower"))
    return inner, rows


def read_config(config: Mapping[str, Any], name: str, where: str) -> tuple[Architecture, list[Row]]:
    """The architecture of a parsed config.json, and (key, fate, note) of every key in it.

    Fates: mapped, no cost effect, refused, unknown; default, for keys that the config omits. InputError names the file
    `where` and the key that cannot be read.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"{where}: a Hugging Face config is a JSON object, not a {type(config).__name__}.")
    rows: list[Row] = []
    prefix = ""
    tower = _tower(config, where)
    keys: Mapping[str, Any] = config
    if tower:
        config, rows = tower
        keys, prefix = keys["text_config"], "text_config."
    model_type = config.get("model_type")
    if model_type is None:
        raise InputError(f"{where}: key '{prefix}model_type' is missing; it says which of transformers' models this is.")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InputError(f"{where}: model_type {model_type!r:.60} is not supported; "
                         f"{nearest(str(model_type), sorted({*SUPPORTED, *TEXT_TOWERS}))}")
    c = Config(_flat(config), FAMILIES[model_type], where)
    try:
        architecture = _build(c, name, model_type)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        raise InputError(f"{where}: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}.") from None
    return architecture, rows + _rows(c, _flat(keys), prefix)
