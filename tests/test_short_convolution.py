"""The gated short convolution of LFM2: its FLOPs, and what tensor parallelism makes of it."""

from __future__ import annotations

from symsim.api.result import Result, derive
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy

H, TAPS, B, S = 64, 3, 2, 48
MODEL = Architecture.model_validate(
    {
        "name": "short",
        "hidden_size": H,
        "vocab_size": 128,
        "layers": "2 * conv",
        "layer_kinds": {"conv": {"mixer": "short_convolution"}},
        "attention": {"num_attention_heads": 4},
        "short_convolution": {"conv_kernel_dim": TAPS},
        "mlp": {"ffn_hidden_size": 96},
        "modelling": "lfm2",
    }
)


def derived(tp: int = 1, **assumptions: str) -> Result:
    return derive(MODEL, Strategy(micro_batch_size=B, seq_length=S, tp=tp, sp=tp > 1), assumptions)


def test_flops_of_each_product() -> None:
    result = derived()
    assert result.value("F_conv_attention_in_proj") == 2 * B * S * H * 3 * H
    assert result.value("F_conv_attention_out_proj") == 2 * B * S * H * H
    assert result.value("F_conv_attention_conv1d") == 2 * B * (S + TAPS - 1) * H * TAPS
    assert derived(linear_attention_flops="recurrence").value("F_conv_attention_conv1d") == 2 * B * S * H * TAPS


def test_tensor_ranks_hold_a_share_of_the_channels() -> None:
    """One gather into the layer and one reduce-scatter out of it for each half, as in any other: a channel needs no other one."""
    whole, shared = derived(), derived(tp=2)
    assert 2 * shared.value("X_conv_attention_conv1d") == whole.value("X_conv_attention_conv1d")
    assert 2 * shared.value("P_conv_attention_conv1d_weight") == whole.value("P_conv_attention_conv1d_weight")
    kinds = [message.op for _, message in shared.lowered.blocks["conv"].differentiated.forward_messages]
    assert sorted(kinds) == ["all_gather", "all_gather", "reduce_scatter", "reduce_scatter"]
