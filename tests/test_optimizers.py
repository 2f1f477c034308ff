"""Optimizers by their states and passes: bytes and FLOPs from each weight's shape, against PyTorch's own."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, get_args

import pytest
from test_megatron_rules import model

from symsim.api.result import Result, derive
from symsim.cost.compressed import momentum_messages
from symsim.cost.matrices import Weight, weights_of
from symsim.cost.orthogonal import orthogonal_messages, update_products
from symsim.cost.reduce import update_messages
from symsim.errors import InputError
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

# h 64, 8 heads of 8 in 2 groups, f 96, V 256; eager: every projection a matrix
H, V, F, KV = 64, 256, 96, 16
MATRICES = [(H, H), (KV, H), (KV, H), (H, H), (F, H), (F, H), (H, F)]
TABLES = [(V, H), (V, H)]
VECTORS = 3 * H
SMALL = VECTORS + 2 * KV * H  # in tensors below 4,096 numbers
IN_MATRICES, IN_TABLES = sum(r * c for r, c in MATRICES), 2 * V * H


def made(optimizer: str = "adam", **given: Any) -> Result:
    plain = {"fusion": "eager", "precision": "fp32", "zero": 0, "seq_length": 16}
    return derive(model(), Strategy(**{**plain, "optimizer": optimizer, **given}))


def kept(result: Result) -> Fraction:
    """Bytes of states on the only rank, the copy that is updated not among them."""
    return Fraction(result.stage_numbers(result.stages[0])["M_stage_optimizer"])


def flops(result: Result) -> int:
    return sum(int(p.flops.evaluate(result.stage_numbers(result.stages[0]))) for p in update_products(result.lowered))


def shapes(result: Result) -> list[tuple[Weight, int, int, int]]:
    """Of every weight: it, its rows, columns, and how many there are."""
    at = result.stage_numbers(result.stages[0])
    return [(w, *(int(x.evaluate(at)) for x in (w.rows, w.columns, w.count * w.times))) for w in weights_of(result.lowered)]


def test_every_option_is_a_row() -> None:
    assert set(get_args(Strategy.model_fields["optimizer"].annotation)) == set(OPTIMIZERS)


def test_weights_are_matrices_of_their_own_shape() -> None:
    found = shapes(made())
    assert sorted((r, c) for w, r, c, _ in found if w.matrix and not w.vocabulary) == sorted(MATRICES)
    assert [(r, c) for w, r, c, _ in found if w.vocabulary] == TABLES
    assert all(n == 1 for *_, n in found)


@pytest.mark.parametrize("given", [{}, {"tp": 2}, {"fusion": "te", "precision": "bf16", "pp": 2}, {"mixture": True, "ep": 2, "dp": 2}])
def test_weights_are_all_parameters_of_a_stage(given: dict[str, Any]) -> None:
    small = model(layers=2, moe={"num_moe_experts": 4} if given.pop("mixture", False) else None, tie_word_embeddings="tp" in given)
    result = derive(small, Strategy(**given))
    for stage in result.stages:
        at = result.stage_numbers(stage)
        sums = {e: sum((w.elements * w.times).evaluate(at) for w in weights_of(result.lowered) if w.expert == e) for e in (False, True)}
        assert sums == {False: at["P_stage_dense"], True: at["P_stage_expert"]}


def test_states_of_every_parameter_alike() -> None:
    n = IN_MATRICES + IN_TABLES + VECTORS
    moments = {"adam": 8, "sgd": 0, "sgd_momentum": 4, "lion": 4, "rmsprop": 4, "ademamix": 12, "lamb": 8, "adam_mini": 4}
    for name, each in moments.items():
        assert kept(made(name)) == each * n, name
    blocks, each = n - SMALL, 1 + Fraction(4, 256)
    assert kept(made(optimizer_bits=8)) == 2 * (blocks * each + 4 * SMALL)
    assert kept(made(optimizer_bits=4)) == 2 * (blocks * (Fraction(1, 2) + Fraction(4, 128)) + 4 * SMALL)
    assert kept(made("lion", optimizer_bits=8)) == blocks * each + 4 * SMALL


def test_moments_in_blocks_of_small_and_odd_tensors() -> None:
    """Bytes that bitsandbytes 0.50.2 makes of a Llama of 72 wide: tensors below 4,096 numbers in fp32, 7,200 numbers in 29 blocks."""
    sizes = {"hidden_size": 72, "vocab_size": 65, "intermediate_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2}
    odd = read_config({"model_type": "llama", "num_hidden_layers": 2, "pad_token_id": 0} | sizes, "odd", "odd")[0]
    for name, states in (("adam", 234_784), ("lion", 117_392)):
        found = derive(odd, Strategy(fusion="eager", precision="fp32", zero=0, seq_length=16, optimizer=name, optimizer_bits=8))
        assert kept(found) == states
    # 5,184, 7,200 and 4,680 are no multiples of 128: torchao keeps all in fp32
    four = derive(odd, Strategy(fusion="eager", precision="fp32", zero=0, seq_length=16, optimizer_bits=4))
    assert kept(four) == 8 * 84_024


def test_moments_of_embeddings_in_fp32() -> None:
    """transformers' create_optimizer asks bitsandbytes for 32 bits of every nn.Embedding: of a table, also a tied one, but not of an output layer."""
    each, wide = 1 + Fraction(4, 256), V * H + SMALL
    blocks = IN_MATRICES + IN_TABLES + VECTORS - wide
    assert kept(made(optimizer_bits=8, fp32_embedding_moments=True)) == 2 * (blocks * each + wide * 4)
    assert kept(made("lion", optimizer_bits=8, fp32_embedding_moments=True)) == blocks * each + wide * 4
    narrow, wide = (
        derive(load_model("gpt2").architecture, Strategy(fusion="eager", zero=0, optimizer_bits=8, fp32_embedding_moments=w)) for w in (0, 1)
    )
    assert kept(wide) - kept(narrow) == 2 * (50257 + 1024) * 768 * (4 - each)
    shared = [kept(made(optimizer_bits=8, fp32_embedding_moments=w, zero=1, dp=2)) for w in (False, True)]
    assert shared[1] - shared[0] == V * H * (4 - each)
    at = load_system("h100-sxm")
    of_update = [
        float(derive(load_model("gpt2").architecture, Strategy(fusion="eager", optimizer_bits=8, fp32_embedding_moments=w), system=at).value("t_opt"))
        for w in (0, 1)
    ]
    assert of_update[1] > of_update[0]


