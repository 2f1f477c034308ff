"""One count of the bytes that a kernel reads and writes in HBM: what a report gives is what its seconds are made of.

With multipliers that take no time, no starts and a bandwidth of one byte a second, a kernel's seconds are its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from symsim.algebra.expr import Number
from symsim.algebra.key import of_block
from symsim.api.result import Result, derive
from symsim.cost.kernel_time import PLAIN, launches
from symsim.inputs import curves
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.report.kernels import block_kernels

CASES: dict[str, tuple[str, dict[str, object], dict[str, str]]] = {
    "dense": ("llama3-8b", {"tp": 2, "sp": True}, {}),
    "native loss": ("llama3-8b", {"cross_entropy_fusion": "native", "cp": 2}, {}),
    "te loss": ("qwen3-0.6b", {"cross_entropy_fusion": "te", "tp": 2, "grad_reduce_in_fp32": False}, {}),
    "whole logits": ("llama3-8b", {"tp": 2}, {"loss_parallel": "false"}),
    "written-out attention": ("gpt3-175b", {"tp": 8, "sp": True, "seq_length": 2048}, {"attention_kernel": "math"}),
    "written-out, few groups": ("llama3-8b", {"tp": 2}, {"attention_kernel": "math"}),
    "fp8": ("llama3-8b", {"tp": 2, "sp": True, "fp8": "mxfp8"}, {}),
    "experts": ("mixtral-8x7b", {"ep": 4, "dp": 4, "tp": 2, "sp": True, "etp": 1}, {}),
    "fused experts": ("qwen3-30b-a3b", {"ep": 8, "dp": 8, "fp8": "mxfp8", "use_transformer_engine_op_fuser": True}, {}),
    "experts one by one": ("mixtral-8x7b", {"ep": 2, "dp": 2}, {"moe_grouped_gemm": "false"}),
    "experts with biases": ("gpt-oss-20b", {"ep": 4, "dp": 4}, {}),
    "latent attention": ("deepseek-v3", {"tp": 4, "sp": True, "ep": 8, "dp": 8}, {}),
    "latent attention, turned in place": ("deepseek-v3", {"tp": 4, "sp": True, "ep": 8, "dp": 8}, {"apply_rope_fusion": "true"}),
    "recurrence": ("qwen3-next-80b-a3b", {"ep": 8, "dp": 8}, {}),
    "windows": ("gemma-2-9b", {"tp": 2, "sp": True}, {}),
    "op by op": ("gpt2", {"fusion": "eager", "seq_length": 1024}, {"attention_kernel": "eager"}),
    "op by op, math": ("gpt2", {"fusion": "eager", "seq_length": 1024}, {"attention_kernel": "math"}),
    "op by op, experts": ("mixtral-8x7b", {"fusion": "eager", "ep": 4, "dp": 4}, {"attention_kernel": "eager"}),
    "op by op, sinks": ("gpt-oss-20b", {"fusion": "eager"}, {"attention_kernel": "eager"}),
}
FUSED = {"use_transformer_engine_op_fuser": True}


def made(name: str) -> Result:
    model, strategy, assumptions = CASES[name]
    return derive(load_model(model).architecture, Strategy(**strategy), assumptions, system=load_system("h200-sxm"))  # type: ignore[arg-type]


def at_one_byte_a_second(result: Result) -> Mapping[str, Number]:
    known = dict(result.values)
    known |= {n: Fraction(10) ** 60 for n in known if n.startswith("Phi")}
    known |= {n: 1 for n in known if n.startswith(("eta_", "phi_"))} | {n: 0 for n in known if n.startswith(("phi_", "t_", "tau_"))}
    # of a machine whose attention has no passes beside its backward (tests/test_curves.py has what these move)
    return known | {"B_hbm": 1, "sigma_fab": 0}


def whole(value: Number) -> Fraction:
    """Bytes, without the 10^-40 that multipliers of 10^60 FLOP/s leave."""
    nearest = Fraction(round(Fraction(value) * 2**20), 2**20)
    assert abs(nearest - Fraction(value)) < Fraction(1, 10**9)
    return nearest


@pytest.mark.parametrize("name", CASES)
def test_bytes_of_a_kernel_are_those_of_its_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "SLOWER", {})
    result = made(name)
    known, book = at_one_byte_a_second(result), result.derivation
    wrong = []
    for block, remembered in result.lowered.blocks.items():
        backward = Fraction(0)
        for kernel in remembered.differentiated.backward:
            op = remembered.placed.block.ops[kernel.forward]
            seconds = whole(book.formula(of_block("t", block, operation=op.name, phase=kernel.label).text).value(known))
            bytes = Fraction(book.formula(of_block("U", block, operation=op.name, phase=kernel.label).text).value(known))
            backward += bytes
            if seconds != bytes and (seconds or not flash(op)):
                wrong.append((block, op.name, kernel.label, bytes, seconds))
        assert backward == book.formula(f"U_{block}").value(known)
        for op in remembered.placed.block.ops:
            if of_block("t", block, operation=op.name, phase="forward") not in book:
                assert of_block("Q", block, operation=op.name) not in book
                continue
            seconds, bytes = (
                Fraction(whole(book.formula(key.text).value(known)))
                for key in (of_block("t", block, operation=op.name, phase="forward"), of_block("Q", block, operation=op.name))
            )
            if seconds != bytes and (seconds or not flash(op)):
                wrong.append((block, op.name, "forward", bytes, seconds))
    assert not wrong


def flash(op: object) -> bool:
    """Flash attention takes its seconds from the multipliers alone: whatever it moves is inside the share that it reaches."""
    return op.kind == "attention" and not any("scores" in t or "probabilities" in t for t in op.outputs)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["written-out attention", "dense", "fp8"])
def test_the_report_gives_the_same_bytes(name: str) -> None:
    result = made(name)
    for block in result.lowered.blocks:
        for kernel in block_kernels(result, block):
            letter, phase = ("Q", "") if kernel.phase == "forward" else ("U", kernel.phase)
            assert kernel.bytes == float(result.value(of_block(letter, block, operation=kernel.operation, phase=phase).text))


def test_an_experts_second_bias_is_added_in_fp32() -> None:
    """28 bytes an element forward and 40 backward for the kernels of Megatron-Core's _apply_bias, counted one by one."""
    forward = sum((4, 2 + 4 + 4, 4 + 4, 4 + 2))
    backward = sum((2 + 4, 4 + 2, 2 + 2, 2 * (4 + 4 + 4)))
    apart = made("experts with biases")
    model, strategy, _ = CASES["experts with biases"]
    fused = derive(load_model(model).architecture, Strategy(**strategy, **FUSED), system=load_system("h200-sxm"))  # type: ignore[arg-type]
    block, rows = "full_moe", 4096 * 4 * 2880
    second = [of_block(quantity, block, operation="experts.fc2", phase=phase).text for quantity, phase in (("Q", ""), ("U", "dgrad"), ("U", "wgrad"))]
    assert [apart.value(name) - fused.value(name) for name in second] == [forward * rows, backward * rows, 0]
    first = [of_block(quantity, block, operation="experts.fc1", phase=phase).text for quantity, phase in (("Q", ""), ("U", "dgrad"))]
    assert [apart.value(name) for name in first] == [fused.value(name) for name in first]


