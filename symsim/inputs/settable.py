"""The names that --set knows: symbols, dotted paths and bare names, and the place that each stands for."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

from pydantic import BaseModel

from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.curves import SYMBOLS as KERNEL_SYMBOLS
from symsim.inputs.shipped import list_systems
from symsim.inputs.system import DISPATCHERS, Accelerator, Host, Peak
from symsim.inputs.systems import load_system
from symsim.ir.collectives import COLLECTIVES

# Symbols of the vocabulary that stand for one field of the strategy or of the architecture
STRATEGY_SYMBOLS = {
    "s": "seq_length",
    "u": "packed_document_length",
    "b": "micro_batch_size",
    "m": "num_microbatches",
    "inst": "num_distributed_optimizer_instances",
    "group": "microbatch_group_size_per_vp_stage",
    "r": "lora_rank",
}
# Symbols that neither determines: a measurement of the user's
FREE_SYMBOLS = ("lam",)
ARCHITECTURE_SYMBOLS: dict[str, tuple[str, ...]] = {
    "h": ("hidden_size",),
    "V": ("vocab_size",),
    "L": ("num_layers",),
    "P": ("position_embedding_rows",),
    "h_e": ("embedding_size",),
    "T_v": ("token_types",),
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
    "H_k": ("linear_attention", "linear_num_key_heads"),
    "H_v": ("linear_attention", "linear_num_value_heads"),
    "D_k": ("linear_attention", "linear_key_head_dim"),
    "D_v": ("linear_attention", "linear_value_head_dim"),
    "W_c": ("linear_attention", "linear_conv_kernel_dim"),
    "C_l": ("lightning_attention", "block_size"),
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
    "r_b": ("shared_block", "adapter_rank"),
    "f": ("mlp", "ffn_hidden_size"),
    "D": ("mtp_num_layers",),
    "E": ("moe", "num_moe_experts"),
    "K": ("moe", "moe_router_topk"),
    "f_e": ("moe", "moe_ffn_hidden_size"),
    "f_s": ("moe", "moe_shared_expert_intermediate_size"),
    "ell": ("moe", "moe_latent_size"),
}

# Symbols of the time formulas that stand for one number of the system; those of its tiers carry the tier's place
SYSTEM_SYMBOLS: dict[str, tuple[str, ...]] = {
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
    **{f"B_sm_{name}": ("accelerator", "exchange", name) for name in DISPATCHERS},
    **{name: ("kernels", *path) for name, path in KERNEL_SYMBOLS.items()},
}
_TIER_SYMBOL = re.compile(rf"(R|B|C|alpha|lambda|eta)_([1-9][0-9]{{0,2}})(?:_({'|'.join(COLLECTIVES)}))?")
_CALL_SYMBOL = re.compile(rf"lambda_([1-9][0-9]{{0,2}})_({'|'.join(('default', *COLLECTIVES, *DISPATCHERS))})_([1-9][0-9]*)")
_EXCHANGE_SYMBOL = re.compile(rf"eta_([1-9][0-9]{{0,2}})_({'|'.join(DISPATCHERS)})_([1-9][0-9]*)")
_TIER_FIELDS = {"R": "ranks", "B": "bandwidth", "C": "ring", "alpha": "latency", "lambda": "launch", "eta": "efficiency"}
_SYSTEM_PARTS = ("accelerator", "kernels", "network", "host")

_SECTIONS = ("attention", "linear_attention", "lightning_attention", "short_convolution", "mamba", "selective_scan", "mlp", "moe")


def system_path(name: str) -> tuple[str, ...] | None:
    """Where a system keeps the number that --set calls `name`: a symbol, or a dotted path."""
    if name in SYSTEM_SYMBOLS:
        return SYSTEM_SYMBOLS[name]
    call = _CALL_SYMBOL.fullmatch(name)
    if call is not None:
        return ("network", call[1], "calls", call[2], call[3])
    exchange = _EXCHANGE_SYMBOL.fullmatch(name)
    if exchange is not None:
        return ("network", exchange[1], "exchange", exchange[2], exchange[3])
    tier = _TIER_SYMBOL.fullmatch(name)
    if tier is not None and (tier[1] == "eta") == (tier[3] is not None):
        return ("network", tier[2], _TIER_FIELDS[tier[1]], *([tier[3]] if tier[3] else []))
    path = tuple(name.split("."))
    return path if path[0] in _SYSTEM_PARTS and len(path) > 1 and all(path) else None


@cache
def architecture_keys() -> dict[str, tuple[str, ...]]:
    """Every name under which --set finds a field of the architecture: symbols, dotted paths, and bare names that are unique."""
    paths: list[tuple[str, ...]] = [("num_layers",)]
    for name, field in Architecture.model_fields.items():
        if name in _SECTIONS:
            section = next(t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type) and issubclass(t, BaseModel))
            paths += [(name, inner) for inner in section.model_fields]
        elif name not in ("layers", "layer_kinds", "norms"):
            paths.append((name,))
    bare = [path[-1] for path in paths]
    keys = {".".join(path): path for path in paths}
    keys |= {path[-1]: path for path in paths if bare.count(path[-1]) == 1}
    return keys | ARCHITECTURE_SYMBOLS


def architecture_fields() -> list[str]:
    """Names under which --set finds a field of the architecture, without symbols: bare where that is unique, else dotted."""
    return [name for name in architecture_keys() if name not in ARCHITECTURE_SYMBOLS]


@cache
def other_settings() -> dict[str, str]:
    """Every other setting by its full name, and what kind of thing it is."""
    tiers = dict.fromkeys(tier.name for system in list_systems() for tier in load_system(system).network)
    numbers = [f"network.{tier}.bandwidth" for tier in tiers]
    numbers += [f"accelerator.{n}" for n in Accelerator.model_fields if n != "peak"] + [f"accelerator.peak.{n}" for n in Peak.model_fields]
    numbers += [f"host.{n}" for n in Host.model_fields]
    return {
        **dict.fromkeys(numbers, "a number of the system"),
        **dict.fromkeys(architecture_fields(), "a field of the model"),
        **dict.fromkeys((f"assume.{a}" for a in ASSUMPTIONS), "an assumption"),
    }
