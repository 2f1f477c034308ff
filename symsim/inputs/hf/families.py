"""One table a model_type: transformers' defaults, which keys its module code reads, and what that code fixes.

Source: transformers 5.23, src/transformers/models/<model_type>/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

from symsim.inputs.hf.config import ACTIVATIONS, Fields, choose, flag, given, integer, number
from symsim.inputs.hf.families_dense import DENSE
from symsim.inputs.hf.families_encoder import ENCODERS
from symsim.inputs.hf.families_gemma import GEMMAS
from symsim.inputs.hf.families_hybrid import HYBRID
from symsim.inputs.hf.families_mixers import MIXING
from symsim.inputs.hf.families_moe import SPARSE
from symsim.inputs.hf.families_old import OLD
from symsim.inputs.hf.families_remote import REMOTE
from symsim.inputs.hf.family import Family, with_facts
from symsim.inputs.hf.fields import (
    BIASED,
    DEEPSEEK_MOE,
    FOUR_NORMS,
    FUSED_MHA,
    GATED,
    GEMMA,
    GREEDY,
    LAYERNORM,
    MLA,
    PLAIN,
    QWEN_MOE,
    QWEN_SHARED,
    SQUARE,
    TWO_NORMS,
    after_first,
    alternating,
    dbrx_width,
    dots_windows,
    ernie_ffns,
    experts,
    falcon_groups,
    falcon_norms,
    four_wide,
    head_dim,
    joined,
    limited_groups,
    limited_topk,
    llama4_ffns,
    llama4_mixers,
    narrower,
    qwen3_next_mixers,
    qwen_windows,
    shared,
    smollm3_mixers,
    sparse,
    stepped,
    switched,
    windowed,
)
from symsim.inputs.hf.patterns import both_ways_where
from symsim.inputs.hf.rotary import cut_fraction, rotary_dim, rotary_fraction, rotary_pct, rotary_scaled

# fmt: off


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


# Qwen3-Next and Qwen3.5
_DELTA_NET: Fields = {"head_dim": 256, "full_attention_interval": 4, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32}


_GATED_ATTENTION: Fields = BIASED | {"qk_norm": "head", "output_gate": True, "fused_gate": True, "rotary_fraction": rotary_fraction}


_FUSED_DELTA_NET: Fields = {key: integer(key) for key in ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                                                          "linear_value_head_dim", "linear_conv_kernel_dim")}


_SPLIT_DELTA_NET: Fields = _FUSED_DELTA_NET | {"fused_in_proj": False}


_GPT2 = Family(
    {"n_inner": None, "hidden_act": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attention_dropout": 0.1,
     "tie_word_embeddings": True, "max_position_embeddings": 1024},
    attention=FUSED_MHA | {"qkv_bias": True, "out_bias": True},
    mlp=PLAIN | {"bias": True, "ffn_hidden_size": lambda c: c.optional("n_inner") or four_wide(c)},
    model=LAYERNORM | {"position_embedding": "learned", "position_embedding_rows": integer("max_position_embeddings"),
                       "hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")},
    names={"hidden_size": ("n_embd",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",),
           "max_position_embeddings": ("n_positions",), "hidden_act": ("activation_function",), "attention_dropout": ("attn_pdrop",)})


_FIRST: dict[str, Family] = {
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
        {"num_key_value_heads": 2, "decoder_sparse_step": 1, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10, "num_experts": 512, "norm_topk_prob": True,
         "mlp_only_layers": None} | _DELTA_NET,
        attention=_GATED_ATTENTION, moe=QWEN_SHARED, linear=_FUSED_DELTA_NET,
        mixers=qwen3_next_mixers, ffns=stepped, model={"norm_unit_offset": True}),
    "qwen3_5_text": Family(_DELTA_NET | {"num_key_value_heads": 4}, attention=_GATED_ATTENTION, linear=_SPLIT_DELTA_NET, mixers=qwen3_next_mixers,
                           model={"norm_unit_offset": True}),
    "qwen3_5_moe_text": Family(
        _DELTA_NET | {"num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8,
                      "num_experts": 256},
        attention=_GATED_ATTENTION, moe=QWEN_SHARED | {"norm_topk_prob": True}, linear=_SPLIT_DELTA_NET, mixers=qwen3_next_mixers, ffns=sparse,
        model={"norm_unit_offset": True}, unread={"norm_topk_prob": "always divided by their sum"}),
    "deepseek_v2": Family(
        _MLA_DEFAULTS | {"n_group": None, "topk_group": None, "topk_method": "greedy", "n_routed_experts": 64, "n_shared_experts": 2,
                         "moe_intermediate_size": 1407, "first_k_dense_replace": 0},
        attention=MLA, moe=DEEPSEEK_MOE | {
            "moe_router_score_function": "softmax", "moe_router_pre_softmax": True, "moe_router_enable_expert_bias": "none",
            "norm_topk_prob": False, "shared_expert_bias": flag("mlp_bias"),
            "moe_router_num_groups": limited_groups, "moe_router_group_topk": limited_topk},
        ffns=after_first, mlp=GATED | {"bias": flag("mlp_bias")}, heads_divide=True,
        unread=_MLA_UNREAD | {"norm_topk_prob": "not read by DeepseekV2TopkRouter"} | GREEDY, names={"n_routed_experts": ("num_experts",)}),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt2": _GPT2,
    "gpt-sw3": _GPT2,
    "gpt_oss": Family(
        {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4,
         "attention_bias": True},
        attention=BIASED | {"sinks": True, "rotary_scaled": rotary_scaled}, mixers=alternating(2), ffns=sparse,
        moe=experts("num_local_experts", "intermediate_size", activation="swiglu_clamped", moe_router_pre_softmax=False, expert_bias=True,
                    router_bias=True),
        names={"num_local_experts": ("num_experts",)},
        unread={"experts_per_token": "not read by transformers: num_experts_per_tok is",
                "hidden_act": "the module code fixes a clamped SwiGLU", "max_window_layers": "not read by transformers"}),
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
         "tie_word_embeddings": True, "sliding_window": 4096, "sliding_window_pattern": 6, "final_logit_softcapping": None},
        attention=BIASED | {"qk_norm": "head"},
        mixers=both_ways_where("use_bidirectional_attention", alternating("sliding_window_pattern")), permits=("use_bidirectional_attention",),
        model=GEMMA | {"norms": FOUR_NORMS, "logit_softcap": given("final_logit_softcapping")}, names={"hidden_act": ("hidden_activation",)},
        heads_divide=True, unread={"_sliding_window_pattern": "transformers reads sliding_window_pattern and layer_types",
                                   "attn_logit_softcapping": "not read by modeling_gemma3.py"}),
    "olmo": Family({"clip_qkv": None}, attention=BIASED | {"clip_qkv": given("clip_qkv")},
                   model={"normalization": "LayerNorm", "norm_weight": False}),
    "olmo2": Family(attention=BIASED | {"qk_norm": "full"}, model={"norms": ("post_attention", "post_mlp")}),
    "olmoe": Family({"num_experts_per_tok": 8, "num_experts": 64, "norm_topk_prob": False, "clip_qkv": None},
                    attention=BIASED | {"kv_channels": joined, "qk_norm": "full", "clip_qkv": given("clip_qkv")},
                    moe=experts("num_experts", "intermediate_size", norm_topk_prob=flag("norm_topk_prob")), ffns=sparse,
                    names={"num_experts": ("num_local_experts",)}),
    "phi3": Family({"resid_pdrop": 0.0}, attention={"fused_qkv": True, "rotary_fraction": rotary_fraction}, mlp=GATED | {"fused_gate_up": True},
                   mixers=windowed, model={"hidden_dropout": number("resid_pdrop"), "embedding_dropout": 0.0},
                   unread={"embd_pdrop": "not read by Phi3Model", "attention_bias": "Phi3Attention has no bias"}),
    "phi4_multimodal": Family(
        attention={"fused_qkv": True, "rotary_fraction": rotary_fraction}, mlp=GATED | {"fused_gate_up": True}, mixers=windowed,
        model={"hidden_dropout": number("resid_pdrop"), "embedding_dropout": 0.0}, unread={"embd_pdrop": "not read by Phi4MultimodalModel"}),
    "phimoe": Family({"num_key_value_heads": 8, "num_local_experts": 16, "lm_head_bias": False}, attention=BIASED,
                     moe=experts("num_local_experts", "intermediate_size", norm_topk_prob=False, moe_router_topk=2), mixers=windowed, ffns=sparse,
                     model=LAYERNORM | {"lm_head_bias": flag("lm_head_bias")},
                     unread={"hidden_dropout": "not read by PhimoeDecoderLayer", "num_experts": "not read by transformers: num_local_experts is",
                             "num_experts_per_tok": "sparsemixer chooses two experts, whatever this says"}),
    "phi": Family({"hidden_act": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "partial_rotary_factor": 0.5, "qk_layernorm": False},
                  attention={"qkv_bias": True, "out_bias": True, "rotary_fraction": cut_fraction,
                             "qk_norm": choose("qk_layernorm", "head", "none"),
                             "kv_channels": lambda c: joined(c) if c.flag("qk_layernorm") else head_dim(c)}, mlp=PLAIN | {"bias": True},
                  model=LAYERNORM | {"parallel_block": True, "norms": ("pre_attention",), "lm_head_bias": True,
                                     "hidden_dropout": number("resid_pdrop"), "embedding_dropout": number("embd_pdrop")}),
    "dbrx": Family(
        {"num_key_value_heads": 1, "ffn_config.ffn_hidden_size": 3584, "ffn_config.moe_num_experts": 4, "num_experts_per_tok": 1,
         "ffn_config.moe_normalize_expert_weights": 1.0, "resid_pdrop": 0.0, "attn_config.clip_qkv": None},
        attention=SQUARE | {"fused_qkv": True, "clip_qkv": given("attn_config.clip_qkv")}, ffns=sparse,
        moe=experts("ffn_config.moe_num_experts", "ffn_config.ffn_hidden_size",
                    norm_topk_prob=given("ffn_config.moe_normalize_expert_weights")),
        model={"hidden_size": dbrx_width, "normalization": "LayerNorm", "hidden_dropout": number("resid_pdrop"), "embedding_dropout": 0.0},
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
        attention={"qkv_bias": flag("attention_bias"), "qk_norm": choose("use_qk_norm", "head", "none"), "rotary_fraction": rotary_fraction},
        moe=DEEPSEEK_MOE, ffns=after_first, names={"n_routed_experts": ("num_local_experts",)}, unread=_FIXED_ROUTER),
    "glm4": Family({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5},
                   attention={"qkv_bias": flag("attention_bias"), "rotary_fraction": rotary_fraction}, mlp=GATED | {"fused_gate_up": True},
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
        attention=FUSED_MHA | {"num_query_groups": falcon_groups, "qkv_bias": flag("bias"), "out_bias": flag("bias")},
        mlp=PLAIN | {"bias": flag("bias"), "ffn_hidden_size": lambda c: c.optional("ffn_hidden_size") or four_wide(c)},
        model=LAYERNORM | {"norms": falcon_norms, "parallel_block": flag("parallel_attn"), "hidden_dropout": number("hidden_dropout"),
                           "embedding_dropout": 0.0, "position_embedding": choose("alibi", "alibi", "rope")},
        names={"hidden_size": ("n_embed",), "hidden_act": ("activation",)},
        unread={"apply_residual_connection_post_layernorm": "not read by modeling_falcon.py"}),
    "gpt_neox": Family(
        {"hidden_act": "gelu", "hidden_dropout": 0.0, "use_parallel_residual": True, "attention_bias": True, "rotary_pct": 0.25},
        attention=BIASED | FUSED_MHA | {"rotary_fraction": rotary_pct}, mlp=PLAIN | {"bias": True},
        model=LAYERNORM | {"parallel_block": flag("use_parallel_residual"), "hidden_dropout": number("hidden_dropout")},
        unread={"partial_rotary_factor": "not read by transformers: rotary_pct is"}, heads_divide=True),
    "opt": Family(
        {"dropout": 0.1, "hidden_act": "relu", "max_position_embeddings": 2048, "do_layer_norm_before": True, "layerdrop": 0.0,
         "_remove_final_layer_norm": False, "enable_bias": True, "layer_norm_elementwise_affine": True, "word_embed_proj_dim": None,
         "tie_word_embeddings": True},
        attention=SQUARE | {"num_query_groups": None, "qkv_bias": flag("enable_bias"), "out_bias": flag("enable_bias")},
        mlp=PLAIN | {"bias": flag("enable_bias")},
        model={"normalization": "LayerNorm", "norm_bias": flag("layer_norm_elementwise_affine"), "embedding_size": narrower("word_embed_proj_dim"),
               "norm_weight": flag("layer_norm_elementwise_affine"), "norms_after_residual": choose("do_layer_norm_before", False, True),
               "norms": choose("do_layer_norm_before", TWO_NORMS, ("post_attention", "post_mlp")), "position_embedding": "learned",
               # modeling_opt.py, OPTLearnedPositionalEmbedding: positions start at 2
               "position_embedding_rows": lambda c: c.integer("max_position_embeddings") + 2,
               "final_norm": lambda c: c.flag("do_layer_norm_before") and not c.flag("_remove_final_layer_norm"),
               "hidden_dropout": number("dropout"), "embedding_dropout": 0.0},
        names={"intermediate_size": ("ffn_dim",), "hidden_act": ("activation_function",)},
        require={"layerdrop": (0.0, "layers skipped at random are not supported")}),
    "bloom": Family(
        {"hidden_dropout": 0.0, "tie_word_embeddings": True, "apply_residual_connection_post_layernorm": False},
        attention=FUSED_MHA | {"qkv_bias": True, "out_bias": True},
        mlp={"ffn_hidden_size": four_wide, "gated": False, "activation": "gelu_tanh", "bias": True},
        model=LAYERNORM | {"position_embedding": "alibi", "embedding_norm": True, "hidden_dropout": number("hidden_dropout"),
                           "embedding_dropout": 0.0},
        names={"hidden_size": ("n_embed",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",)},
        unread={"apply_residual_connection_post_layernorm": "moves the residual, adds no work"}),
    "mpt": Family(
        {"attn_config.attn_pdrop": 0.0, "attn_config.clip_qkv": None, "tie_word_embeddings": True},
        attention=FUSED_MHA | {"clip_qkv": lambda c: bool(c.look("attn_config.clip_qkv")[1])},
        mlp={"ffn_hidden_size": four_wide, "gated": False, "activation": "gelu"},
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
                            "qk_norm_bias": choose("qk_layernorm", False, None), "rotary_fraction": cut_fraction},
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
        attention={"qk_norm": "full", "rotary_fraction": rotary_dim}, ffns=sparse, names={"num_local_experts": ("num_experts",)},
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
        attention={"qkv_bias": flag("use_bias"), "out_bias": flag("use_bias")}, mlp=GATED | {"bias": flag("use_bias")},
        moe=experts("num_experts", "moe_intermediate_size", moe_router_enable_expert_bias="parameter", shared_expert_bias=flag("use_bias"),
                    moe_shared_expert_intermediate_size=shared("moe_num_shared_experts", "moe_intermediate_size")),
        model={"lm_head_bias": flag("use_bias")}, ffns=ernie_ffns, names={"num_experts": ("moe_num_experts",), "num_experts_per_tok": ("moe_k",)},
        unread={"moe_capacity": "no token is dropped", "moe_gate": "fixed by the module code", "moe_use_aux_free": "always built",
                "num_key_value_groups": "not read", "hidden_dropout_prob": "not read by transformers"}),
    "smollm3": Family({"num_key_value_heads": 4, "use_sliding_window": False, "no_rope_layers": None, "no_rope_layer_interval": 4,
                       "tie_word_embeddings": True},
                      attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}, mixers=smollm3_mixers,
                      unread={"max_window_layers": "not read by transformers"}),
    "granite": Family(attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}),
}


_EVERY = _FIRST | DENSE | SPARSE | OLD | ENCODERS | MIXING | HYBRID | GEMMAS


SUPPORTED: tuple[str, ...] = tuple(_EVERY)
"""The model types of transformers."""
FAMILIES: dict[str, Family] = {name: with_facts(name, family) for name, family in (_EVERY | REMOTE).items()}