def test_an_experts_second_bias_starts_kernels_for_every_expert() -> None:
    """Two forward and six backward for each expert of a rank, and two for all each way, moving one element at a time, which takes twice as long."""
    apart = made("experts with biases")
    model, strategy, _ = CASES["experts with biases"]
    fused = derive(load_model(model).architecture, Strategy(**strategy, **FUSED), system=load_system("h200-sxm"))  # type: ignore[arg-type]
    assert apart.model.moe is not None
    start, moved = float(apart.values["t_mem"]), 1 / (apart.values["B_hbm"] * apart.values["eta_mem"])
    experts, rows = apart.model.moe.num_moe_experts // apart.strategy.ep, 4096 * 4 * 2880
    for phase, bytes, kernels in (("forward", 28, 2 * experts + 2), ("dgrad", 40, 6 * experts + 2)):
        name = of_block("t", "full_moe", operation="experts.fc2", phase=phase).text
        assert float(apart.value(name) - fused.value(name)) == pytest.approx(2 * bytes * rows * moved + kernels * start)


def test_a_kernel_of_pytorchs_own_is_launched_in_a_quarter_of_the_time() -> None:
    """10 of 40 us: the bias of an expert's second product has two forward and six backward for each expert, and two for all."""
    result = made("experts with biases")
    placed, profile = result.lowered.blocks["full"].placed, result.lowered.profile
    at = {op.name: i for i, op in enumerate(placed.block.ops)}
    experts = 8
    second, first, turned = (at[name] for name in ("moe.experts.fc2", "moe.experts.fc1", "attention.rope_q"))
    assert launches(placed, second, profile).evaluate(result.values) == experts + Fraction(2 * experts + 2, 4)
    assert launches(placed, second, profile, "dgrad").evaluate(result.values) == experts + Fraction(6 * experts + 2, 4)
    assert launches(placed, second, profile, "wgrad").evaluate(result.values) == experts
    assert launches(placed, first, profile).evaluate(result.values) == experts
    assert launches(placed, turned, profile).evaluate(result.values) == 12 * Fraction(1, 4)
    # a weight gradient has no kernels of a bias: two grouped products, the router's, and attention's two
    seconds = result.derivation.definitions["t_w_full"].expr
    assert str(seconds).endswith("2*E*t_launch/ep + 3*t_launch)")


