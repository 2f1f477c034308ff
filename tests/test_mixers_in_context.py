"""Context parallelism of mixers that pass states from token to token: ranks have heads in place of tokens, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import check

H_K, H_V, D_K, D_V, TAPS, S = 4, 8, 8, 16, 4, 512
SECTION = {
    "linear_num_key_heads": H_K,
    "linear_num_value_heads": H_V,
    "linear_key_head_dim": D_K,
    "linear_value_head_dim": D_V,
    "linear_conv_kernel_dim": TAPS,
}


def mixer(kind: str, **more: Any) -> Architecture:
    return Architecture.model_validate(
        {
            "name": "small",
            "hidden_size": 64,
            "vocab_size": 96,
            "layers": "2 * linear",
            "layer_kinds": {"linear": {"mixer": kind, "ffn": "none"}},
            "attention": {"num_attention_heads": 4},
            "position_embedding": "none",
        }
        | more
    )


def delta_rule(**more: Any) -> Architecture:
    return mixer("linear_attention", linear_attention=SECTION | more)


def under(model: Architecture, tp: int, cp: int) -> Result:
    return derive(model, Strategy(seq_length=S, tp=tp, sp=tp > 1, cp=cp, cp_comm_type="p2p", fusion="te"), {"linear_attention_flops": "recurrence"})


QKV, Z, GATES = 2 * H_K * D_K + H_V * D_V, H_V * D_V, 2 * H_V
KDA = {"kind": "kda", "fused_in_proj": False, "linear_num_key_heads": H_V}
KDA_QKV, DECAY = 2 * H_V * D_K + H_V * D_V, H_V * D_K


@pytest.mark.parametrize(
    ("model", "widths"),
    [
        (delta_rule(), [QKV + Z, GATES, Z]),
        (delta_rule(fused_in_proj=False), [QKV, Z, H_V, H_V, Z]),
        (delta_rule(**KDA), [KDA_QKV, DECAY, H_V, Z, Z]),
    ],
    ids=["qwen3_next", "qwen3_5", "kda"],
)
@pytest.mark.parametrize(("tp", "cp"), [(1, 2), (2, 2)])
def test_all_that_a_delta_rule_reads_moves_to_heads_and_what_it_gates_moves_back(model: Architecture, widths: list[int], tp: int, cp: int) -> None:
    """Megatron-Core gated_delta_net/gdn.py a2a_cp_to_hp of q, k, v, z, b and a, and _gated_norm_and_a2a; kda.py of qkv, the decay, the gate and b."""
    result, alone = under(model, tp, cp), under(model, 1, 1)
    block = result.lowered.blocks["linear"]
    for messages in (block.differentiated.forward_messages, block.backward_messages):
        sent = sorted(int(m.send_elements.evaluate(result.numbers)) for _, m in messages if m.axis == "cp")
        assert sent == sorted(S // cp * width // tp for width in widths)
        assert {m.op for _, m in messages if m.axis == "cp"} == {"all_to_all"}
    for name in ("delta_rule", "conv1d"):
        assert result.value(f"X_linear_attention_{name}") * tp * cp == alone.value(f"X_linear_attention_{name}")


@pytest.mark.parametrize(
    ("model", "strategy", "said"),
    [
        (delta_rule(), {"cp": 8}, "does not divide linear_num_key_heads/tp=4"),
        (delta_rule(), {"tp": 3}, "tp=3 does not divide linear_num_key_heads=4"),
        (mixer("short_convolution", short_convolution={}), {"cp": 2}, "no framework that symsim knows runs a short convolution on parts"),
        (mixer("selective_scan", selective_scan={"channels": 128, "step_rank": 4}), {"cp": 2}, "no framework that symsim knows runs Mamba-1"),
        (mixer("selective_scan", selective_scan={"channels": 127, "step_rank": 4}), {"tp": 2, "sp": True}, "tp=2 does not divide selective_scan.ch"),
        (mixer("lightning_attention", lightning_attention={}), {"cp": 2}, "no framework that symsim knows runs lightning attention on parts"),
    ],
)
def test_what_no_framework_runs_is_refused(model: Architecture, strategy: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check(model, Strategy.model_validate(strategy | {"seq_length": S}))
