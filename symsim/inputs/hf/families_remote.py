"""Decoders whose code comes with their weights (trust_remote_code), a table each; a config says by itself what transformers has no defaults for.

Source: configuration_*.py and modeling_*.py beside the weights on the hub: internlm/internlm-7b and internlm2-7b, baichuan-inc/Baichuan2-7B-Base and
-13B-Base, zai-org/chatglm3-6b and glm-4-9b, Qwen/Qwen-7B, deepseek-ai/deepseek-moe-16b-base, inclusionAI/Ling-lite and Ling-mini-2.0,
openbmb/MiniCPM-2B-sft-bf16, MiniMaxAI/MiniMax-Text-01 and -M1-80k, OrionStarAI/Orion-14B-Base, xverse/XVERSE-7B, Skywork/Skywork-13B-base,
BAAI/AquilaChat2-7B.
"""

from __future__ import annotations

from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, act, choose, flag, integer
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import BIASED, GATED, LAYERNORM, experts, head_dim, shared, sparse
from symsim.inputs.hf.rotary import rotary_dim, rotary_fraction

# fmt: off


def _groups_of_queries(c: Config) -> int | None:
    """modeling_chatglm.py: multi_query_group_num counts where multi_query_attention says so."""
    return c.integer("num_key_value_heads") if c.flag("multi_query_attention") else None


def _queries_biased(c: Config) -> bool:
    """modeling_chatglm.py, SelfAttention: by either key."""
    return c.flag("add_bias_linear") or c.flag("add_qkv_bias")


def _half_width(c: Config) -> int:
    """modeling_qwen.py, QWenMLP: intermediate_size is of both halves of a gated network."""
    return c.integer("intermediate_size") // 2


def _positions(c: Config) -> str:
    """configuration_baichuan.py: the 13B, which knows no max_position_embeddings, adds a slope to scores."""
    return "rope" if c.look("max_position_embeddings")[1] is not None else "alibi"


def _second(c: Config) -> bool:
    """Ling 2.0 has code of its own, under either model_type."""
    return any("V2" in str(name) for name in c.look("architectures")[1] or ()) or c.values.get("model_type") == "bailing_moe_v2"


def _expert_groups(c: Config) -> int | None:
    groups = c.optional("n_group") if _second(c) else None
    return groups if groups and groups > 1 else None


def _after_some(c: Config) -> list[str]:
    """modeling_deepseek.py: every moe_layer_freq-th layer from first_k_dense_replace on."""
    count, first, every = c.optional("n_routed_experts"), c.integer("first_k_dense_replace", 0), c.integer("moe_layer_freq")
    return ["moe" if count and i >= first and i % every == 0 else "mlp" for i in range(c.depth)]


def _by_numbers(c: Config) -> list[LayerKind]:
    """modeling_minimax_text_01.py: of attn_type_list 0 is lightning attention, 1 softmax attention."""
    types = c.items("attn_type_list", int, c.depth)
    wrong = next((one for one in types or () if one not in (0, 1)), None)
    if types is None or wrong is not None:
        raise c.refuse("attn_type_list", "a list of 0 and 1", wrong)
    return [LayerKind(mixer="attention" if one else "lightning_attention") for one in types]


def _from_first(c: Config) -> list[str]:
    first = c.integer("first_k_dense_replace", 0)
    return ["moe" if i >= first else "mlp" for i in range(c.depth)]


_JOINED = {"fused_qkv": True, "kv_channels": None}
_ELEMENTWISE = "scale, clamp or noise, elementwise"
_SCALES = dict.fromkeys(("scale_emb", "scale_depth", "dim_model_base"), _ELEMENTWISE)
_BAILING = Family(
    {"use_qkv_bias": False, "use_bias": True, "use_qk_norm": False, "n_group": None, "topk_group": None, "first_k_dense_replace": 0,
     "norm_topk_prob": False, "num_shared_experts": 0, "architectures": None, "partial_rotary_factor": 1.0},
    attention={"fused_qkv": True, "qkv_bias": flag("use_qkv_bias"), "kv_channels": head_dim, "qk_norm": choose("use_qk_norm", "head", "none"),
               "rotary_fraction": rotary_fraction},
    ffns=_from_first,
    moe=experts("num_experts", "moe_intermediate_size",
                moe_router_pre_softmax=lambda c: not _second(c),
                moe_router_score_function=lambda c: "sigmoid" if _second(c) else "softmax",
                moe_router_enable_expert_bias=lambda c: "buffer" if _second(c) else "none",
                norm_topk_prob=lambda c: c.flag("norm_topk_prob") or _second(c),
                moe_router_num_groups=_expert_groups, moe_router_group_topk=lambda c: c.optional("topk_group") if _expert_groups(c) else None,
                moe_shared_expert_intermediate_size=shared("num_shared_experts", "moe_intermediate_size")),
    require={"use_bias": (False, "experts with biases are not read (where it is left out it is true)")},
    unread={**dict.fromkeys(("norm_head", "norm_softmax"), _ELEMENTWISE),
            **dict.fromkeys(("moe_router_enable_expert_bias", "score_function", "scoring_func", "use_rmsnorm", "router_dtype", "rotary_type",
                             "multi_gate"), "fixed by the module code"),
            **dict.fromkeys(("max_window_layers", "use_sliding_window", "sliding_window"), "no layer has a window"),
            "moe_shared_expert_intermediate_size": "num_shared_experts says it"})