def test_a_rotary_embedding_in_kernels() -> None:
    """24 bytes an element forward and 34 backward, each product, sum and copy by itself (megatron.core rope_utils.py): whatever fusion is
    asked for where YaRN scales them."""
    forward = 2 * (1 + 2 + 2 + 2 + 3 + 2)
    backward = 2 * (2 + 2 + 1 + 2 + 3 + (1 + 2) + 1 + 3)
    model, strategy, _ = CASES["experts with biases"]
    found = derive(load_model(model).architecture, Strategy(**strategy), {"apply_rope_fusion": "true"}, system=load_system("h200-sxm"))  # type: ignore[arg-type]
    block, queries = "full", 4096 * 64 * 64
    names = [of_block(letter, block, operation="attention.rope_q", phase=phase).text for letter, phase in (("Q", ""), ("U", "backward"))]
    assert [found.value(name) for name in names] == [forward * queries, backward * queries]
    start, moved = found.values["t_mem"], 1 / (found.values["B_hbm"] * found.values["eta_mem"])
    seconds = [found.value(of_block("t", block, operation="attention.rope_q", phase=phase).text) for phase in ("forward", "backward")]
    assert seconds == [2 * bytes * queries * moved + 12 * start for bytes in (forward, backward)]


def test_a_clamped_glu_by_hand() -> None:
    """f: rows times width of half of the first product. Forward clamps each half (2 + 2) and joins them (2 + 2); backward takes the joint
    gradient apart (2 + 2), and for gate and values compares (2 + 1, twice 2 + 1 and 1 + 1 + 1) and chooses (1 + 2 + 2). Both the product's
    result and the joined halves are kept. The second bias is inside as well (28 and 40 bytes an element)."""
    apart = made("experts with biases")
    model, strategy, _ = CASES["experts with biases"]
    fused = derive(load_model(model).architecture, Strategy(**strategy, **FUSED), system=load_system("h200-sxm"))  # type: ignore[arg-type]
    half = 4096 * 4 * 2880
    assert apart.value("Q_full") - fused.value("Q_full") == (2 * 4 + 2 * 4 + 28) * half
    assert apart.value("U_full") - fused.value("U_full") == (2 * 4 + (3 + 5) + (3 + 3 + 3 + 5) + 40) * half
    start, moved = apart.values["t_mem"], 1 / (apart.values["B_hbm"] * apart.values["eta_mem"])
    assert apart.value(of_block("t", "full_moe", operation="experts.act.clamp", phase="forward").text) == 2 * 4 * half * moved + start
    kept = [made_so.value("A_full") for made_so in (apart, fused)]
    assert kept[0] - kept[1] == 2 * 2 * half


