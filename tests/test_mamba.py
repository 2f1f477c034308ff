"""State-space mixers (Mamba-2): FLOPs, bytes kept, messages and parameters under every placement."""

from __future__ import annotations

from functools import cache

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import check


def mixer(heads: tuple[int, int], dims: tuple[int, int], taps: int, chunk: int, **more: object) -> Architecture:
    section = {
        "mamba_num_heads": heads[0],
        "mamba_num_groups": heads[1],
        "mamba_head_dim": dims[0],
        "mamba_state_dim": dims[1],
        "mamba_conv_kernel_dim": taps,
        "mamba_chunk_size": chunk,
    }
    return Architecture.model_validate(
        {
            "name": "ssm",
            "hidden_size": 64,
            "vocab_size": 96,
            "layers": "2 * linear",
            "layer_kinds": {"linear": {"mixer": "mamba", "ffn": "none"}},
            "attention": {"num_attention_heads": 4},
            "mamba": section | more,
            "position_embedding": "none",
        }
    )


@cache
def under(text: str = "", heads: tuple[int, int] = (16, 4), **assumptions: str) -> Result:
    """A mixer of 16 heads in 4 groups under a strategy of four numbers: tp, cp, b, s."""
    tp, cp, b, s = (int(n) for n in (text or "1 1 1 512").split())
    model = mixer(heads, (8, 32), 4, 128)
    return derive(model, Strategy(tp=tp, cp=cp, sp=tp > 1, micro_batch_size=b, seq_length=s), assumptions)


# b, s, (H, G), (D, N), taps, chunk; torch 2.13's FlopCounterMode of transformers 5.23's BambaMixer: bmm forward and backward, convolution forward
COUNTED = [
    (2, 11, (6, 2), (5, 7), 4, 4, 47424, 94848, 12992),
    (1, 64, (4, 1), (8, 16), 3, 64, 921600, 1843200, 25344),
    (3, 50, (4, 4), (6, 5), 4, 16, 380496, 760992, 81408),
]


@pytest.mark.parametrize(("b", "s", "heads", "dims", "taps", "chunk", "forward", "backward", "convolved"), COUNTED)
def test_the_torch_functions_as_flop_counter_mode_counts_them(
    b: int, s: int, heads: tuple[int, int], dims: tuple[int, int], taps: int, chunk: int, forward: int, backward: int, convolved: int
) -> None:
    result = derive(mixer(heads, dims, taps, chunk), Strategy(micro_batch_size=b, seq_length=s, fusion="eager"))
    assert result.value("F_linear_attention_ssd_scan") == forward
    assert result.value("F_linear_attention_ssd_conv1d") == convolved
    plain = derive(
        mixer(heads, dims, taps, chunk), Strategy(micro_batch_size=b, seq_length=s, fusion="eager"), {"linear_attention_flops": "recurrence"}
    )
    states = 2 * 2 * b * s * heads[0] * dims[0] * dims[1]
    assert plain.value("F_linear_attention_ssd_scan") == states
    taps_alone = 2 * plain.value("F_linear_attention_ssd_conv1d")
    assert result.value("G_linear") - (plain.value("G_linear") - 2 * states - taps_alone) == backward + 2 * convolved


def test_the_fused_kernels_multiply_c_with_b_once_a_group() -> None:
    """mamba_ssm ssd_combined.py: _bmm_chunk_fwd over groups, where torch repeats them for every head; states are passed on without a product."""
    result = under()
    h, d, n, g, q, s = 16, 8, 32, 4, 128, 512
    assert result.value("F_linear_attention_ssd_scores") == 2 * s * q * g * n
    assert result.value("F_linear_attention_ssd_states") == 2 * s * h * d * n
    assert result.value("F_linear_attention_ssd_scan") == 2 * s * h * d * (n + q)
    assert "F_linear_attention_ssd_passing" not in result.derivation.definitions


def kept(result: Result) -> dict[str, int]:
    return {item.name: int(item.bytes.evaluate(result.numbers)) for item in result.lowered.blocks["linear"].saved}


def test_the_fused_kernel_keeps_what_it_is_handed_and_what_it_scanned() -> None:
    """MambaSplitConv1dScanCombinedFn.save_for_backward: zxBCdt and the scan before its gate; the norm keeps its input and a statistic a group."""
    held = kept(under())
    s, inner, shared, heads = 512, 16 * 8, 4 * 32, 16
    assert {name: size for name, size in held.items() if name.startswith("attention.")} == {
        "attention.in_proj.out": 2 * s * (2 * inner + 2 * shared + heads),
        "attention.ssd.scanned": 2 * s * inner,
        "attention.ssd.gated": 2 * s * inner,
        "attention.ssd.rsigma": 4 * s * 4,
        "attention.ssd.normed": 2 * s * inner,
    }