_MINIMAX = Family(
    {"attn_type_list": None, "block_size": 256, "postnorm": True, "shared_intermediate_size": 0, "rotary_dim": None},
    attention={"rotary_fraction": rotary_dim}, mixers=_by_numbers, ffns=sparse, moe=experts("num_local_experts", "intermediate_size"),
    lightning={"block_size": integer("block_size"), "activation": act()}, model={"residual_after_norm": True}, modelling="minimax",
    require={"postnorm": (True, "sums of what norms have not seen are not read"), "shared_intermediate_size": (0, "its shared experts are not read")},
    unread={"shared_moe_mode": "there are no shared experts", "layer_types": "attn_type_list says it", "sliding_window": "no layer has one",
            **{f"layernorm_{part}_{factor}": _ELEMENTWISE for part in ("full_attention", "linear_attention", "mlp") for factor in ("alpha", "beta")}})


REMOTE: dict[str, Family] = {
    "internlm": Family({"bias": True}, attention={"kv_channels": None, "num_query_groups": None, "qkv_bias": flag("bias"), "out_bias": flag("bias")},
                       unread={"rotary": "positions: tables, elementwise"}),
    "internlm2": Family({"bias": True}, attention=_JOINED | {"qkv_bias": flag("bias"), "out_bias": flag("bias")}),
    "baichuan": Family(
        {"max_position_embeddings": None}, attention=_JOINED | {"num_query_groups": None}, model={"position_embedding": _positions},
        unread={"z_loss_weight": "weight of an auxiliary loss"}),
    "chatglm": Family(
        {"multi_query_attention": False, "add_bias_linear": False, "add_qkv_bias": False, "rmsnorm": True, "post_layer_norm": True,
         "position_encoding_2d": None, "hidden_dropout": 0.0},
        attention={"fused_qkv": True, "num_query_groups": _groups_of_queries, "kv_channels": head_dim, "qkv_bias": _queries_biased,
                   "out_bias": flag("add_bias_linear"), "rotary_fraction": 0.5},
        mlp=GATED | {"activation": "silu", "fused_gate_up": True, "bias": flag("add_bias_linear")},
        model={"normalization": choose("rmsnorm", "RMSNorm", "LayerNorm"), "norm_bias": choose("rmsnorm", False, True)},
        names={"num_hidden_layers": ("num_layers",), "vocab_size": ("padded_vocab_size",), "intermediate_size": ("ffn_hidden_size",),
               "head_dim": ("kv_channels",), "num_key_value_heads": ("multi_query_group_num",)},
        require={"post_layer_norm": (True, "a decoder without a last norm is not read"), "hidden_dropout": (0.0, "its dropout is not read"),
                 "position_encoding_2d": (None, "the first ChatGLM, with positions of two parts, is not read")},
        unread={"apply_residual_connection_post_layernorm": "which of two tensors is added", "fp32_residual_connection": "not read",
                "apply_query_key_layer_scaling": _ELEMENTWISE, "original_rope": "positions: tables, elementwise",
                "layernorm_epsilon": "small constant of a norm", "quantization_bit": "how weights are stored",
                **dict.fromkeys(("pre_seq_len", "prefix_projection"), "a prefix of prompt tuning")},
        modelling="glm"),
    "qwen": Family(
        {"no_bias": True, "kv_channels": 128, "rotary_pct": 1.0, "emb_dropout_prob": 0.0},
        attention={"fused_qkv": True, "num_query_groups": None, "kv_channels": head_dim, "qkv_bias": True,
                   "out_bias": choose("no_bias", False, True)},
        mlp=GATED | {"activation": "silu", "ffn_hidden_size": _half_width, "bias": choose("no_bias", False, True)},
        names={"head_dim": ("kv_channels",), "attention_dropout": ("attn_dropout_prob",)},
        require={"rotary_pct": (1.0, "a part of a head that turns is not read"), "emb_dropout_prob": (0.0, "its dropout is not read")},
        unread={"use_logn_attn": _ELEMENTWISE, "onnx_safe": "how the model runs", "use_cache_quantization": "how the model runs",
                "use_cache_kernel": "how the model runs", "softmax_in_fp32": "how the model runs",
                **dict.fromkeys(("bf16", "fp16", "fp32"), "a strategy sets the precision")}),
    "deepseek": Family(
        {"n_shared_experts": None, "n_routed_experts": None, "moe_layer_freq": 1, "first_k_dense_replace": 0, "norm_topk_prob": False,
         "scoring_func": "softmax"},
        attention=BIASED | {"kv_channels": None}, ffns=_after_some,
        moe=experts("n_routed_experts", "moe_intermediate_size", norm_topk_prob=flag("norm_topk_prob"),
                    moe_shared_expert_intermediate_size=lambda c: (c.optional("n_shared_experts") or 0) * c.integer("moe_intermediate_size") or None),
        require={"scoring_func": ("softmax", "its gate knows no other")}),
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING,
    "minimax_text_01": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minicpm": Family(
        {"tie_word_embeddings": True, "num_experts": None, "sparse_config": None}, attention=BIASED | {"kv_channels": None},
        require={"num_experts": (None, "MiniCPM's experts are not read"), "sparse_config": (None, "its attention to chosen blocks is not read")},
        unread=_SCALES | {"mup_denominator": _ELEMENTWISE}),
    "orion": Family({"rms_norm_eps": None}, attention=BIASED | {"kv_channels": None}, model=LAYERNORM),
    "xverse": Family(attention={"kv_channels": None}, unread={"max_tokenizer_truncation": "of the tokenizer"}),
    "skywork": Family(attention={"kv_channels": None}),
    "aquila": Family(attention={"kv_channels": None}),
}
