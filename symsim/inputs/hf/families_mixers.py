"""Families with other mixers than attention in all of their layers, and with choices in attention.

Source: transformers 5.23, src/transformers/models/<model_type>/modeling_*.py.
"""

from __future__ import annotations

from symsim.inputs.hf.config import Fields, act, choose, flag, given, integer
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import BIASED, DEEPSEEK_MOE, FOUR_NORMS, MLA, QWEN_MOE, TWO_NORMS, after, experts, groups_or_none, sparse
from symsim.inputs.hf.patterns import sparse_from
from symsim.inputs.hf.patterns_heads import lfm3_mixers
from symsim.inputs.hf.patterns_mixers import (
    OLMO_DELTA_NET,
    bailing_mixers,
    block_indexers,
    deepseek_v4_mixers,
    deepseek_v4_part,
    frequent_experts,
    gated_by_norms,
    glm_indexers,
    hy_indexers,
    indexed_turns,
    kimi_mixers,
    lara_mixers,
    lfm2_mixers,
    lfm2_width,
    mixed,
    of_indexer,
    olmo_mixers,
    saved_as,
)
from symsim.inputs.hf.rotary import rotary_fraction

# fmt: off


_SHORT_CONVOLUTION: Fields = {"conv_kernel_dim": integer("conv_L_cache"), "conv_bias": flag("conv_bias")}


_LFM2_NAMES = {"tie_word_embeddings": ("tie_embedding",), "intermediate_size": ("block_ff_dim",)}


_LFM2_UNREAD = {key: "not read by transformers" for key in (
    "conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
    "block_use_swiglu", "block_use_xavier_init", "num_heads", "use_pos_enc", "theta", "hidden_act", "attention_bias", "attention_dropout",
    "ff_type", "hidden_dropout")}


_SPARSE_ATTENTION: Fields = MLA | {"dsa_indexer_topk": integer("index_topk"), "dsa_indexer_n_heads": integer("index_n_heads"),
                                   "dsa_indexer_head_dim": integer("index_head_dim"), "q_lora_rank": integer("q_lora_rank")}


_LATENT_UNREAD = {key: why for why, keys in {
    "latent attention has a key and a value for every query head": "num_key_value_heads",
    "set by qk_rope_head_dim": "head_dim", "the sum of the two given": "qk_head_dim", "fixed by the module code": "scoring_func topk_method",
    "not read by transformers": "moe_layer_freq mlp_bias index_rope_interleave indexer_rope_interleave", "every layer has an indexer": "layer_types",
}.items() for key in keys.split()}


_KDA: Fields = {"kind": "kda", "fused_in_proj": False, "linear_conv_kernel_dim": integer("linear_conv_kernel_dim")} | {
    f"linear_{name}": integer(key) for key, names in {"linear_num_heads": ("num_key_heads", "num_value_heads"),
                                                     "linear_head_dim": ("key_head_dim", "value_head_dim")}.items() for name in names}


_BAILING_KDA: Fields = {
    "kind": "kda", "fused_in_proj": False, "low_rank_gates": False, "linear_conv_kernel_dim": saved_as("linear_conv_kernel_dim",
                                                                                                      "short_conv_kernel_size"),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), saved_as("linear_num_heads", "num_attention_heads")),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), saved_as("linear_head_dim", "head_dim"))}


_V4_SCORES = lambda c: c.word("scoring_func", {name: name for name in ("sqrtsoftplus", "sigmoid")})  # noqa: E731


_V4_UNREAD = {
    "num_key_value_heads": "one head is keys and values", "attention_bias": "no projection of it has one", "norm_topk_prob": "always so",
    "n_shared_experts": "one is built, of the experts' width", "mlp_layer_types": "experts that are looked up by token have their router too",
    "num_hash_layers": "experts that are looked up by token have their router too", "compress_rope_theta": "sets the angles of rotary positions",
    "hc_eps": "small constant of a norm", "swiglu_limit": "scale, clamp or noise, elementwise", "topk_method": "fixed by the module code",
    "expert_dtype": "the weights are taken as trained; a strategy sets their precision"}


