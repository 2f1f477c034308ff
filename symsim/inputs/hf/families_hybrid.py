"""Families with state-space mixers, alone or with attention and experts in turn.

Source: transformers 5.23, src/transformers/models/<model_type>/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

from symsim.inputs.hf.config import Fields, act, choose, flag, integer
from symsim.inputs.hf.family import Family
from symsim.inputs.hf.fields import BIASED, DEEPSEEK_MOE, GATED, PLAIN, experts, four_wide
from symsim.inputs.hf.rotary import rotary_fraction
from symsim.inputs.hf.state_space import (
    FALCON_MAMBA2,
    JAMBA,
    MAMBA,
    MAMBA_DEFAULTS,
    NEMOTRON_MAMBA,
    PLAIN_MAMBA2,
    SELECTIVE,
    ZAMBA2_MAMBA,
    beside_attention,
    channels_alone,
    granite_ffns,
    indexed_mixers,
    jamba_ffns,
    jamba_mixers,
    nemotron_ffns,
    nemotron_head_dim,
    nemotron_mixers,
    states_alone,
    typed_mixers,
    without_ffn,
    zamba2_block,
    zamba2_head_dim,
    zamba2_mixers,
)

# fmt: off


_ONLY_SILU = {"hidden_act": ("silu", "only silu is supported in a state-space mixer")}


# a model without attention has none of its sizes
NO_ATTENTION: Fields = {"num_attention_heads": 1, "num_query_groups": None, "kv_channels": None}


_STATES_UNREAD = {"residual_in_fp32": "set by a strategy: fp32_residual_connection", "rescale_prenorm_residual": "initial weights",
                  "time_step_rank": "not read by transformers", "layer_types": "every layer is one", "num_attention_heads": "no layer is attention",
                  "time_step_scale": "initial weights", "time_step_init_scheme": "initial weights"}


_SELECTIVE_DEFAULTS: Fields = {"time_step_rank": "auto", "intermediate_size": None}


_SELECTIVE_UNREAD = {key: why for key, why in _STATES_UNREAD.items() if key != "time_step_rank"} | {
    "use_mambapy": "which code runs the scan", "use_associative_scan": "which code runs the scan",
    "mixer_rms_eps": "small constant of a norm", "expand": "intermediate_size says it"}


HYBRID: dict[str, Family] = {
    "mamba": Family(_SELECTIVE_DEFAULTS, attention=NO_ATTENTION, selective_scan=SELECTIVE, mixers=channels_alone, ffns=without_ffn,
                    model={"position_embedding": "none"}, require=_ONLY_SILU, unread=_SELECTIVE_UNREAD),
    "falcon_mamba": Family(_SELECTIVE_DEFAULTS, attention=NO_ATTENTION, selective_scan=SELECTIVE | {"inner_norm": "plain"},
                           mixers=channels_alone, ffns=without_ffn,
                           model={"position_embedding": "none"}, require=_ONLY_SILU, unread=_SELECTIVE_UNREAD),
    "jamba": Family(
        selective_scan=JAMBA, mixers=jamba_mixers, ffns=jamba_ffns, model={"position_embedding": "none"}, require=_ONLY_SILU,
        moe=experts("num_local_experts", "intermediate_size", norm_topk_prob=False), names={"num_local_experts": ("num_experts",)},
        unread={"use_mambapy": "which code runs the scan", "use_associative_scan": "which code runs the scan",
                "layers_block_type": "attn_layer_period decides", "layer_types": "attn_layer_period decides",
                "num_logits_to_keep": "logits of all tokens in training"}),
    "falcon_h1": Family(
        attention=BIASED, mlp=GATED | {"bias": flag("mlp_bias")}, mamba=FALCON_MAMBA2, mixers=beside_attention,
        model={"branch_multipliers": True}, require=_ONLY_SILU,
        unread={key: "scale, clamp or noise, elementwise" for key in (
            "lm_head_multiplier", "mlp_multipliers", "key_multiplier", "attention_in_multiplier", "attention_out_multiplier", "ssm_multipliers",
            "ssm_in_multiplier", "ssm_out_multiplier")} | {
                "num_logits_to_keep": "logits of all tokens in training", "layers_block_type": "every layer has both mixers",
                "layer_types": "every layer has both mixers", "mamba_use_mlp": "not read by transformers",
                "mamba_expand": "mamba_d_ssm decides", "mamba_norm_before_gate": "no norm", "attn_layer_indices": "not read by transformers"}),
    "mamba2": Family(attention=NO_ATTENTION, mamba=PLAIN_MAMBA2, mixers=states_alone, ffns=without_ffn,
                     model={"position_embedding": "none"}, require=_ONLY_SILU, unread=_STATES_UNREAD),
    "bamba": Family(
        MAMBA_DEFAULTS | {"num_key_value_heads": 8, "attn_layer_indices": None, "partial_rotary_factor": 0.5},
        # configuration_bamba.py: half of a head, whatever partial_rotary_factor says outside of the rope dictionary
        attention=BIASED | {"rotary_fraction": rotary_fraction}, mlp=GATED | {"bias": flag("mlp_bias")}, mamba=MAMBA, mixers=indexed_mixers,
        unread={"num_logits_to_keep": "logits of all tokens in training", "z_loss_coefficient": "weight of an auxiliary loss"}),
    "granitemoehybrid": Family(
        MAMBA_DEFAULTS | {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "position_embedding_type": None},
        attention=BIASED, mlp=GATED | {"ffn_hidden_size": integer("shared_intermediate_size"), "fused_gate_up": True}, mamba=MAMBA,
        moe=experts("num_local_experts", "intermediate_size", moe_router_pre_softmax=False,
                    moe_shared_expert_intermediate_size=integer("shared_intermediate_size")),
        model={"position_embedding": lambda c: "rope" if c.look("position_embedding_type")[1] == "rope" else "none"},
        mixers=typed_mixers, ffns=granite_ffns, names={"layer_types": ("layers_block_type",)},
        unread={"mlp_bias": "GraniteMoeHybridMLP has no bias"}),
    "zamba2": Family(
        attention={"kv_channels": zamba2_head_dim},
        mlp=GATED | {"ffn_hidden_size": lambda c: c.optional("intermediate_size") or four_wide(c), "bias": flag("add_bias_linear"),
                     "fused_gate_up": True},
        mamba=ZAMBA2_MAMBA, mixers=zamba2_mixers, ffns=without_ffn,
        model={"position_embedding": choose("use_mem_rope", "rope", "none"), "shared_block": zamba2_block},
        require={"tie_word_embeddings": (True, "transformers then shares no block either")},
        unread={"use_conv_bias": "the convolution has a bias always",
                "num_logits_to_keep": "logits of all tokens in training", "use_mem_eff_path": "which code runs the scan",
                "use_long_context": "sets the angles of rotary positions", "kv_channels": "not read by Zamba2Attention",
                "num_query_groups": "not read by Zamba2Attention",
                "use_shared_mlp_adapter": "always built", "ffn_hidden_size": "not read by transformers"}),
    "nemotron_h": Family(
        {"vocab_size": 131072, "hidden_size": 4096, "num_hidden_layers": None, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": 128, "intermediate_size": 21504, "mlp_hidden_act": "relu2", "ssm_state_size": 128, "mamba_num_heads": 128,
         "mamba_head_dim": 64, "mamba_hidden_act": "silu", "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True, "chunk_size": 128,
         "use_bias": False, "n_routed_experts": 8, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
         "moe_latent_size": None, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
         "hybrid_override_pattern": None},
        attention={"kv_channels": nemotron_head_dim}, mlp=PLAIN | {"activation": act("mlp_hidden_act"), "bias": flag("mlp_bias")},
        mamba=NEMOTRON_MAMBA,
        moe=DEEPSEEK_MOE | {"activation": act("mlp_hidden_act"), "gated": False, "moe_latent_size": lambda c: c.optional("moe_latent_size"),
                            "latent_bias": flag("mlp_bias"), "shared_expert_bias": flag("mlp_bias"),
                            "moe_shared_expert_intermediate_size": integer("moe_shared_expert_intermediate_size")},
        model={"position_embedding": "none", "tie_word_embeddings": False}, mixers=nemotron_mixers, ffns=nemotron_ffns,
        names={"layer_types": ("layers_block_type",), "n_routed_experts": ("num_local_experts",), "n_groups": ("mamba_n_groups",),
               "conv_kernel": ("mamba_d_conv",), "use_conv_bias": ("mamba_conv_bias",), "chunk_size": ("mamba_chunk_size",),
               "head_dim": ("attention_head_dim",)},
        require={"mamba_hidden_act": ("silu", "only silu is supported in a state-space mixer")},
        unread={"num_hidden_layers": "the layers are counted in layers_block_type or hybrid_override_pattern",
                "attention_bias": "NemotronHAttention has no bias", "sliding_window": "NemotronHAttention has no window",
                "expand": "mamba_num_heads * mamba_head_dim decides",
                "n_shared_experts": "one, of moe_shared_expert_intermediate_size", "hidden_dropout": "not read by NemotronHBlock",
                "moe_shared_expert_overlap": "how it runs", "mamba_proj_bias": "use_bias decides", "tie_word_embeddings": "never tied",
                "num_logits_to_keep": "logits of all tokens in training", "residual_in_fp32": "not read by NemotronHBlock",
                "rescale_prenorm_residual": "initial weights", "mtp_layers_block_type": "transformers builds no multi-token prediction",
                "mtp_hybrid_override_pattern": "transformers builds no multi-token prediction"}),
}
