"""The gated delta net of Qwen3-Next: its FLOPs under both conventions."""

from __future__ import annotations

from pathlib import Path

import pytest

from symsim.api.result import Result, derive
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import format_model, load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system


def gated_delta_net(b: int, s: int, heads: tuple[int, int], dims: tuple[int, int], taps: int, **assumptions: str) -> Result:
    (h_k, h_v), (d_k, d_v) = heads, dims
    linear = {
        "linear_num_key_heads": h_k,
        "linear_num_value_heads": h_v,
        "linear_key_head_dim": d_k,
        "linear_value_head_dim": d_v,
        "linear_conv_kernel_dim": taps,
    }
    model = Architecture.model_validate(
        {
            "name": "gdn",
            "hidden_size": 64,
            "vocab_size": 100,
            "layers": "2 * linear",
            "layer_kinds": {"linear": {"mixer": "linear_attention"}},
            "attention": {"num_attention_heads": 4},
            "linear_attention": linear,
            "mlp": {"ffn_hidden_size": 96},
            "modelling": "qwen3_next",
        }
    )
    return derive(model, Strategy(micro_batch_size=b, seq_length=s, fusion="eager"), assumptions)


# b, s, (H_k, H_v), (D_k, D_v), taps; FlopCounterMode (torch 2.13) of transformers 5.23's torch_chunk_gated_delta_rule, forward
# and backward, and of causal_conv1d_fn, forward
COUNTED = [
    (2, 11, (2, 6), (5, 7), 4, 1832448, 4629504, 13888),
    (1, 64, (1, 1), (8, 4), 3, 176128, 434176, 7920),
    (2, 200, (2, 4), (16, 12), 4, 13893632, 34340864, 363776),
    (1, 130, (2, 2), (6, 10), 2, 1219584, 3164160, 23056),
]


@pytest.mark.parametrize(("b", "s", "heads", "dims", "taps", "forward", "backward", "convolved"), COUNTED)
def test_chunks_as_flop_counter_mode_counts_them(
    b: int, s: int, heads: tuple[int, int], dims: tuple[int, int], taps: int, forward: int, backward: int, convolved: int
) -> None:
    result = gated_delta_net(b, s, heads, dims, taps)
    assert result.value("F_linear_attention_delta_rule") == forward
    assert result.value("F_linear_attention_conv1d") == convolved
    plain = gated_delta_net(b, s, heads, dims, taps, linear_attention_flops="recurrence")
    once, twice = plain.value("F_linear_attention_delta_rule"), 2 * plain.value("F_linear_attention_conv1d")
    same = plain.value("G_linear") - 2 * once - twice
    assert result.value("G_linear") - same == backward + 2 * convolved


@pytest.mark.parametrize(("b", "s", "heads", "dims", "taps"), [case[:5] for case in COUNTED])
def test_the_recurrence_is_four_state_products_a_head_and_token(b: int, s: int, heads: tuple[int, int], dims: tuple[int, int], taps: int) -> None:
    """Megatron-LM training.py gdn_layer_flops, which has d_v squared for d_k d_v."""
    result = gated_delta_net(b, s, heads, dims, taps, linear_attention_flops="recurrence")
    (h_k, h_v), (d_k, d_v) = heads, dims
    assert result.value("F_linear_attention_delta_rule") == 2 * b * s * h_v * 4 * d_k * d_v
    assert result.value("F_linear_attention_conv1d") == 2 * b * s * taps * (2 * h_k * d_k + h_v * d_v)


def test_what_rests_on_the_convention_says_so() -> None:
    definitions = gated_delta_net(1, 64, (1, 1), (8, 4), 3).derivation.definitions
    for name in ("F_linear_attention_delta_rule", "F_linear_attention_conv1d", "G_linear"):
        assert "linear_attention_flops" in definitions[name].assumptions, name


def test_a_rank_computes_its_share_of_the_heads_and_of_the_sequence() -> None:
    model = gated_delta_net(1, 4096, (4, 8), (8, 8), 4).model
    whole, shared = (derive(model, Strategy(seq_length=4096, tp=tp, cp=cp, sp=tp > 1, cp_comm_type="a2a")) for tp, cp in ((1, 1), (2, 2)))
    assert shared.value("F_linear_attention_delta_rule") == whole.value("F_linear_attention_delta_rule")
    assert shared.value("X_linear_attention_delta_rule") * 4 == whole.value("X_linear_attention_delta_rule")


# b, s, heads, D; FlopCounterMode (torch 2.13) of transformers 5.23's chunk_kimi_delta_attention, forward and backward, which makes the scores of
# a chunk (of keys with keys, of queries with keys) elementwise, so that they are not among these
COUNTED_BY_CHANNEL = [(2, 11, 3, 8, 1327104, 2457600), (1, 130, 2, 6, 967680, 1898496), (2, 200, 2, 4, 1671168, 3309568)]


@pytest.mark.parametrize(("b", "s", "heads", "d", "forward", "backward"), COUNTED_BY_CHANNEL)
def test_a_decay_for_every_channel(b: int, s: int, heads: int, d: int, forward: int, backward: int) -> None:
    plain = gated_delta_net(b, s, (heads, heads), (d, d), 4).model
    assert plain.linear_attention is not None
    own = plain.linear_attention.model_copy(update={"kind": "kda"})
    result = derive(plain.model_copy(update={"linear_attention": own}), Strategy(micro_batch_size=b, seq_length=s), {})
    scores = 2 * 2 * b * 64 * -(-s // 64) * heads * 64 * d
    assert result.value("F_linear_attention_delta_rule") - scores == forward
    others = result.value("F_linear") - result.value("F_linear_attention_delta_rule")
    assert result.value("G_linear") - 2 * others - 2 * scores == backward


def test_a_rank_has_its_share_of_the_channels() -> None:
    plain = gated_delta_net(1, 64, (2, 2), (8, 8), 4).model
    assert plain.linear_attention is not None
    model = plain.model_copy(update={"linear_attention": plain.linear_attention.model_copy(update={"kind": "kda"})})
    shared = derive(model, Strategy(seq_length=64, tp=2, sp=True))
    assert 2 * shared.value("X_linear_attention_delta_rule") == shared.value("F_linear_attention_delta_rule")
    assert 2 * shared.value("P_linear_attention_conv1d_weight") == shared.value("N_linear_attention_conv1d_weight")


def test_te_runs_one_product_however_the_modelling_code_splits_it(tmp_path: Path) -> None:
    written = format_model(load_model("qwen3-next-80b-a3b").architecture)
    models = [tmp_path / "one.yaml", tmp_path / "four.yaml"]
    models[0].write_text(written)
    models[1].write_text(written.replace("linear_attention:\n  linear", "linear_attention:\n  fused_in_proj: false\n  linear"))
    assert models[0].read_text() != models[1].read_text()
    for fusion, same in (("te", True), ("eager", False)):
        one, four = (derive(load_model(str(place)).architecture, Strategy(fusion=fusion), {}, system=load_system("h100-sxm")) for place in models)
        assert one.value("memory.peak") == four.value("memory.peak")
        assert (one.value("time.step") == four.value("time.step")) is same