def test_what_the_kernel_makes_again_is_recomputed_and_costs_no_memory_of_a_layer() -> None:
    result = under()
    again = {result.lowered.blocks["linear"].placed.block.ops[i].name for i in result.lowered.blocks["linear"].recomputed}
    assert again == {f"attention.ssd.{name}" for name in ("conv1d", "cumsum", "states", "passing", "scores")}


# (groups on a tensor rank) below, at and above the ranks of context parallelism
@pytest.mark.parametrize(("tp", "cp"), [(1, 2), (2, 2), (2, 4), (4, 4)])
def test_context_parallelism_moves_to_heads_before_the_convolution(tp: int, cp: int) -> None:
    """MambaContextParallel: z, x, B, C and dt one all-to-all each, B and C repeated where groups are fewer than ranks, and one for the result."""
    s, inner, groups, state, heads = 512, 16 * 8, 4, 32, 16
    own = max(groups // tp, cp)
    expected = sorted([s // cp * inner // tp] * 3 + [s // cp * own * state] * 2 + [s // cp * heads // tp])
    result = under(f"{tp} {cp} 1 512")
    block = result.lowered.blocks["linear"]
    for messages in (block.differentiated.forward_messages, block.backward_messages):
        sent = sorted(int(m.send_elements.evaluate(result.numbers)) for _, m in messages if m.op == "all_to_all")
        assert sent == expected
    # every rank scans whole sequences of its heads
    assert result.value("X_linear_attention_ssd_scan") * tp * cp == under().value("X_linear_attention_ssd_scan")
    channels = 2 * 512 * 4 * (inner // tp // cp + 2 * own * state // cp)
    assert result.value("X_linear_attention_ssd_conv1d") == channels


def test_tensor_parallelism_splits_what_megatron_splits() -> None:
    """mamba_mixer.py: in_proj by columns, conv1d, A_log, D, dt_bias and norm by heads and groups, out_proj by rows."""
    tp, h, inner, shared, heads, taps = 4, 64, 16 * 8, 4 * 32, 16, 4
    of_rank = h * (2 * inner + 2 * shared + heads) + (inner + 2 * shared) * (taps + 1) + 3 * heads + inner * h
    assert under(f"{tp} 1 1 512").value("P_linear_attention") == of_rank // tp
    assert under().value("P_linear_attention") == of_rank
    assert under(f"{tp} 1 1 512").value("P_linear_norm") == h + inner // tp


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"tp": 8, "sp": True}, "tp=8 does not divide mamba_num_groups=4; valid: 1, 2, 4$"),
        ({"cp": 2, "fusion": "eager"}, "cp=2 needs fusion=te"),
        ({"cp": 32}, "does not divide mamba_num_heads/tp=16; valid: 1, 2, 4, 8, 16$"),
    ],
)
def test_what_cannot_run_is_refused(strategy: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check(mixer((16, 4), (8, 32), 4, 128), Strategy.model_validate(strategy))


NEMOTRON = {"model_type": "nemotron_h", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "hybrid_override_pattern": "M-M*ME"}


def test_letters_of_a_hybrid_stack_are_layers() -> None:
    read = read_config(NEMOTRON, "small", "config.json")[0]
    assert [k for segment in read.layers for _ in range(segment.repeat) for k in segment.kinds] == ["mamba", "dense", "mamba", "full", "mamba", "moe"]
    kinds = read.layer_kinds
    assert [(kinds[k].mixer, kinds[k].ffn) for k in ("mamba", "dense", "full")] == [("mamba", "none"), ("none", "mlp"), ("attention", "none")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hybrid_override_pattern": "M-X"}, "'hybrid_override_pattern' must be a text of the letters M"),
        ({"layers_block_type": ["mamba", "conv"]}, "names 'conv'"),
        ({"mamba_hidden_act": "gelu"}, "only silu is supported"),
        ({"model_type": "bamba", "num_hidden_layers": 2, "intermediate_size": 9, "vocab_size": 9, "mamba_d_head": 7}, "mamba_d_head"),
    ],
)
def test_a_config_that_does_not_read_says_why(change: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(NEMOTRON | change, "small", "config.json")
