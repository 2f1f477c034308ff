"""Hybrid stacks and state-space models of transformers: parameters by module and forward FLOPs, as counted on the meta device.

Facts of transformers 5.23 and torch 2.13, of 2 rows of 11 tokens; `tests/draws/huggingface.py` draws many more.
"""

from __future__ import annotations

from typing import Any

import pytest
from gemma_cases import EQUAL_KEYS, LAYERS

from symsim.api.result import Result, derive
from symsim.cost.count import MODULES, count
from symsim.errors import InputError
from symsim.inputs.assumptions import resolve
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy
from symsim.lowering.lower import lower

FALCON_H1 = {
    "model_type": "falcon_h1",
    "vocab_size": 106,
    "hidden_size": 96,
    "intermediate_size": 6,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "mamba_n_heads": 4,
    "mamba_n_groups": 2,
    "mamba_d_state": 19,
    "mamba_chunk_size": 11,
    "mamba_conv_bias": False,
    "mamba_d_ssm": 36,
}
MAMBA2 = {
    "model_type": "mamba2",
    "vocab_size": 378,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "n_groups": 3,
    "chunk_size": 19,
    "num_heads": 3,
    "head_dim": 64,
    "state_size": 9,
    "tie_word_embeddings": True,
}
ZAMBA2 = {
    "model_type": "zamba2",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"],
    "num_mem_blocks": 2,
    "n_mamba_heads": 8,
    "mamba_ngroups": 2,
    "mamba_d_state": 8,
    "chunk_size": 16,
    "adapter_rank": 6,
    "use_shared_attention_adapter": True,
    "use_mem_rope": True,
    "add_bias_linear": True,
}
GEMMA4 = LAYERS | {
    "model_type": "gemma4_text",
    "vocab_size": 100,
    "hidden_size": 64,
    "global_head_dim": 24,
    "use_double_wide_mlp": True,
    "vocab_size_per_layer_input": 90,
}
OLMO_HYBRID = {
    "model_type": "olmo_hybrid",
    "vocab_size": 90,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
LING = {
    "model_type": "bailing_hybrid",
    "vocab_size": 727,
    "hidden_size": 112,
    "intermediate_size": 12,
    "moe_intermediate_size": 136,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "n_shared_experts": 2,
    "kv_lora_rank": 134,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 1,
    "attention_bias": True,
    "num_local_experts": 4,
    "head_dim": 12,
    "mlp_layer_types": ["sparse", "sparse", "sparse", "dense", "dense"],
}

MAMBA = {"model_type": "mamba", "vocab_size": 386, "hidden_size": 30, "num_hidden_layers": 1, "use_bias": True, "use_conv_bias": False}
FALCON_MAMBA = {"model_type": "falcon_mamba", "vocab_size": 888, "hidden_size": 64, "num_hidden_layers": 5, "conv_kernel": 5}
JAMBA = {
    "model_type": "jamba",
    "vocab_size": 662,
    "hidden_size": 16,
    "intermediate_size": 140,
    "num_hidden_layers": 6,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_experts": 4,
    "mamba_d_state": 19,
    "attn_layer_period": 4,
    "attn_layer_offset": 1,
    "mamba_dt_rank": 4,
}

# of Ling no FLOPs: torch's code of its delta rule makes scores elementwise, which no counter counts
COUNTED: dict[str, tuple[dict[str, Any], dict[str, int], int | None]] = {
    "falcon_h1": (FALCON_H1, {"embedding": 10176, "mlp": 6912, "attention": 184624, "norm": 864, "lm_head": 10176}, 9767808),
    "mamba2": (MAMBA2, {"embedding": 36288, "norm": 672, "attention": 124014}, 8267544),
    "mamba": (MAMBA, {"embedding": 11580, "norm": 60, "attention": 9030}, 897840),
    "falcon_mamba": (FALCON_MAMBA, {"embedding": 56832, "norm": 384, "attention": 163840}, 9676288),
    "jamba": (
        JAMBA,
        {"embedding": 10592, "attention": 17408, "norm": 376, "mlp": 20160, "router": 192, "experts": 80640, "lm_head": 10592},
        3921792,
    ),
    "bailing_hybrid": (
        LING,
        {
            "embedding": 81424,
            "attention": 333320,
            "norm": 1292,
            "experts": 548352,
            "router": 1344,
            "shared_experts": 274176,
            "mlp": 8064,
            "lm_head": 81424,
        },
        None,
    ),
    "bailing_hybrid, a latent of queries": (
        LING | {"q_lora_rank": 24, "layer_group_size": 2},
        {
            "embedding": 81424,
            "attention": 1104148,
            "norm": 1584,
            "experts": 548352,
            "router": 1344,
            "shared_experts": 274176,
            "mlp": 8064,
            "lm_head": 81424,
        },
        None,  # transformers 5.24, whose fallback of a delta rule multiplies elementwise (tests/draws/huggingface.py)
    ),
    "olmo_hybrid": (OLMO_HYBRID, {"embedding": 5760, "mlp": 73728, "norm": 708, "attention": 48600, "lm_head": 5760}, 12098048),
    "gemma4_text": (GEMMA4, {"embedding": 17488, "attention": 81920, "norm": 2196, "mlp": 156672}, 11447040),
    "gemma4_text, keys as values": (GEMMA4 | EQUAL_KEYS, {"embedding": 6400, "attention": 78336, "norm": 1840, "mlp": 110592}, 9059072),
    "zamba2": (ZAMBA2, {"embedding": 6400, "attention": 270112, "norm": 1408, "mlp": 54272}, 19876864),
}


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_and_flops_of_transformers(name: str) -> None:
    config, modules, flops = COUNTED[name]
    strategy, assumptions = Strategy(fusion="eager", micro_batch_size=2, seq_length=11), resolve({})
    lowered = lower(read_config(config, name, "config.json")[0], strategy, assumptions)
    result = Result(lowered.profile.model, strategy, assumptions, lowered, count(lowered), {})
    assert {m: int(result.value(f"N_{m}")) for m in MODULES if result.numbers.get(f"N_{m}")} == modules
    if flops is not None:
        assert int(result.value("F")) == flops


def test_mixers_beside_each_other_read_one_norm_and_are_added() -> None:
    """Under tensor parallelism with sequence parallelism each gathers what it reads, times its own factor, and their partial sums are scattered."""
    model = read_config(FALCON_H1, "small", "config.json")[0]
    result = derive(model, Strategy(seq_length=64, tp=2, sp=True))
    block = next(iter(result.lowered.blocks[kind] for kind in model.kind_names()))
    sent = [m.op for _, m in block.differentiated.forward_messages if m.axis == "tp"]
    assert sorted(sent) == ["all_gather"] * 3 + ["reduce_scatter"] * 3  # the mixers and the network


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FALCON_H1 | {"mamba_rms_norm": True}, "'mamba_norm_before_gate' must be false where mamba_rms_norm is true"),
        (FALCON_H1 | {"mamba_d_head": 7}, "'mamba_d_head' must be the 36 channels"),
        (MAMBA2 | {"hidden_act": "gelu"}, "only silu is supported"),
        (MAMBA2 | {"num_heads": 4}, "'head_dim' must be expand . hidden_size, which is 192, over num_heads 4"),
        (JAMBA | {"attn_layer_offset": 4}, "'attn_layer_offset' must be below attn_layer_period 4"),
        (ZAMBA2 | {"tie_word_embeddings": False}, "transformers then shares no block either"),
        (ZAMBA2 | {"layers_block_type": ["attention"] * 5}, "names 'attention', which this model_type does not have"),
        (ZAMBA2 | {"num_key_value_heads": 2}, "num_attention_heads with use_shared_attention_adapter"),
        (GEMMA4 | {"num_kv_shared_layers": 5}, "'num_kv_shared_layers' must be so few that a layer of every type"),
        (GEMMA4 | {"num_key_value_heads": 3}, "'num_key_value_heads' must be a divisor of num_attention_heads 4"),
        (GEMMA4 | {"use_bidirectional_attention": "all"}, "'use_bidirectional_attention' is all, but only causal attention"),
        (GEMMA4 | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8}, "'top_k_experts' must be at most"),
        (GEMMA4 | {"layer_types": ["mamba"] * 6}, "names 'mamba', which this model_type does not have"),
        (OLMO_HYBRID | {"layer_types": ["full_attention"] * 4}, "layers of one type alone, and transformers asks for both"),
        (LING | {"layer_types": ["mamba"] * 5}, "names 'mamba', which this model_type does not have"),
    ],
)
def test_a_config_that_does_not_read_says_why(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(change, "small", "config.json")


def test_tensor_parallelism_sums_what_steps_and_matrices_are_made_of() -> None:
    """Channels are a rank's own; steps, B and C are sums over all of them, which x_proj completes over the ranks. Nothing else is sent inside."""
    model = read_config(MAMBA | {"hidden_size": 64}, "small", "config.json")[0]
    result = derive(model, Strategy(seq_length=64, tp=2, fusion="te"))
    block = result.lowered.blocks[model.kind_names()[0]]
    sent = [(m.op, int(m.send_elements.evaluate(result.numbers))) for _, m in block.differentiated.forward_messages]
    assert sent == [("all_reduce", 64 * (4 + 2 * 16)), ("all_reduce", 64 * 64)]
    kept = {item.name.removeprefix("attention.scan."): int(item.bytes.evaluate(result.numbers)) for item in block.saved}
    # selective_scan_interface.py save_for_backward: a decay and a state in fp32 once in 2,048 tokens, and what was scanned before its gate
    assert (kept["states"], kept["scanned"]) == (4 * 64 * 2 * 16, 2 * 64 * 64)
