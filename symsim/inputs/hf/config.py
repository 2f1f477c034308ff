"""A Hugging Face config as typed access: every key read is remembered, so that none is silently ignored."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from symsim.errors import InputError, nearest
from symsim.inputs.limits import LARGEST_SIZE, MOST_LAYERS

Row = tuple[str, str, str]


Fields = dict[str, Any]


_ABSENT = object()


ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu_python",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_fast",
    "gelu_new": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
}


NO_EFFECT: dict[str, str] = {
    key: why
    for why, keys in {
        "how a state space begins, or is run": "time_step_min time_step_max time_step_limit time_step_floor time_step_rank mamba_dt_min "
        "mamba_dt_max mamba_dt_limit mamba_dt_init_floor mamba_ssm_cache_dtype use_mamba_kernels",
        "names a token": "pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id unk_token_id decoder_start_token_id "
        "image_token_index image_token_id boi_token_index eoi_token_index boi_token_id eoi_token_id suppress_tokens "
        "begin_suppress_tokens forced_bos_token_id forced_eos_token_id prefix tokenizer_class word_embed_proj_bias",
        "sets the angles of rotary positions": "rope_theta rope_scaling rope_parameters rope_type rope_interleave rope_local_base_freq "
        "rotary_emb_base rope_ratio original_max_position_embeddings max_position_embeddings "
        "max_seq_len seq_length n_ctx n_positions "
        "max_sequence_length initial_context_length use_dynamic_ntk alibi_bias_max",
        "initial weights": "initializer_range init_std initializer_factor init_device init_config initializer_cutoff_factor mup_use_scaling",
        "small constant of a norm": "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps moe_norm_min",
        "scale, clamp or noise, elementwise": "routed_scaling_factor embedding_multiplier logits_scaling residual_multiplier attention_multiplier "
        "moe_routed_scaling_factor "
        "logit_scale query_pre_attn_scalar attn_scale floor_scale attn_temperature_tuning scale_attn_weights "
        "scale_attn_by_inverse_layer_idx softmax_scale attn_config.softmax_scale "
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
    }.items()
    for key in keys.split()
}


# transformers builds no multi-token-prediction modules, whatever these say
MTP_COUNTS = ("num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules")


MTP_DETAILS = ("use_mtp", "mtp_transformer_layers", "mtp_loss_factor", "mtp_layer_types", "mtp_mlp_layer_types", "mtp_use_repeated_layer")


FORBIDDEN = {
    "is_encoder_decoder": "only decoder-only models are supported",
    "add_cross_attention": "cross-attention is not supported",
    "use_bidirectional_attention": "only causal attention is supported",
    "prefix_lm": "only causal attention is supported",
    "attn_config.prefix_lm": "only causal attention is supported",
}


class Spelling(Protocol):
    """How a family's configs are read: other names of our keys, and defaults where they differ from COMMON."""

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def defaults(self) -> Fields: ...

    @property
    def unread(self) -> Mapping[str, str]: ...

    @property
    def foreign(self) -> Collection[str]: ...


class Config:
    """Typed look-ups in one config.json, remembering which field of the architecture every key went to."""

    def __init__(self, values: Mapping[str, Any], family: Spelling, where: str) -> None:
        self.values, self.spelling, self.where = values, family, where
        self.target = ""
        self.used: dict[str, list[str]] = {}
        self.defaulted: dict[str, Any] = {}
        self.notes: dict[str, str] = {}

    def look(self, key: str) -> tuple[str, Any]:
        """The key as this config spells it, and its value or transformers' default."""
        names = (*self.spelling.names.get(key, ()), key)
        read = [name for name in names if name not in self.spelling.unread]
        said = {name: self.values[name] for name in read if name in self.values}
        if any(value != other for value in said.values() for other in said.values()):
            shown = " and ".join(f"'{name}' is {json.dumps(value):.60}" for name, value in said.items())
            what = "size" if all(isinstance(value, int) and not isinstance(value, bool) for value in said.values()) else "setting"
            raise InputError(f"{self.where}: key {shown}, which are two names of one {what}; give one of them.")
        for name in read if key in self.spelling.foreign else dict.fromkeys((*read, key)):
            if name in self.values:
                for same in said or (name,):
                    targets = self.used.setdefault(same, [])
                    if self.target and self.target not in targets:
                        targets.append(self.target)
                return name, self.values[name]
        default = self.spelling.defaults.get(key, COMMON.get(key, _ABSENT))
        if default is _ABSENT:
            raise InputError(f"{self.where}: key '{names[0]}' is missing.")
        self.defaulted[names[0]] = default
        return names[0], default

    def refuse(self, name: str, need: str, value: Any) -> InputError:
        shown = repr(value)
        return InputError(f"{self.where}: key '{name}' must be {need}, not {shown[:60]}{'...' if len(shown) > 60 else ''}.")

    def integer(self, key: str, low: int = 1) -> int:
        name, value = self.look(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= LARGEST_SIZE:
            most = f" and at most {LARGEST_SIZE}" if isinstance(value, int) and value > LARGEST_SIZE else ""
            raise self.refuse(name, ("a positive integer" if low == 1 else f"an integer of at least {low}") + most, value)
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

    def follows(self, key: str, value: Any, of: str) -> None:
        """Refuse a key that transformers writes beside those it follows from, and takes from a file in their place, where it says otherwise."""
        if self.values.get(key, value) != value:
            raise self.refuse(key, f"{of}, which is {value}", self.values[key])
        if key in self.values:
            self.notes[key] = f"checked: {of}"

    def has(self, key: str) -> bool:
        return any(name in self.values for name in (*self.spelling.names.get(key, ()), key))

    @property
    def depth(self) -> int:
        name, _ = self.look("num_hidden_layers")
        depth = self.integer("num_hidden_layers")
        if depth > MOST_LAYERS:
            raise self.refuse(name, f"at most {MOST_LAYERS}", depth)
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


COMMON: Fields = {
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "layer_types": None,
    "mlp_layer_types": None,
    "partial_rotary_factor": 1.0,
}
