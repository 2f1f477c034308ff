"""Symbols that --set takes, and the one field of a strategy, an architecture or a system that each stands for. Nothing is imported for them."""

from __future__ import annotations

# Symbols of the vocabulary that stand for one field of the strategy or of the architecture
STRATEGY_SYMBOLS = {
    "s": "seq_length",
    "u": "packed_document_length",
    "b": "micro_batch_size",
    "m": "num_microbatches",
    "inst": "num_distributed_optimizer_instances",
    "group": "microbatch_group_size_per_vp_stage",
    "r": "lora_rank",
    "r_e": "lora_expert_rank",
    "o": "oft_block_size",
}
# Symbols that neither determines: a measurement of the user's
FREE_SYMBOLS = ("lam",)
ARCHITECTURE_SYMBOLS: dict[str, tuple[str, ...]] = {
    "h": ("hidden_size",),
    "V": ("vocab_size",),
    "L": ("num_layers",),
    "P": ("position_embedding_rows",),
    "h_e": ("embedding_size",),
    "h_y": ("head_size",),
    "T_v": ("token_types",),
    "V_t": ("embedding_rows",),
    "a": ("attention", "num_attention_heads"),
    "g": ("attention", "num_query_groups"),
    "d": ("attention", "kv_channels"),
    "r_q": ("attention", "q_lora_rank"),
    "r_k": ("attention", "kv_lora_rank"),
    "d_k": ("attention", "qk_head_dim"),
    "d_r": ("attention", "qk_pos_emb_head_dim"),
    "d_v": ("attention", "v_head_dim"),
    "k_x": ("attention", "dsa_indexer_topk"),
    "a_x": ("attention", "dsa_indexer_n_heads"),
    "d_x": ("attention", "dsa_indexer_head_dim"),
    "c_x": ("attention", "dsa_indexer_block"),
    "H_k": ("linear_attention", "linear_num_key_heads"),
    "H_v": ("linear_attention", "linear_num_value_heads"),
    "D_k": ("linear_attention", "linear_key_head_dim"),
    "D_v": ("linear_attention", "linear_value_head_dim"),
    "W_c": ("linear_attention", "linear_conv_kernel_dim"),
    "C_l": ("lightning_attention", "block_size"),
    "G_o": ("compressed_attention", "output_groups"),
    "r_o": ("compressed_attention", "output_rank"),
    "W_l": ("short_convolution", "conv_kernel_dim"),
    "H_m": ("mamba", "mamba_num_heads"),
    "D_m": ("mamba", "mamba_head_dim"),
    "G_m": ("mamba", "mamba_num_groups"),
    "N_m": ("mamba", "mamba_state_dim"),
    "W_m": ("mamba", "mamba_conv_kernel_dim"),
    "Q_m": ("mamba", "mamba_chunk_size"),
    "D_i": ("selective_scan", "channels"),
    "N_i": ("selective_scan", "state_dim"),
    "r_i": ("selective_scan", "step_rank"),
    "W_i": ("selective_scan", "conv_kernel_dim"),
    "n_r": ("hyper_connections", "streams"),
    "r_u": ("laurel_rank",),
    "r_n": ("norm_gate_rank",),
    "h_p": ("per_layer_input", "hidden_size"),
    "V_p": ("per_layer_input", "vocab_size"),
    "r_b": ("shared_block", "adapter_rank"),
    "f": ("mlp", "ffn_hidden_size"),
    "D": ("mtp_num_layers",),
    "E": ("moe", "num_moe_experts"),
    "K": ("moe", "moe_router_topk"),
    "f_e": ("moe", "moe_ffn_hidden_size"),
    "f_s": ("moe", "moe_shared_expert_intermediate_size"),
    "ell": ("moe", "moe_latent_size"),
}

# Numbers of the system but for those of its kernels, its exchanges and its tiers
MACHINE_SYMBOLS: dict[str, tuple[str, ...]] = {
    **{f"Phi_{kind}": ("accelerator", "peak", kind) for kind in ("bf16", "fp16", "fp8", "fp4", "fp32")},
    "n_sm": ("accelerator", "multiprocessors"),
    "B_hbm": ("accelerator", "memory_bandwidth"),
    "W_chip": ("accelerator", "power"),
    "c_chip": ("accelerator", "price"),
    "B_host": ("host", "bandwidth"),
    "B_drive": ("host", "drive"),
    "B_dram": ("host", "memory_bandwidth"),
    "t_launch": ("host", "launch"),
    "t_gather": ("host", "gather"),
}


def settable_symbols() -> list[str]:
    """By name, with the bandwidths of the first two tiers of a network."""
    return [*STRATEGY_SYMBOLS, *FREE_SYMBOLS, *ARCHITECTURE_SYMBOLS, *MACHINE_SYMBOLS, "B_1", "B_2"]