def test_the_fused_rotary_embedding_of_latent_attention_turns_queries_in_place() -> None:
    """64 of 192 numbers of 32 heads on a rank are read and written; tables of 64 cosines and sines in 16 bits beside them."""
    model, strategy, _ = CASES["latent attention"]
    plain, fused = (
        made("latent attention"),
        derive(
            load_model(model).architecture,
            Strategy(**strategy),
            {"apply_rope_fusion": "true"},
            system=load_system("h200-sxm"),  # type: ignore[arg-type]
        ),
    )
    turned, whole, tables = 2 * 2 * 4096 * 32 * 64, 2 * 2 * 4096 * 32 * 192, 2 * 2 * 4096 * 64
    for letter, phase in (("Q", ""), ("U", "backward")):
        name = of_block(letter, "moe", operation="attention.rope_q", phase=phase).text
        assert fused.value(name) == turned + tables
        assert plain.value(name) >= whole + tables


def test_fused_experts_by_hand() -> None:
    """f: rows times width. Apart, the activation moves 2 f + f and backward 2 f + 2 f + f in 16 bits, and what it makes is read and cast both ways
    (2 + 2 bytes an element of f, and of 2 f). Inside the products, results are written in both FP8 forms (2 f, and 2 x 2 f), the first product's
    are read again in backward (2 x 2 f), and the second's dgrad writes none (2 f). Beside them the probabilities of rows."""
    model, strategy, _ = CASES["fused experts"]
    apart = derive(load_model(model).architecture, Strategy(**{**strategy, **dict.fromkeys(FUSED, False)}), system=load_system("h200-sxm"))  # type: ignore[arg-type]
    fused, rows, scales = made("fused experts"), 4096 * 8, Fraction(1, 32)
    f, product = rows * 768, rows * 2048 + 768 * 2048 * 16

    def moved(result: Result, letter: str, *kernels: str) -> Number:
        named = (of_block(letter, "moe", operation=f"moe.experts.{k.split()[0]}", phase=(k.split() + [""])[1]).text for k in kernels)
        return sum(Fraction(result.value(name)) for name in named)

    forward, backward = ("act", "fc2.quantise"), ("act backward", "fc1 cast", "fc2 dgrad")
    assert moved(apart, "Q", *forward) == 2 * 3 * f + (2 + 2 * (1 + scales)) * f + 2 * rows
    assert moved(fused, "Q", *forward) == 2 * (1 + scales) * f
    assert moved(apart, "U", *backward) == 2 * 5 * f + (2 + 2) * 2 * f + 2 * f + product + 4 * rows
    assert moved(fused, "U", *backward) == 2 * 2 * f + 2 * 2 * f + product + 2 * rows
    started = {"fc1_quantise": (1, 1 + PLAIN * 15), "fc1": (1, 16), "act": (0, 1), "fc2_quantise": (0, 1 + PLAIN * 15), "fc2": (1, 16)}
    for n, result in enumerate((fused, apart)):
        placed, profile = result.lowered.blocks["moe"].placed, result.lowered.profile
        found = {op.name.removeprefix("moe.experts.").replace(".", "_"): i for i, op in enumerate(placed.block.ops)}
        for name, expected in started.items():
            assert launches(placed, found[name], profile).evaluate(result.values) == expected[n]
    start = float(fused.values["t_mem"])
    assert float(fused.value("t_f_moe_moe_experts_fc1_quantise")) == pytest.approx(
        float(apart.value("t_f_moe_moe_experts_fc1_quantise")) - 15 * start
    )


