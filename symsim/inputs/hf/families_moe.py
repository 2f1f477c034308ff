"""Decoders with mixtures of experts, a table each (source: transformers 5.23, as in families.py); their defaults are the facts of family.py."""

from __future__ import annotations

from symsim.inputs.hf.config import Config, Value, choose, flag, given, integer
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import (
    BIASED,
    DEEPSEEK_MOE,
    FOUR_NORMS,
    GATED,
    GREEDY,
    MLA,
    QWEN_MOE,
    SQUARE,
    after_first,
    cohere_norm,
    cohere_normed,
    cohere_sigmoid,
    experts,
    full,
    limited_groups,
    limited_topk,
    shared,
    sparse,
    stepped,
)
from symsim.inputs.hf.patterns import always, cohere_moe_windows, every, granite_rope, listed, sparse_from, starting, turned_where_windowed
from symsim.inputs.hf.patterns_heads import (
    beam_mixers,
    flint_ffns,
    flint_windows,
    laguna_mixers,
    mimo_mixers,
    normed_experts,
    step_ffns,
    step_mixers,
    tabled,
)
from symsim.inputs.hf.rotary import rotary_fraction

# fmt: off


_ROUTER = {"scoring_func": "fixed by the module code", "topk_method": "fixed by the module code", "moe_layer_freq": "not read by transformers",
           "first_k_dense_replace": "not read by transformers: mlp_layer_types says it"}


_NAMED_ROUTER = {key: why for key, why in _ROUTER.items() if key != "first_k_dense_replace"}


_MLA_UNREAD = {"num_key_value_heads": "latent attention has a key and a value for every query head", "head_dim": "set by qk_rope_head_dim",
               "qk_head_dim": "the sum of the two given"}


_GRANITE = experts("num_local_experts", "intermediate_size", moe_router_pre_softmax=False)


_GRANITE_SHARED = _GRANITE | {"moe_shared_expert_intermediate_size": lambda c: c.integer("shared_intermediate_size", 0) or None}


_SIGMOID = {"moe_router_pre_softmax": False, "moe_router_score_function": "sigmoid"}


_SOFTMAX = {"moe_router_pre_softmax": True, "moe_router_score_function": "softmax", "moe_router_enable_expert_bias": "none"}


def _gated(by: str) -> Value:
    """modeling_laguna.py: a gate for every head, or for every element of it."""

    def read(c: Config) -> bool:
        name, said = c.look("gating")
        if not isinstance(said, bool) and said not in ("per-head", "per-element"):
            raise c.refuse(name, "true, 'per-head' or 'per-element'", said)
        return (said in (True, "per-head")) == (by == "head")

    return read


_AXK1_FFNS = sparse_from("first_k_dense_replace", "moe_layer_freq")