def test_states_by_shape() -> None:
    factors = sum(r + c for r, c in MATRICES + TABLES)
    assert kept(made("adafactor")) == 4 * (factors + VECTORS)
    assert kept(made("came")) == 4 * (2 * factors + IN_MATRICES + IN_TABLES + 2 * VECTORS)
    assert kept(made("muon")) == 4 * IN_MATRICES + 8 * (IN_TABLES + VECTORS)
    longer, shorter = (sum(pick(8, m) for m in MATRICES) for pick in (lambda r, m: r * max(m), lambda r, m: r * min(m)))
    assert kept(made("apollo", optimizer_rank=8)) == 8 * longer + 4 * shorter + 8 * (IN_TABLES + VECTORS)
    assert kept(made("galore", optimizer_rank=8)) == 8 * longer + 4 * shorter + 8 * (IN_TABLES + VECTORS)
    # singular vectors are no more than rows, random numbers are (apollo_torch 1.0.3, of which a step of a model keeps so many bytes)
    most, square = (sum(min(m) * side(m) for m in MATRICES) for side in (max, min))
    assert kept(made("galore", optimizer_rank=4096)) == 8 * most + 4 * square + 8 * (IN_TABLES + VECTORS)
    sizes = {"hidden_size": 72, "vocab_size": 65, "intermediate_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2}
    odd = read_config({"model_type": "llama", "num_hidden_layers": 2, "pad_token_id": 0} | sizes, "odd", "odd")[0]
    for name, rank, states in (("galore", 8, 180_672), ("galore", 56, 740_544), ("apollo", 8, 180_672), ("apollo", 56, 798_144)):
        plain = {"fusion": "eager", "precision": "fp32", "zero": 0, "seq_length": 16}
        assert kept(derive(odd, Strategy(**plain, optimizer=name, optimizer_rank=rank))) == states


def test_a_table_of_positions_is_a_table() -> None:
    """GPT-2's, of whose 1,024 rows Adafactor keeps a number each, and one of each column: it was taken for a vector of 786,432."""
    gpt2 = load_model("gpt2").architecture
    found = derive(gpt2, Strategy(fusion="eager", optimizer="adafactor", precision="fp32"))
    layers = 12 * 4 * (2304 + 768 + 768 + 768 + 3072 + 768 + 768 + 3072 + 2304 + 768 + 3072 + 768 + 4 * 768)
    assert kept(found) == layers + 4 * (50257 + 768 + 1024 + 768 + 2 * 768)


# configs, and bytes of states after a step of transformers 5.24's Adafactor
_STORED = {
    "gpt_oss": (
        {
            "intermediate_size": 24,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 8,
        },
        6352,
    ),
    # weights of all experts in matrices of two dimensions, gate and up apart
    "dbrx": (
        {"d_model": 32, "n_heads": 4, "n_layers": 6, "vocab_size": 121, "attn_config": {"kv_n_heads": 2}}
        | {"ffn_config": {"ffn_hidden_size": 80, "moe_num_experts": 8, "moe_top_k": 1}},
        56_072,
    ),
    # norms of queries and keys are matrices of a row for every head
    "cohere": (
        {"vocab_size": 688, "hidden_size": 64, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4, "use_qk_norm": True}
        | {"num_key_value_heads": 4, "tie_word_embeddings": True},
        6_976,
    ),
    # projections of streams are modules of a list
    "gemma3n_text": (
        {"vocab_size": 819, "hidden_size": 96, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1}
        | {"head_dim": 32, "max_position_embeddings": 97, "sliding_window": 31, "layer_types": None, "num_kv_shared_layers": 1}
        | {"hidden_size_per_layer_input": 9, "vocab_size_per_layer_input": 575, "altup_correct_scale": False},
        51_500,
    ),
    "lfm2": (
        {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "block_auto_adjust_ff_dim": False}
        | {"layer_types": ["conv", "full_attention"]},
        5184,
    ),
    "falcon_mamba": ({"state_size": 4, "intermediate_size": 32, "conv_kernel": 4, "time_step_rank": 2}, 4480),
    "qwen2_moe": (
        {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "num_experts": 4}
        | {"num_experts_per_tok": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        10344,
    ),
}


@pytest.mark.parametrize("kind", _STORED)
def test_factors_of_what_no_product_reads(kind: str) -> None:
    """Experts' biases, decays of states, convolutions, a gate of one row: matrices as modelling code stores them, to no other optimizer."""
    config, states = _STORED[kind]
    common = {} if kind == "dbrx" else {"num_hidden_layers": 2, "hidden_size": 16, "vocab_size": 64}
    small = read_config({"model_type": kind, "pad_token_id": 0} | common | config, kind, kind)[0]
    found = derive(small, Strategy(fusion="eager", precision="fp32", zero=0, seq_length=16, optimizer="adafactor"))
    assert kept(found) == states
    assert not any(w.matrix for w in weights_of(found.lowered) if w.stored)


def test_a_bias_that_corrects_a_router_has_no_states() -> None:
    """requires_grad=False (transformers models/ernie4_5_moe): a parameter that what experts got moves, not the optimizer."""
    config = {"model_type": "ernie4_5_moe", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96}
    config |= {"intermediate_size": 128, "moe_intermediate_size": 32, "moe_num_experts": 4, "moe_k": 2, "num_hidden_layers": 3}
    result = derive(read_config(config, "ernie", "ernie")[0], Strategy(fusion="eager", precision="fp32", zero=0, seq_length=16))
    blocks = {name: [t for t in made.placed.block.parameters() if "e_score" in t.name] for name, made in result.lowered.blocks.items()}
    layers = sum(segment.repeat * sum(bool(blocks[kind]) for kind in segment.kinds) for segment in result.model.layers)
    experts = result.model.moe.num_moe_experts  # type: ignore[union-attr]
    assert result.value("params.total") - kept(result) / 8 == layers * experts > 0


def test_blocks_of_modules_of_a_list() -> None:
    """Gemma 3n's projections of streams have 1,024 numbers each, of which bitsandbytes keeps moments in fp32; the six were one tensor of 6,144."""
    config = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"num_key_value_heads": 1, "head_dim": 16, "num_kv_shared_layers": 0}
    config |= {"vocab_size_per_layer_input": 256, "hidden_size_per_layer_input": 8}
    small = read_config({"model_type": "gemma3n_text", "pad_token_id": 0} | config, "x", "x")[0]
    # of the parameters that transformers 5.24 makes of it, in whole blocks of 256, or 4 bytes a moment of fewer than 4,096
    found = derive(small, Strategy(fusion="eager", precision="fp32", zero=0, seq_length=16, optimizer_bits=8))
    assert kept(found) == 283_072


@pytest.mark.parametrize(
    ("optimizer", "precision", "states", "temporaries"),
    [
        ("came", "fp32", 356_048, 144_068),
        ("came", "bf16", 356_048, 172_834),
        ("adafactor", "fp32", 10_696, 86_468),
        ("adafactor", "bf16", 10_696, 144_068),
    ],
)
def test_what_factored_updates_hold(optimizer: str, precision: str, states: int, temporaries: int) -> None:
    """Bytes after a step of came_pytorch's CAME and transformers 5.24's Adafactor, and what the step held at most beside what there was: also of bf16
    parameters moments are of gradients in fp32. A few bytes are scalars."""
    sizes = {"hidden_size": 72, "vocab_size": 65, "intermediate_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2}
    odd = read_config({"model_type": "llama", "num_hidden_layers": 2, "pad_token_id": 0} | sizes, "odd", "odd")[0]
    plain: dict[str, Any] = {"fusion": "eager", "precision": precision, "main_params_dtype": precision, "zero": 0, "seq_length": 16}
    found = derive(odd, Strategy(**plain, optimizer=optimizer))
    assert kept(found) == states
    assert 0 <= temporaries - 4 * int(found.stage_numbers(found.stages[0])["P_stage_looped"]) < 100


def test_parameters_that_rest_have_no_states() -> None:
    resting = made("adafactor", freeze_parameters=("embedding", "lm_head"))
    assert kept(made("adafactor")) - kept(resting) == 4 * sum(r + c for r, c in TABLES)


def test_sharded_factors_of_rows_and_whole_ones_of_columns() -> None:
    rows, columns = (sum(m[side] for m in MATRICES + TABLES) for side in (0, 1))
    assert kept(made("adafactor", zero=1, dp=4)) == 4 * (Fraction(rows, 4) + columns + Fraction(VECTORS, 4))


def newton_schulz(k: int, n: int, rounds: int = 5) -> int:
    return rounds * (2 * k * k * n + 2 * k**3 + 2 * k * k * n)


def test_rounds_of_newton_schulz() -> None:
    assert flops(made("muon")) == sum(newton_schulz(min(m), max(m)) for m in MATRICES)
    assert flops(made("muon", muon_num_ns_steps=3)) == sum(newton_schulz(min(m), max(m), 3) for m in MATRICES)
    assert flops(made("muon", zero=1, dp=4)) == sum(newton_schulz(min(m), max(m)) for m in MATRICES) / 4
    # projected to 8 rows, and back
    assert flops(made("apollo", optimizer_rank=8)) == sum(2 * 8 * r * c for r, c in MATRICES)
    assert flops(made("galore", optimizer_rank=8)) == 2 * sum(2 * 8 * r * c for r, c in MATRICES)


def test_queries_keys_and_values_in_one_weight() -> None:
    """Under te q, k and v are one weight, as gate and up are: Muon takes the three apart unless told."""
    halves = [(H, H), (KV, H), (KV, H), (H, H), (2 * F, H), (H, F)]
    together = [(H + 2 * KV, H), (H, H), (2 * F, H), (H, F)]
    for split, shapes_of in ((True, halves), (False, together)):
        result = made("muon", fusion="te", precision="bf16", muon_split_qkv=split)
        assert flops(result) == sum(newton_schulz(min(m), max(m)) for m in shapes_of)
    cut = [(r // 2, c) if at not in (3, 5) else (r, c // 2) for at, (r, c) in enumerate(halves)]
    assert flops(made("muon", fusion="te", precision="bf16", tp=2)) == sum(newton_schulz(min(m), max(m)) for m in cut)
    # Adafactor's factors are of the weight as it is stored
    assert {(r, c) for w, r, c, _ in shapes(made("adafactor", fusion="te", precision="bf16")) if not w.vocabulary and w.matrix} == set(together)


def test_what_updates_all_that_is_no_matrix() -> None:
    assert kept(made("muon", muon_scalar_optimizer="lion")) == 4 * (IN_MATRICES + IN_TABLES + VECTORS)


def test_the_type_that_rounds_multiply_in() -> None:
    system, large = load_system("h100-sxm"), load_model("llama3-8b").architecture

    def seconds(how: str) -> float:
        return float(derive(large, Strategy(optimizer="muon", muon_fp32_matmul_prec=how), system=system).value("t_opt"))

    medium, high, highest = (seconds(how) for how in ("medium", "high", "highest"))
    # products of these sizes wait for the multipliers: 494.7 and 66.9 TFLOP/s in place of 989.4
    assert 1.5 < high / medium < 2 < 989.4 / 66.9 / 2 < highest / medium < 989.4 / 66.9


def test_matrices_that_tensor_parallelism_cuts() -> None:
    """Rows of q, k, v, gate and up; columns of the two that follow."""
    cut = [(r // 2, c) if at not in (3, 6) else (r, c // 2) for at, (r, c) in enumerate(MATRICES)]
    assert flops(made("muon", tp=2)) == sum(newton_schulz(min(m), max(m)) for m in cut)
    assert flops(made("muon", tp=2, muon_tp_mode="duplicated")) == sum(newton_schulz(min(m), max(m)) for m in MATRICES)
    # the side that is whole on every rank
    together = [(c, r // 2) if at not in (3, 6) else (r, c // 2) for at, (r, c) in enumerate(MATRICES)]
    assert flops(made("muon", tp=2, muon_tp_mode="distributed")) == sum(newton_schulz(*m) for m in together)

    def sent(mode: str) -> list[tuple[str, str, int, int]]:
        result = made("muon", tp=2, muon_tp_mode=mode)
        at = result.stage_numbers(result.stages[0])
        return [(m.op, m.dtype, int(m.send_elements.evaluate(at)), int(m.count.evaluate(at))) for m in orthogonal_messages(result.lowered)]

    assert sent("blockwise") == []
    assert sorted(sent("duplicated")) == sorted(("all_gather", "fp32", r * c // 2, 1) for r, c in MATRICES)
    assert sent("distributed") == [("all_reduce", "bf16", H * H, 5)] * len(MATRICES)


def test_the_update_takes_the_seconds_of_its_products_and_passes() -> None:
    system, small = load_system("h100-sxm"), load_model("qwen3-0.6b").architecture
    seconds = {}
    for name in ("adam", "muon", "lion", "lamb"):
        result = derive(small, Strategy(seq_length=512, optimizer=name), system=system)
        seconds[name] = float(result.value("t_opt"))
    # 28 layers of seven matrices; 0.44e9 parameters in them at 15 k FLOPs each
    work = 5 * 28 * sum(4 * k * k * n + 2 * k**3 for k, n in [(1024, 4096), (1024, 2048), (1024, 6144), (1024, 3072)])
    assert seconds["muon"] - seconds["lion"] > work / 989e12
    moved = 12 * 596_049_920 / 3.35e12
    assert seconds["lamb"] - seconds["adam"] == pytest.approx(moved, rel=0.25)
    # fp32 matrices alone: 168 and 84 bytes a parameter in all as PyTorch's operations read and write
    plain = {"seq_length": 512, "precision": "fp32", "fusion": "eager", "clip_grad": False}
    whole = {n: float(derive(small, Strategy(**plain, optimizer=n), system=system).value("t_opt")) for n in ("sgd", "came", "adafactor")}
    # sgd has 12, adam 28
    each = (float(derive(small, Strategy(**plain), system=system).value("t_opt")) - whole["sgd"]) / 16
    assert (whole["came"] - whole["sgd"]) / each == pytest.approx(168 - 12, rel=0.01)
    assert (whole["adafactor"] - whole["sgd"]) / each == pytest.approx(84 - 12, rel=0.01)


@pytest.mark.parametrize(
    ("optimizer", "how", "precision", "moved"),
    [
        # bytes a parameter, as a step of each reads and writes in torch's operations, one by one (transformers 5.24's Adafactor, torch 2.13's AdamW);
        # a kernel alone moves 28 and 14
        ("adam", "fused", "fp32", 28),
        ("adam", "fused", "bf16", 14),
        ("adam", "foreach", "fp32", 80),
        ("adam", "for_loop", "fp32", 80),
        ("adam", "foreach", "bf16", 40),
        ("adafactor", "fused", "fp32", 84),
        ("adafactor", "fused", "bf16", 102),
        # two kernels: gradient, parameter and two moments, these written; parameter and moments again, the parameter written
        ("lamb", "fused", "fp32", 40),
        # DeepSpeed runtime/fp16/onebit
        ("onebit_adam", "fused", "fp32", 88),
        ("onebit_lamb", "fused", "fp32", 216),
        ("zero_one_adam", "fused", "fp32", 108),
    ],
)
def test_what_an_update_moves(optimizer: str, how: str, precision: str, moved: int) -> None:
    system, small = load_system("h100-sxm"), load_model("qwen3-0.6b").architecture
    plain: dict[str, Any] = {
        "seq_length": 512,
        "precision": precision,
        "main_params_dtype": precision,
        "fusion": "eager",
        "clip_grad": False,
        "zero": 0,
        "grad_reduce_in_fp32": False,
    }

    def seconds(name: str, implementation: str) -> float:
        return float(derive(small, Strategy(**plain, optimizer=name), {"optimizer_implementation": implementation}, system=system).value("t_opt"))

    width = 4 if precision == "fp32" else 2
    # sgd has gradient and parameter, Adam's kernel both moments besides
    sgd = seconds("sgd", "fused")
    each = (seconds("adam", "fused") - sgd) / (4 * width)
    assert (seconds(optimizer, how) - sgd) / each == pytest.approx(moved - 3 * width, rel=0.01)


def test_parameters_that_kernels_take_beside_tensors() -> None:
    """xIELU's two numbers and Gemma 4's scale of every expert are read by no product."""
    for name, model_name in (("galore", "apertus-8b"), ("adafactor", "apertus-8b"), ("came", "gemma-4-26b-a4b")):
        result = derive(load_model(model_name).architecture, Strategy(fusion="eager", optimizer=name), system=load_system("h200-sxm"))
        assert result.value("memory.optimizer") > 0 and result.stage_numbers(result.stages[0])["M_at_optimizer"] > 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"optimizer": "sgd", "optimizer_bits": 8}, "optimizer_bits=8 needs an optimizer with moments, and sgd keeps none"),
        (
            {"fp32_embedding_moments": True},
            "fp32_embedding_moments=true says which moments are in fp32 all the same, and needs optimizer_bits=8 or 4, of an optimizer that takes "
            "every number alike, on the device",
        ),
        ({"optimizer": "muon", "zero": 2, "dp": 2}, "optimizer=muon takes whole matrices on their owner, which zero=2 cuts; use zero=1"),
        ({"optimizer": "galore", "zero": 3, "dp": 2}, "optimizer=galore takes whole gradients, which zero=3 cuts; use zero=1"),
        (
            {"optimizer_bits": 8, "exp_avg_dtype": "bf16", "fusion": "eager"},
            "optimizer_bits=8 says the type of moments, which exp_avg_dtype and exp_avg_sq_dtype do too",
        ),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        derive(model(), Strategy(**given))
    assert str(caught.value) == says


def test_the_states_that_torch_keeps() -> None:
    """torch.optim on tensors of these shapes, a step each; counters of steps are not counted."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    counter = pytest.importorskip("torch.utils.flop_counter")
    tables = [torch.nn.Parameter(torch.ones(s)) for s in [*TABLES, (H,), (H,), (H,)]]
    matrices = [torch.nn.Parameter(torch.randn(s)) for s in MATRICES]
    everything = [*tables, *matrices]
    for p in everything:
        p.grad = torch.ones_like(p)

    def states(*optimizers: Any) -> int:
        for one in optimizers:
            one.step()
        values = [v for one in optimizers for state in one.state.values() for name, v in state.items() if name != "step"]
        return sum(v.numel() * v.element_size() for v in values)

    optim = torch.optim
    assert kept(made("adam")) == states(optim.AdamW(everything))
    assert kept(made("sgd_momentum")) == states(optim.SGD(everything, momentum=0.9))
    assert kept(made("rmsprop")) == states(optim.RMSprop(everything)) == states(optim.Adagrad(everything))
    assert kept(made("adafactor")) == states(optim.Adafactor(everything))
    assert kept(made("muon")) == states(optim.Muon(matrices), optim.AdamW(tables))
    with counter.FlopCounterMode(display=False) as counted:
        optim.Muon(matrices).step()
    assert flops(made("muon")) == counted.get_total_flops()


@pytest.mark.parametrize("name, moments", [("onebit_adam", 2), ("onebit_lamb", 3)])
def test_momenta_of_one_bit(name: str, moments: int) -> None:
    """Signs to their owners and back, a bit a number each way, no gradient; what the bits leave out is kept of all and of the owned share. A rank
    alone sends nothing, and keeps moments alone."""
    ranks, n = 4, IN_MATRICES + IN_TABLES + VECTORS
    alone, together, adam = made(name), made(name, dp=ranks), made("adam", dp=ranks)
    assert kept(alone) == 4 * moments * n and kept(together) == 4 * moments * n + 4 * n + n
    at = together.stage_numbers(together.stages[0])
    sent = {m.op: [x for x in momentum_messages(together.lowered) if x.op == m.op] for m in momentum_messages(together.lowered)}
    assert not momentum_messages(alone.lowered) and not momentum_messages(adam.lowered)
    signs = sum(int((m.payload_bytes * m.count).evaluate(at)) for m in sent["all_to_all"])
    assert n / 8 <= signs < n / 8 + ranks * len(sent["all_to_all"])
    ways = [m for m in sent["all_gather"] if m.dtype == "int8"]
    assert signs == sum(int((m.payload_bytes * m.count).evaluate(at)) for m in ways)
    assert not [m for m in update_messages(together.lowered, together.derivation) if "gradient" in m.what]
    assert [m for m in update_messages(adam.lowered, adam.derivation) if "gradient" in m.what]
    with pytest.raises(InputError, match=f"optimizer={name} keeps whole momenta on every rank, and zero=1 cuts them; use zero=0"):
        made(name, dp=ranks, zero=1)


def test_steps_alone_send_in_one_of_so_many() -> None:
    """0/1 Adam: a state more than 1-bit Adam, and of its messages and passes a share of the steps; every step writes the sum of its updates."""
    ranks, n = 4, IN_MATRICES + IN_TABLES + VECTORS
    assert kept(made("zero_one_adam", dp=ranks)) - kept(made("onebit_adam", dp=ranks)) == 4 * n

    def sent(name: str, **more: int) -> list[tuple[str, Fraction]]:
        result = made(name, dp=ranks, **more)
        at = result.stage_numbers(result.stages[0])
        return [(m.op, Fraction((m.payload_bytes * m.count).evaluate(at))) for m in momentum_messages(result.lowered)]

    each = sent("onebit_adam")
    assert sent("zero_one_adam", local_step_clipper=1) == each
    assert sent("zero_one_adam") == [(op, count / 16) for op, count in each]
    system, free = load_system("h100-sxm"), {"B_1": "1e9 GB/s", "alpha_1": "0 s", "lambda_1": "0 s"}
    at = [
        {**r.numbers, **r.stage_numbers(r.stages[0])}
        for name in ("onebit_adam", "zero_one_adam")
        for r in [derive(model(), Strategy(zero=0, dp=4, optimizer=name, local_step_clipper=10**6), overrides=free, system=system)]  # type: ignore[arg-type]
    ]
    held, rate = at[0]["P_stage_dense"], at[0]["B_hbm"] * at[0]["eta_mem"]
    bits = held * (12 + 4 + 62 + 24.125 + 30.125 + 4 + 30.125 + 8) + held * (12 + 4 + 62 + 24.125) / 4
    assert at[0]["t_opt_stage"] - at[1]["t_opt_stage"] == pytest.approx(float((bits - held * (12 + 8)) / rate), rel=0.02)


def test_bits_are_made_in_passes_over_all_numbers() -> None:
    """On an H100 whose network takes no time an update of one bit takes longer by the bytes that it moves."""
    system = load_system("h100-sxm")
    free = {"B_1": "1e9 GB/s", "alpha_1": "0 s", "lambda_1": "0 s"}
    at = [derive(model(), Strategy(zero=0, dp=4, optimizer=o), overrides=free, system=system) for o in ("adam", "onebit_adam")]
    plain, bits = ({**r.numbers, **r.stage_numbers(r.stages[0])} for r in at)
    held, rate = bits["P_stage_dense"], bits["B_hbm"] * bits["eta_mem"]
    extra = held * (12 + 4 + 62 + 24.125 + 30.125 + 4 + 30.125 + 8) + held * (12 + 4 + 62 + 24.125) / 4
    scaled = 2 * 4 * held
    assert bits["t_opt_stage"] - plain["t_opt_stage"] == pytest.approx(float((extra - scaled + held * 60) / rate), rel=0.01)