def test_a_narrow_output_layer() -> None:
    """fp8_output_proj: its products at the rate of FP8, its input and the gradient of its logits cast in both forms, and nothing else."""
    model = load_model("llama3-8b").architecture
    wide, narrow = (
        derive(model, Strategy(fp8="mxfp8", fp8_output_proj=on), {"gemm_tiles": "ignored"}, system=load_system("b200-sxm")) for on in (False, True)
    )
    assert float(narrow.value("t_f_head_lm_head_lm_head")) < 0.6 * float(wide.value("t_f_head_lm_head_lm_head"))
    assert narrow.value("U_head_lm_head_lm_head_cast") == 4096 * 128256 * (2 + 2)
    assert narrow.value("t_f_dense") == wide.value("t_f_dense")


def test_the_loss_in_ten_kernels() -> None:
    """Unfused cross entropy: 38 bytes a logit forward and 14 backward (megatron.core tensor_parallel/cross_entropy.py)."""
    result = made("dense")
    logits = 4096 * 128256 // 2
    assert result.value("Q_head_loss_cross_entropy") == 38 * logits
    assert result.value("U_head_loss_cross_entropy_backward") == 14 * logits
    stage = result.to_json()["hbm_bytes"]["per_rank"][0]
    assert stage["forward"] == result.value("Q_head") + result.value("Q_embedding") + 32 * result.value("Q_dense")


def test_a_lookup_moves_rows_and_not_its_table() -> None:
    """An int64 id, a row of 4096 read and one written for each of 4096 tokens."""
    result = derive(load_model("llama3-8b").architecture, Strategy(seq_length=4096))
    assert result.value("Q_embedding_embedding_lookup") == 4096 * (8 + 2 * 2 * 4096)


def test_written_out_attention() -> None:
    """abs^2/t scores in bf16: the softmax reads and writes them (4), dropout reads them and writes its mask and result (5),
    the products write and read them once each (4); queries, keys, values and the result are moved besides."""
    result = made("written-out attention")
    scores = 96 * 2048**2 // 8
    operands = 4 * 2 * 2048 * 12288 // 8
    assert result.value("Q_dense_attention_core") == (4 + 5 + 4) * scores + operands
    # two products read and two write the scores' gradients or the probabilities (8), dropout 5, the softmax 6
    assert result.value("U_dense_attention_core_backward") == (8 + 5 + 6) * scores + 2 * operands


def test_a_gate_of_a_shared_expert_is_one_number_a_token() -> None:
    """4096 tokens of 2048 in bf16: rows read and written and a gate read; backward three times the rows, and the gate and its gradient."""
    result = derive(load_model("qwen1.5-moe-a2.7b").architecture, Strategy(seq_length=4096))
    assert result.value("Q_moe_moe_shared_expert_gate_gated") == 4096 * (2 * 2 * 2048 + 2)
    assert result.value("U_moe_moe_shared_expert_gate_gated_backward") == 4096 * (3 * 2 * 2048 + 2 * 2)


@pytest.mark.parametrize(("options", "steps"), [({"cp": 4}, 4), ({"cp": 4, "cp_comm_type": "a2a"}, 1), ({"cp": 4, "fusion": "eager"}, 1)])
def test_a_ring_of_attention_merges_its_steps(options: dict[str, Any], steps: int) -> None:
    """TransformerEngine's ring of n: a result is written once (4 bytes: read, write) and added to n - 1 times (6), half of it half of the times;
    backward so are three gradients. Keys and values are joined. And what a rank's attention moves by itself."""
    model = load_model("llama3-8b").architecture
    ring = derive(model, Strategy(seq_length=4096, **options), system=load_system("h100-sxm"))
    plain = derive(model, Strategy(seq_length=1024, **{n: v for n, v in options.items() if "cp" not in n}), system=load_system("h100-sxm"))
    queries, keys = 1024 * 32 * 128, 1024 * 8 * 128
    each = (4 + 4.5 * (steps - 1)) if steps > 1 else 0

    def more(name: str) -> float:
        return float(ring.numbers[name]) - float(plain.numbers[name])

    assert more("Q_dense_attention_core") == pytest.approx(queries * each + (2 * keys * 4 if steps > 1 else 0), abs=1)
    assert more("U_dense_attention_core_backward") == pytest.approx((queries + 2 * keys) * each, abs=1)