SPARSE: dict[str, Family] = {
    "afmoe": Family(
        attention=BIASED | {"qk_norm": "head", "output_gate": True, "output_gate_bias": False},
        mixers=listed(every("global_attn_every_n_layers"), windowed_turn=True), ffns=sparse_from("num_dense_layers"),
        moe=experts("num_experts", "moe_intermediate_size", **_SIGMOID, moe_router_enable_expert_bias="parameter",
                    moe_shared_expert_intermediate_size=shared("num_shared_experts", "moe_intermediate_size")),
        model={"norms": FOUR_NORMS, "embedding_scale": flag("mup_enabled")},
        unread={"route_scale": "scale, clamp or noise, elementwise"} | _ROUTER),
    "aria_text": Family(
        attention=BIASED, heads_divide=True, ffns=sparse,
        moe=experts("moe_num_experts", "intermediate_size", moe_router_pre_softmax=False, shared_expert_bias=flag("mlp_bias"),
                    moe_shared_expert_intermediate_size=shared("moe_num_shared_experts", "intermediate_size")),
        names={"num_experts_per_tok": ("moe_topk",)}),
    "cohere2_moe": Family(
        {"first_k_dense_replace": 0, "rms_norm_eps": None},
        attention=BIASED, mixers=cohere_moe_windows, ffns=sparse_from("first_k_dense_replace"),
        mlp=GATED | {"ffn_hidden_size": integer("prefix_dense_intermediate_size")},
        moe=experts("num_experts", "intermediate_size", moe_router_pre_softmax=False, moe_router_score_function=cohere_sigmoid,
                    norm_topk_prob=cohere_normed, moe_shared_expert_intermediate_size=shared("num_shared_experts", "intermediate_size")),
        model={"normalization": cohere_norm, "parallel_block": True, "norms": ("pre_attention",)},
        unread={"shared_expert_combination_strategy": "scale, clamp or noise, elementwise"}),
    "exaone_moe": Family(
        attention={"qk_norm": "head"}, mixers=turned_where_windowed(every("sliding_window_pattern")), ffns=sparse_from("first_k_dense_replace"),
        moe=DEEPSEEK_MOE, names={"n_routed_experts": ("num_experts",), "n_shared_experts": ("num_shared_experts",)}, unread=_ROUTER),
    "flex_olmo": Family(
        attention=BIASED | {"qk_norm": "full"}, model={"norms": ("post_attention", "post_mlp")}, ffns=sparse,
        moe=experts("num_experts", "intermediate_size", norm_topk_prob=flag("norm_topk_prob"))),
    "glm4_moe_lite": Family(attention=MLA, moe=DEEPSEEK_MOE, ffns=sparse_from(1),
                            unread={k: why for k, why in _MLA_UNREAD.items() if k != "head_dim"} | _ROUTER),
    "granitemoe": Family(attention=BIASED, moe=_GRANITE, ffns=sparse),
    "granitemoeshared": Family(attention=BIASED, moe=_GRANITE_SHARED, ffns=sparse),
    "granitemoe_swa": Family(attention=BIASED | {"sinks": True}, moe=_GRANITE_SHARED, ffns=sparse, mixers=granite_rope(starting(4))),
    "hunyuan_v1_moe": Family(
        attention=BIASED | {"qk_norm": "head", "qk_norm_position": "after_rope"}, ffns=sparse,
        moe=experts("num_experts", "intermediate_size", moe_shared_expert_intermediate_size=integer("intermediate_size")),
        unread={"eod_token_id": "names a token"}),
    "hy_v3": Family(
        attention=BIASED | {"qk_norm": "head"}, mlp=GATED | {"bias": flag("mlp_bias")}, ffns=sparse_from(1),
        moe=experts("num_experts", "moe_intermediate_size", **_SIGMOID, moe_router_enable_expert_bias="buffer",
                    shared_expert_bias=flag("mlp_bias"),
                    # modeling_hy_v3.py, HYV3MLP: a width of 0 is none given
                    moe_shared_expert_intermediate_size=shared("num_shared_experts", "moe_intermediate_size", without="intermediate_size")),
        unread={"router_scaling_factor": "scale, clamp or noise, elementwise", "enable_moe_fp32_combine": "two casts"} | _ROUTER),
    "kolibri1": Family(
        attention={"qk_norm": "head"}, mixers=turned_where_windowed(every(5)), ffns=sparse, model={"norms": FOUR_NORMS},
        moe=QWEN_MOE | _SIGMOID | {"moe_router_enable_expert_bias": "buffer",
                                   "moe_shared_expert_intermediate_size": integer("shared_expert_intermediate_size")}),
    "mellum": Family(attention=BIASED | {"qk_norm": "head"}, mixers=tabled(listed(always)), moe=QWEN_MOE, ffns=sparse_from(0)),
    "mistral4": Family(attention=MLA, moe=DEEPSEEK_MOE | _SOFTMAX, ffns=after_first, unread=_MLA_UNREAD),
    "sarvam_mla": Family(attention=MLA, moe=DEEPSEEK_MOE, ffns=after_first, unread=_MLA_UNREAD | _NAMED_ROUTER),
    "sarvam_moe": Family(
        {"partial_rotary_factor": 1.0}, attention={"qkv_bias": flag("attention_bias"), "qk_norm": choose("use_qk_norm", "head", "none"),
                                                   "rotary_fraction": rotary_fraction},
        moe=DEEPSEEK_MOE, ffns=after_first, unread=_NAMED_ROUTER),
    "solar_open": Family(
        attention={"qkv_bias": flag("attention_bias"), "rotary_fraction": rotary_fraction}, moe=DEEPSEEK_MOE, ffns=sparse, unread=_ROUTER),
    "axk1": Family({"first_k_dense_replace": 1, "moe_layer_freq": 1}, attention=MLA | {"q_lora_rank": integer("q_lora_rank")}, moe=DEEPSEEK_MOE,
                   mixers=normed_experts(full, _AXK1_FFNS), ffns=_AXK1_FFNS, unread=_MLA_UNREAD | _ROUTER),
    "beam": Family(
        attention=BIASED | {"qk_norm": "head", "output_gate": True, "output_gate_bias": False, "gate_head_bias": True},
        mixers=beam_mixers, ffns=sparse_from(3), model={"norms": FOUR_NORMS, "logit_softcap": given("final_logit_softcapping")},
        moe=DEEPSEEK_MOE | {"moe_shared_expert_intermediate_size": None}, names={"n_routed_experts": ("num_experts",)}, unread=_ROUTER),
    "flint": Family(
        attention=BIASED | {"qk_norm": "head", "sinks": True}, mixers=flint_windows, ffns=flint_ffns,
        moe=QWEN_MOE | _SIGMOID | {"moe_shared_expert_intermediate_size": integer("shared_expert_intermediate_size")}),
    "laguna": Family(
        {"partial_rotary_factor": 1.0},
        attention=BIASED | {"qk_norm": "head", "head_gate": _gated("head"), "output_gate": _gated("element"), "output_gate_bias": False,
                            "gate_activation": "softplus", "gate_in_fp32": True},
        mixers=laguna_mixers, ffns=sparse_from(1),
        moe=QWEN_MOE | _SIGMOID | {"norm_topk_prob": True, "moe_router_enable_expert_bias": "parameter",
                                   "moe_shared_expert_intermediate_size": integer("shared_expert_intermediate_size")},
        require={"moe_apply_router_weight_on_input": (False, "transformers refuses anything but false")},
        unread=_ROUTER | {"moe_router_logit_softcapping": "scale, clamp or noise, elementwise", "norm_topk_prob": "always so"}),
    "mimo_v2_flash": Family(
        {"partial_rotary_factor": 0.334, "sliding_window_size": None},
        attention={"qkv_bias": flag("attention_bias"), "v_head_dim": integer("v_head_dim")}, mixers=mimo_mixers,
        ffns=sparse_from(1), moe=DEEPSEEK_MOE | {"moe_shared_expert_intermediate_size": None},
        unread=_ROUTER | {"attention_value_scale": "scale, clamp or noise, elementwise", "n_shared_experts": "no shared expert is built"}),
    # text towers
    "step3p5": Family(
        {"num_nextn_predict_layers": 0}, attention=BIASED | {"qk_norm": "head", "head_gate": True}, mixers=step_mixers, ffns=step_ffns,
        mlp=GATED | {"bias": flag("mlp_bias"), "activation": "silu"}, model={"norm_unit_offset": True},
        moe=experts("n_routed_experts", "moe_intermediate_size", **_SIGMOID, activation="silu", moe_router_enable_expert_bias="buffer",
                    shared_expert_bias=flag("mlp_bias"), moe_shared_expert_intermediate_size=integer("share_expert_dim")),
        unread=_ROUTER | {"hidden_act": "not read by transformers: always SiLU",
                          "swiglu_limits": "scale, clamp or noise, elementwise", "swiglu_limits_shared": "scale, clamp or noise, elementwise",
                          "moe_router_scaling_factor": "scale, clamp or noise, elementwise",
                          "num_local_experts": "n_routed_experts says how many there are", "gating": "every head has a gate"}),
    "glm4v_moe_text": Family(
        {"partial_rotary_factor": 0.5}, attention={"qkv_bias": flag("attention_bias"), "rotary_fraction": rotary_fraction},
        moe=DEEPSEEK_MOE, ffns=after_first, unread=_ROUTER),
    "deepseek_ocr2_text": Family(
        {"first_k_dense_replace": 1},
        attention=BIASED | SQUARE, ffns=sparse_from("first_k_dense_replace"), mlp=GATED | {"bias": flag("mlp_bias")},
        moe=DEEPSEEK_MOE | _SOFTMAX | {"norm_topk_prob": False, "shared_expert_bias": flag("mlp_bias"),
                                       "moe_router_num_groups": limited_groups, "moe_router_group_topk": limited_topk},
        names={"n_routed_experts": ("num_experts",)},
        unread=_ROUTER | {"norm_topk_prob": "not read by the router"} | GREEDY | {
            "head_dim": "hidden_size / num_attention_heads, whatever this says"}),
    "qwen3_omni_moe_text": Family(attention=BIASED | {"qk_norm": "head"}, moe=QWEN_MOE, ffns=stepped,
                                  unread={"sliding_window": "its layers all attend to everything before them"}),
    "qwen3_vl_moe_text": Family(attention=BIASED | {"qk_norm": "head"}, moe=QWEN_MOE | {"norm_topk_prob": True}, ffns=stepped,
                                unread={"norm_topk_prob": "always so"}),
}