_SPLIT_DELTA_NET: Fields = {"fused_in_proj": False} | {key: integer(key) for key in (
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim")}


_BAILING_NAMES = {"n_routed_experts": ("num_local_experts", "num_experts")}


_KIMI_NAMES = {"n_routed_experts": ("num_local_experts", "num_experts"), "linear_num_heads": ("linear_attn_config.num_heads",),
               "linear_head_dim": ("linear_attn_config.head_dim",), "linear_conv_kernel_dim": ("linear_attn_config.short_conv_kernel_size",)}


_M3_NAMES = {f"index_{name}": (f"sparse_attention_config.sparse_{theirs}",) for name, theirs in {
    "n_heads": "num_index_heads", "head_dim": "index_dim", "block_size": "block_size", "topk_blocks": "topk_blocks",
    "local_blocks": "local_block"}.items()}


_MINIMAX_FACTORS = [f"{branch}_{which}_factor" for branch in ("full_attn", "linear_attn", "mlp") for which in ("alpha", "beta")]


_HY_V4 = Family(
    {"indexer_types": None}, attention=_SPARSE_ATTENTION | {"sinks": True, "output_gate": True, "output_gate_bias": False},
    moe=DEEPSEEK_MOE | {"clamped": True, "clamped_shared": False}, mixers=hy_indexers, ffns=sparse_from(1),
    model={"hyper_connections": lambda c: {"streams": c.integer("hc_mult"), "independent": True}},
    require={"hidden_act": ("silu", "routed experts have a clamped SwiGLU whatever the others have")},
    unread=_LATENT_UNREAD | {"hc_eps": "small constant of a gate", "hc_magnitude": "scale, clamp or noise, elementwise",
                             "swiglu_limit": "scale, clamp or noise, elementwise", "learnable_sink_init": "initial weights"})


MIXING: dict[str, Family] = {
    "olmo_hybrid": Family(
        attention=BIASED | {"qk_norm": "full"}, linear=OLMO_DELTA_NET, mixers=olmo_mixers,
        unread={"linear_allow_neg_eigval": "a factor of the state's gates",
                **dict.fromkeys(("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"),
                                "initial weights")}),
    "deepseek_v32": Family(attention=_SPARSE_ATTENTION, moe=DEEPSEEK_MOE, ffns=sparse_from("first_k_dense_replace"), unread=_LATENT_UNREAD),
    "deepseek_v4": Family(
        {"first_k_dense_replace": 0, "compress_ratios": None, "compress_rate_csa": None, "compress_rate_hca": None, "qk_rope_head_dim": None,
         "compress_rates": None, "norm_topk_prob": True},
        attention={"num_query_groups": 1, "kv_channels": integer("head_dim"), "q_lora_rank": integer("q_lora_rank"), "sinks": True,
                   "rotary_fraction": deepseek_v4_part, "dsa_indexer_topk": integer("index_topk"), "dsa_indexer_n_heads": integer("index_n_heads"),
                   "dsa_indexer_head_dim": integer("index_head_dim")},
        compressed={"output_groups": integer("o_groups"), "output_rank": integer("o_lora_rank")}, mixers=deepseek_v4_mixers, ffns=sparse,
        moe=experts("n_routed_experts", "moe_intermediate_size", moe_router_pre_softmax=False, moe_router_score_function=_V4_SCORES,
                    moe_router_enable_expert_bias="buffer", shared_expert_bias=flag("mlp_bias"), clamped=True,
                    moe_shared_expert_intermediate_size=integer("moe_intermediate_size")),
        model={"hyper_connections": lambda c: {"streams": c.integer("hc_mult"), "sinkhorn_iterations": c.integer("hc_sinkhorn_iters")}},
        names={"n_routed_experts": ("num_local_experts",)}, unread=_V4_UNREAD),
    "axk2": Family({"first_k_dense_replace": 1, "moe_layer_freq": 1}, attention=_SPARSE_ATTENTION | {"latent_gate": True},
                   moe=DEEPSEEK_MOE | {"moe_router_num_groups": groups_or_none}, mixers=gated_by_norms,
                   ffns=sparse_from("first_k_dense_replace"), model={"norm_gate_rank": integer("gated_norm_rank")},
                   require={"moe_layer_freq": (1, "experts in some of the layers behind the first are mlp_layer_types")},
                   unread={k: why for k, why in _LATENT_UNREAD.items() if k != "moe_layer_freq"}),
    "glm_moe_dsa": Family({"index_topk_pattern": None, "index_topk_freq": 1, "index_skip_topk_offset": 2},
                          attention=_SPARSE_ATTENTION, moe=DEEPSEEK_MOE, mixers=glm_indexers, ffns=sparse_from("first_k_dense_replace"),
                          unread=_LATENT_UNREAD),
    "hy_v4": _HY_V4,
    "hy_v4_vl_text": _HY_V4,
    "mistral_large4_text": Family(
        {"index_topk_pattern": None, "index_topk_freq": 1, "index_skip_topk_offset": 2, "no_rope_layer_interval": 4},
        attention=_SPARSE_ATTENTION | {"q_lora_rank": None, "flat_heads": True, "log_scaling": True, "dsa_indexer_input_norm": True},
        moe=DEEPSEEK_MOE | {"moe_router_score_function": "softmax", "moe_router_pre_softmax": True, "moe_router_enable_expert_bias": "none",
                            "norm_topk_prob": True},
        mixers=indexed_turns, ffns=sparse_from("first_k_dense_replace"), model={"logit_softcap": given("final_logit_softcapping")},
        unread=_LATENT_UNREAD | {"q_lora_rank": "queries have no latent", "norm_topk_prob": "always so"}),
    "minimax": Family(
        moe=experts("num_local_experts", "intermediate_size"), ffns=sparse, mixers=mixed("linear_attention", lambda i: i % 2 == 0),
        lightning={"block_size": integer("block_size"), "activation": act()}, model={"residual_after_norm": True},
        unread={key: "scale, clamp or noise, elementwise" for key in _MINIMAX_FACTORS} | {"sliding_window": "no layer has one"}),
    "minimax_m3_vl_text": Family(
        {"partial_rotary_factor": 1.0, "moe_layer_freq": None, "sparse_attention_config.sparse_attention_freq": None},
        attention={"qk_norm": "head", "rotary_fraction": rotary_fraction, "dsa_indexer_topk": of_indexer("index_topk_blocks", "index_block_size"),
                   "dsa_indexer_n_heads": of_indexer("index_n_heads"), "dsa_indexer_head_dim": of_indexer("index_head_dim"),
                   "dsa_indexer_block": of_indexer("index_block_size")},
        mlp={"ffn_hidden_size": integer("dense_intermediate_size"), "activation": "swiglu_clamped", "fused_gate_up": True},
        moe=experts("num_local_experts", "intermediate_size", activation="swiglu_clamped", moe_router_pre_softmax=False,
                    moe_router_score_function="sigmoid", moe_router_enable_expert_bias="buffer",
                    moe_shared_expert_intermediate_size=integer("shared_intermediate_size")),
        mixers=block_indexers, ffns=frequent_experts, model={"norm_unit_offset": True},
        names=_M3_NAMES | {"num_local_experts": ("num_experts",)},
        unread={"hidden_act": "the module code fixes a clamped SwiGLU", "rotary_dim": "not read by transformers: partial_rotary_factor says it",
                **dict.fromkeys(("swiglu_alpha", "swiglu_limit"), "scale, clamp or noise, elementwise"),
                "index_local_blocks": "of the chosen blocks, how many are those in front of the query"}),
    "kimi_linear": Family(
        attention=MLA, moe=DEEPSEEK_MOE, mixers=kimi_mixers, ffns=sparse_from("first_k_dense_replace"), linear=_KDA,
        names=_KIMI_NAMES, model={"tie_word_embeddings": False},
        defaults={"first_k_dense_replace": 1, "linear_attn_config.full_attn_layers": None, "linear_attn_config.kda_layers": None},
        unread=_LATENT_UNREAD | {"tie_word_embeddings": "the head is never tied",
                                 "moe_router_activation_func": "fixed by the module code", "use_grouped_topk": "fixed by the module code",
                                 "mla_use_nope": "fixed by the module code", "model_max_length": "sets the angles of rotary positions"}),
    "bailing_hybrid": Family(
        attention=MLA | BIASED | {"head_gate": True, "gate_in_fp32": True},
        moe=DEEPSEEK_MOE, mixers=bailing_mixers, ffns=sparse_from("first_k_dense_replace"), linear=_BAILING_KDA, names=_BAILING_NAMES,
        model={"tie_word_embeddings": False},
        defaults=dict.fromkeys(("linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim")),
        unread=_LATENT_UNREAD | {"tie_word_embeddings": "the head is never tied", "mtp_loss_scaling_factor": "weight of an auxiliary loss",
                                 "kda_safe_gate": "how a decay is bounded, elementwise", "kda_lower_bound": "how a decay is bounded, elementwise"}),
    "lara_mini": Family(
        attention=BIASED | {"qk_norm": "head"}, linear=_SPLIT_DELTA_NET, mixers=lara_mixers, ffns=sparse,
        moe=QWEN_MOE | {"moe_shared_expert_intermediate_size": integer("shared_expert_intermediate_size")}),
    "lfm3": Family(
        attention=BIASED | {"qk_norm": "head", "head_gate": flag("use_attention_gate")}, short_convolution=_SHORT_CONVOLUTION, mixers=lfm3_mixers,
        model={"norms": choose("use_sandwich_norm", FOUR_NORMS, TWO_NORMS)}, defaults={"partial_rotary_factor": 1.0}),
    "lfm2": Family(attention={"qk_norm": "head"}, mlp={"ffn_hidden_size": lfm2_width}, short_convolution=_SHORT_CONVOLUTION, mixers=lfm2_mixers,
                   names=_LFM2_NAMES, unread=_LFM2_UNREAD),
    "lfm2_moe": Family(
        attention={"qk_norm": "head"}, mlp={"ffn_hidden_size": integer("intermediate_size")},
        moe=experts("num_experts", "moe_intermediate_size", activation="silu", moe_router_pre_softmax=False, moe_router_score_function="sigmoid",
                    norm_topk_prob=flag("norm_topk_prob"), moe_router_enable_expert_bias=choose("use_expert_bias", "buffer", "none")),
        short_convolution=_SHORT_CONVOLUTION, mixers=lfm2_mixers, ffns=after("num_dense_layers"),
        names={"tie_word_embeddings": ("tie_embedding",)}, unread=_LFM2_UNREAD),
}
