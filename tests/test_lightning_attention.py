"""Lightning attention: its FLOPs against PyTorch's counter, and what tensor parallelism makes of it."""

from __future__ import annotations

import pytest

from symsim.api.result import Result, derive
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy


def lightning(b: int, s: int, heads: int, d: int, block: int, tp: int = 1, **assumptions: str) -> Result:
    model = Architecture.model_validate(
        {
            "name": "lightning",
            "hidden_size": 32,
            "vocab_size": 128,
            "layers": "2 * linear",
            "layer_kinds": {"linear": {"mixer": "lightning_attention"}},
            "attention": {"num_attention_heads": heads, "kv_channels": d},
            "lightning_attention": {"block_size": block},
            "mlp": {"ffn_hidden_size": 96},
            "modelling": "minimax",
        }
    )
    return derive(model, Strategy(micro_batch_size=b, seq_length=s, tp=tp, sp=tp > 1), assumptions)


# b, s, heads, d, block; FlopCounterMode (torch 2.13) of transformers 5.23's MiniMaxLightningAttention less its projections, forward and backward
COUNTED = [
    (2, 48, 8, 8, 16, 589824, 1081344),
    (1, 40, 4, 6, 16, 78336, 147456),
    (3, 16, 2, 4, 16, 30720, 52224),
    (2, 7, 2, 4, 16, 4928, 7168),
]


@pytest.mark.parametrize(("b", "s", "heads", "d", "block", "forward", "backward"), COUNTED)
def test_blocks_as_flop_counter_mode_counts_them(b: int, s: int, heads: int, d: int, block: int, forward: int, backward: int) -> None:
    result = lightning(b, s, heads, d, block)
    assert result.value("F_linear_attention_lightning") == forward
    gradients = [float(v) for name, v in result.numbers.items() if name.startswith("G_linear_attention_lightning")]
    twice = 2 * (result.value("F_linear") - result.value("F_linear_attention_lightning"))
    assert not gradients or sum(gradients) == backward
    assert result.value("G_linear") - twice == backward


def test_the_recurrence_is_a_state_written_and_read() -> None:
    result = lightning(2, 48, 8, 8, 16, linear_attention_flops="recurrence")
    assert result.value("F_linear_attention_lightning") == 2 * 2 * 48 * 8 * 2 * 8 * 8


def test_tensor_ranks_hold_a_share_of_the_heads() -> None:
    """The norm is over all heads, so that its mean of squares is summed over tensor ranks."""
    whole, shared = lightning(1, 64, 4, 8, 16), lightning(1, 64, 4, 8, 16, tp=2)
    assert 2 * shared.value("X_linear_attention_lightning") == whole.value("X_linear_attention_lightning")
    said = [m.what for _, m in shared.lowered.blocks["linear"].differentiated.forward_messages if m.op == "all_reduce"]
    assert said == ["mean of squares in attention.norm"]
