"""Narrow products: what is cast, how often it is read and written, and what is kept, by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.cost.kernel_time import launches
from symsim.errors import InputError
from symsim.evaluation.traffic import stage_messages
from symsim.frameworks.recipes import RECIPES
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.lowering.differentiate import CAST

TOKENS, HIDDEN, FFN = 512, 4096, 14336
QUERIES = 4096


@cache
def dense(fp8: str, layouts: str = "transposed", tp: int = 1) -> Result:
    strategy = Strategy(fp8=fp8, seq_length=TOKENS, tp=tp, sp=tp > 1)  # type: ignore[arg-type]
    return derive(load_model("llama3-8b").architecture, strategy, {"fp8_layouts": layouts})


@cache
def latent(fp8: str, modules: tuple[str, ...]) -> frozenset[str]:
    """Tensors that a layer with experts keeps."""
    given: dict[str, Any] = {"recompute": "selective", "recompute_modules": modules} if modules else {}
    result = derive(load_model("deepseek-v2-lite").architecture, Strategy(fp8=fp8, seq_length=TOKENS, **given))  # type: ignore[arg-type]
    return frozenset(s.name for s in result.lowered.blocks["moe"].saved)


# bytes that a cast reads and writes for an element of 16 bits: both forms, or rows alone
BOTH = {"delayed": 2 + 2, "tensorwise": 2 * 2 + 2, "blockwise": 2 + 2 * (1 + 4 / 128), "mxfp8": 2 + 2 * (1 + 1 / 32)}
BOTH["nvfp4"] = 2 * 2 + 2 * (1 / 2 + 1 / 16)


@pytest.mark.parametrize("fp8", BOTH)
def test_an_input_is_cast_before_its_product(fp8: str) -> None:
    """Of one scale a tensor, maxima are a pass of their own, or found as it is cast; of blocks they are in it, and scales are written."""
    assert dense(fp8).numbers["Q_dense_mlp_gate_up_quantise"] == TOKENS * HIDDEN * BOTH[fp8]


@pytest.mark.parametrize("fp8", BOTH)
def test_the_gradient_of_its_output_is_cast_too(fp8: str) -> None:
    """In both forms; scales of gradients are left out. The cast of the input has no backward of its own."""
    written = 2 * (0.5 if fp8 == "nvfp4" else 1)
    read = 2 * RECIPES[fp8].passes
    assert dense(fp8).numbers["U_dense_mlp_gate_up_cast"] == TOKENS * 2 * FFN * (read + written)
    assert not [name for name in dense(fp8).numbers if name.startswith("U_") and "quantise" in name]


def test_what_attention_keeps_anyway_is_cast_again() -> None:
    """Forward writes rows; backward reads the original and writes columns (save_original_input). Delayed scaling cannot, and keeps both."""
    result = dense("tensorwise")
    assert result.numbers["Q_dense_attention_o_proj_quantise"] == TOKENS * QUERIES * (2 * 2 + 1)
    assert result.numbers["U_dense_attention_o_proj_cast"] == TOKENS * HIDDEN * (2 * 2 + 2) + TOKENS * QUERIES * (2 * 2 + 1)
    assert dense("delayed").numbers["U_dense_attention_o_proj_cast"] == TOKENS * HIDDEN * (2 + 2)
    kept = {fp8: {s.name for s in dense(fp8).lowered.blocks["dense"].saved} for fp8 in ("tensorwise", "delayed")}
    assert kept["delayed"] - kept["tensorwise"] == {"attention.o_proj.input.fp8"}


def test_where_tensor_cores_take_any_layout_there_is_one_form() -> None:
    assert dense("tensorwise", "any").numbers["Q_dense_mlp_gate_up_quantise"] == TOKENS * HIDDEN * (2 * 2 + 1)
    assert dense("mxfp8", "any").numbers["Q_dense_mlp_gate_up_quantise"] == TOKENS * HIDDEN * BOTH["mxfp8"]
    weights = {layouts: dense("tensorwise", layouts).value("memory.weights") for layouts in ("transposed", "any")}
    layer = 2 * HIDDEN * QUERIES + 2 * HIDDEN * 1024 + 3 * HIDDEN * FFN
    assert weights["transposed"] - weights["any"] == 32 * layer


def test_a_tensor_that_recomputation_makes_again_has_no_narrow_copy() -> None:
    """Megatron-Core set_save_original_input: norms' outputs, and what the experts' activation makes.
    Delayed scaling, which cannot, is refused (transformer_config.py)."""
    modules = ("layernorm", "moe_act")
    plain, again = latent("blockwise", ()), latent("blockwise", modules)
    copies = {"attention.q_proj.input", "attention.kv_a_proj_with_mqa.input", "moe.shared_experts.gate_up.input", "moe.experts.fc2.input"}
    gone = {f"{name}.{end}" for name in copies for end in ("fp8", "scale")}
    assert gone <= plain and gone.isdisjoint(again)
    with pytest.raises(InputError, match="fp8=delayed does not work with recompute_modules=layernorm"):
        latent("delayed", modules)
    assert "moe.experts.fc1.input.fp8" in again, "which comes from other ranks"


def test_maxima_are_the_same_on_ranks_that_gather_what_is_cast() -> None:
    """A message of one fp32 for each tensor that is gathered, of scales of the whole tensor found ahead of the cast."""

    def messages(fp8: str) -> dict[str, list[tuple[str, str]]]:
        block = dense(fp8, tp=2).lowered.blocks["dense"]
        both = {"forward": block.differentiated.forward_messages, "backward": block.backward_messages}
        return {phase: [(m.op, m.dtype) for _, m in found if m.axis == "tp"] for phase, found in both.items()}

    found = {fp8: messages(fp8) for fp8 in ("tensorwise", "mxfp8")}
    for phase in ("forward", "backward"):
        assert found["tensorwise"][phase].count(("all_reduce", "fp32")) == 2
        assert ("all_reduce", "fp32") not in found["mxfp8"][phase]
    assert ("all_gather", "fp8") in found["tensorwise"]["backward"]
    assert ("all_gather", "fp8x2") in found["mxfp8"]["backward"], "gradients are gathered in both forms"


def kept(model: str, **settings: Any) -> dict[str, int]:
    result = derive(load_model(model).architecture, Strategy(seq_length=TOKENS, **settings))
    (kind, *_) = [k for k in ("moe", "dense") if k in result.lowered.blocks]
    return {s.name: int(s.bytes.evaluate(result.values)) for s in result.lowered.blocks[kind].saved}


def test_an_activation_that_runs_again_does_so_from_its_narrow_input() -> None:
    """In place of the 16 bits of the experts' first product (arXiv:2412.19437, sec. 3.3.3)."""
    settings: dict[str, Any] = {"recompute": "selective", "recompute_modules": ("moe_act",)}
    plain = kept("deepseek-v2-lite", **settings)
    narrow = kept("deepseek-v2-lite", activation_func_fp8_input_store=True, **settings)
    halves = {f"moe.experts.act.stored{i}": plain["moe.experts.fc1.out"] // 4 for i in (0, 1)}
    assert halves.items() <= narrow.items() and "moe.experts.fc1.out" not in narrow
    assert "moe.experts.act.out" not in narrow, "which runs again"


@pytest.mark.parametrize("fp8", ["none", "blockwise"])
@pytest.mark.parametrize(("stored", "halves_of_bytes"), [("e5m6", 3), ("fp8", 2)])
def test_attention_keeps_its_output_in_fewer_bits(fp8: str, stored: str, halves_of_bytes: int) -> None:
    """Once, for its own backward and the projection after it."""
    plain, narrow = kept("llama3-8b", fp8=fp8), kept("llama3-8b", fp8=fp8, attention_output_store=stored)
    assert plain.keys() - narrow.keys() == {"attention.core.out"}
    assert {n: narrow[n] for n in narrow.keys() - plain.keys()} == {"attention.core.stored": halves_of_bytes * TOKENS * QUERIES // 2}


def test_attention_in_fp8() -> None:
    """Queries, keys and values are cast and kept in a byte, and the gradient of the output is; with multi-head attention nothing is cast."""
    plain, narrow = (kept("llama3-8b", fp8="tensorwise", fp8_dot_product_attention=on) for on in (False, True))
    assert {n.rsplit(".", 1)[-1] for n in narrow.keys() - plain.keys()} == {"fp8"} and len(narrow.keys() - plain.keys()) == 3
    assert sum(plain.values()) - sum(narrow.values()) == TOKENS * (QUERIES + 2 * 1024)
    whole = {}
    for heads in (False, True):
        given = {"fp8_dot_product_attention": True, "fp8_multi_head_attention": heads}
        whole[heads] = derive(load_model("llama3-8b").architecture, Strategy(fp8="tensorwise", seq_length=TOKENS, **given)).numbers
    assert whole[False]["Q_dense_attention_core_quantise_q"] == TOKENS * QUERIES * (2 * 2 + 2)
    assert whole[True]["Q_dense_attention_core_quantise_q"] == 0
    assert whole[False]["U_dense_attention_core_cast"] == TOKENS * QUERIES * (2 * 2 + 1)
    with pytest.raises(InputError, match="needs a recipe that has it"):
        kept("llama3-8b", fp8="blockwise", fp8_dot_product_attention=True)


def test_delayed_scaling_sums_its_maxima_up_once_each_way() -> None:
    """Of two operands forward and a gradient backward, of four products a layer."""
    result = derive(load_model("llama3-8b").architecture, Strategy(fp8="delayed", dp=8, num_microbatches=4, seq_length=TOKENS))
    sent = [m for m in stage_messages(result, result.stages[0]) if m.what.startswith("maxima")]
    stage = result.stage_numbers(result.stages[0])
    assert [(m.op, int(m.send_elements.evaluate(stage)), int(m.count.evaluate(stage))) for m in sent] == [
        ("all_reduce", 2 * 4 * 32, 4),
        ("all_reduce", 4 * 32, 4),
    ]


@cache
def left_out(first: int, last: int, model: str = "llama3-8b", **given: Any) -> Result:
    asked = {"fp8": "mxfp8", "num_layers_at_start_in_bf16": first, "num_layers_at_end_in_bf16": last, "seq_length": TOKENS, **given}
    return derive(load_model(model).architecture, Strategy(**asked), system=load_system("b200-sxm"))


def test_layers_that_a_recipe_leaves_out() -> None:
    """Their products are of 16 bits, their inputs are not cast, and no narrow copies of their weights are kept (Megatron-Core fp8_utils.py
    is_first_last_bf16_layer)."""
    some = left_out(2, 3)
    assert {k: some.model.layer_kinds[k].base for k in some.model.kind_names()} == {"dense__wide": "dense", "dense": "dense"}
    assert [(s.repeat, s.kinds) for s in some.model.layers] == [(2, ("dense__wide",)), (27, ("dense",)), (3, ("dense__wide",))]
    casts = {name: [op.name for op in some.lowered.blocks[name].placed.block.ops if op.kind == "quantise"] for name in ("dense", "dense__wide")}
    assert casts["dense"] and not casts["dense__wide"]
    none, weights = left_out(0, 0), 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    copies = [int(result.stage_numbers(result.stages[0])["M_stage_weights"]) for result in (none, some)]
    assert copies[0] - copies[1] == 5 * weights * 2 * 33 // 32


def test_a_recipe_that_leaves_all_layers_out_is_none() -> None:
    every, plain = left_out(20, 12), left_out(0, 0, fp8="none")
    assert every.value("time.step") == plain.value("time.step")
    assert every.value("memory.peak") == plain.value("memory.peak")


def test_layers_left_out_stay_in_order() -> None:
    """Of a model whose layers are of several kinds, each kind at either end; depths of multi-token prediction follow the recipe."""
    made = left_out(4, 1, "deepseek-v3", ep=64, fp8="blockwise", mtp_num_layers=1)
    assert [(s.repeat, s.kinds) for s in made.model.layers] == [(3, ("dense__wide",)), (1, ("moe__wide",)), (56, ("moe",)), (1, ("moe__wide",))]
    assert any(op.kind == "quantise" for op in made.lowered.blocks["mtp"].placed.block.ops)


@pytest.mark.parametrize("given", [{"fp8": "none"}, {"fp8": "delayed"}, {"num_layers_at_start_in_bf16": 30}])
def test_layers_that_cannot_be_left_out(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="num_layers_at_start_in_bf16=(1|30), num_layers_at_end_in_bf16=4: (needs a recipe|llama3-8b has 32 layers)"):
        left_out(1, 4, **given) if "fp8" in given else left_out(30, 4)


_MEGATRON = "--bf16 --use-distributed-optimizer --micro-batch-size 1 --fp8-format hybrid --fp8-recipe blockwise".split()
_ENDS = ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ("--first-last-layers-bf16", (1, 1)),
        ("--first-last-layers-bf16 --num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 4", (0, 4)),
        ("--num-layers-at-end-in-bf16 4", (None, None)),
        ("--first-last-layers-bf16 --fp8-recipe delayed", (None, None)),
    ],
)
def test_megatrons_layers_in_16_bits(words: str, ends: tuple[int | None, int | None]) -> None:
    made = load_job("megatron", *_MEGATRON, *words.split(), model="llama3-8b")
    strategy = dict(made.strategy or {})
    assert tuple(strategy.get(name) for name in _ENDS) == ends
    assert all(row.fate != "not_modelled" for row in made.rows)


@pytest.mark.parametrize(
    ("mixed", "expected"),
    [
        ("bf16_with_fp8_current_scaling_mixed", ("tensorwise", 1, 1, True)),
        ("bf16-with-mxfp8-mixed", ("mxfp8", None, None, True)),
        ("nanov2_bf16_with_fp8_current_scaling_mixed", ("blockwise", 2, 2, True)),
        ("nemotron_3_super_bf16_with_nvfp4_mixed", ("nvfp4", 0, 14, True)),
        ("bf16_with_fp8_subchannel_scaling_mixed", ("blockwise", None, None, None)),
    ],
)
def test_mixed_precision_of_recipes(mixed: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    """Megatron-Bridge training/mixed_precision.py: layers at either end, and weights that are gathered narrow."""
    (tmp_path / "recipe.yaml").write_text(f"model:\n  seq_length: 4096\ntrain:\n  micro_batch_size: 1\nmixed_precision: {mixed}\n")
    strategy = dict(load_job("megatron", str(tmp_path / "recipe.yaml"), model="llama3-8b").strategy or {})
    assert tuple(strategy.get(name) for name in ("fp8", *_ENDS, "fp8_param_gather")) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("  main_grads_dtype: bf16\n", (None, "bf16")),
        ("mixed_precision: bf16_mixed\n", (False, None)),
        ("  main_grads_dtype: bf16\nmixed_precision: bf16_mixed\n", (False, None)),
        ("  main_params_dtype: fp16\n  main_grads_dtype: bf16\nmixed_precision: bf16_mixed\n", (None, "bf16")),
        ("mixed_precision: bf16_with_mxfp8_mixed\n", (None, None)),
    ],
)
def test_recipes_keep_whole_fp32_parameters_without_fp8(more: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    """Megatron-Bridge names fp8_recipe=tensorwise in every mixed precision, and Megatron-Core optimizer_config.py asks for that alone."""
    path = tmp_path / "recipe.yaml"
    path.write_text(f"model:\n  seq_length: 4096\ntrain:\n  micro_batch_size: 1\noptimizer:\n  use_precision_aware_optimizer: true\n{more}")
    strategy = dict(load_job("megatron", str(path), model="llama3-8b").strategy or {})
    assert tuple(strategy.get(name) for name in ("store_param_remainders", "main_grads_dtype")) == expected


@pytest.mark.parametrize(("fp8", "kernels"), [("delayed", 1), ("tensorwise", 4 * 2), ("blockwise", 2), ("mxfp8", 2)])
def test_every_expert_is_cast_by_kernels_of_its_own(fp8: str, kernels: int) -> None:
    """Two experts a rank: each has the kernels of a cast, but under delayed scaling, where one kernel casts all. One call issues them."""
    result = derive(load_model("mixtral-8x7b").architecture, Strategy(fp8=fp8, ep=4, dp=4), system=load_system("h100-sxm"))  # type: ignore[arg-type]
    of_forward = float(result.value("t_f_moe_moe_experts_fc1_quantise")) - float(result.value("Q_moe_moe_experts_fc1_quantise")) / (
        float(result.values["B_hbm"]) * float(result.values["eta_mem"])
    )
    assert of_forward == pytest.approx(kernels * float(result.values["t_mem"]))


@pytest.mark.parametrize(("fp8", "calls"), [("delayed", 1), ("tensorwise", 1 + 1 / 4), ("mxfp8", 1 + 1 / 4)])
def test_a_cast_of_experts_takes_the_host_longer_with_each(fp8: str, calls: float) -> None:
    """Two experts a rank: the second costs a quarter of a launch, in forward and in backward, where the call goes through them one by one."""
    result = derive(load_model("mixtral-8x7b").architecture, Strategy(fp8=fp8, ep=4, dp=4), system=load_system("h100-sxm"))  # type: ignore[arg-type]
    placed, profile = result.lowered.blocks["moe"].placed, result.lowered.profile
    names = [op.name for op in placed.block.ops]
    cast, product = names.index("moe.experts.fc2.quantise"), names.index("moe.experts.fc2")
    assert launches(placed, cast, profile).evaluate(result.values) == calls
    assert launches(placed, product, profile, CAST).evaluate(result.values) == calls


@pytest.mark.parametrize(
    ("options", "copied"),
    [
        ({}, ["dispatch.pad", "dispatch.pad_weights", "combine.unpad"]),
        ({"fp8": "none"}, []),
        ({"moe_router_padding_for_quantization": True}, []),
        ({"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}, []),
        ({"moe_token_dispatcher_type": "flex"}, ["dispatch.pad", "dispatch.pad_weights", "combine.unpad"]),
        ({"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}, []),
    ],
)
def test_rows_of_experts_are_copied_to_be_padded(options: dict[str, Any], copied: list[str]) -> None:
    """Megatron-Core transformer/moe/experts.py: rows and their probabilities before the products, rows behind them; read and written, both ways."""
    strategy = Strategy(**{"fp8": "mxfp8", "ep": 4, "dp": 4, "seq_length": TOKENS, **options})
    result = derive(load_model("mixtral-8x7b").architecture, strategy)
    names = [op.name.removeprefix("moe.experts.") for op in result.lowered.blocks["moe"].placed.block.ops if op.kind == "copy"]
    assert [n for n in names if "pad" in n] == copied
    if copied:
        moved = TOKENS * 2 * HIDDEN * 2 * 2
        assert int(result.numbers["Q_moe_moe_experts_combine_unpad"]) == moved
        assert int(result.numbers["U_moe_moe_experts_dispatch_pad_backward"]) == moved


def test_weight_gradients_in_the_type_of_the_computation() -> None:
    """Operands of 16 bits at that rate, which are kept so: casts write rows alone, one form for forward and one for the input's gradient."""
    made = {}
    for name, options in {"wide": {}, "all": {"fp8": "tensorwise"}, "but": {"fp8": "tensorwise", "fp8_wgrad": False}}.items():
        strategy = Strategy(seq_length=TOKENS, **options)  # type: ignore[arg-type]
        made[name] = derive(load_model("llama3-8b").architecture, strategy, None, None, load_system("h100-sxm")).numbers
    for product in ("attention_qkv", "mlp_gate_up", "mlp_down_proj"):
        seconds = {name: found[f"t_b_dense_{product}_wgrad"] for name, found in made.items()}
        assert seconds["but"] == seconds["wide"] > seconds["all"]
        for name in (f"t_f_dense_{product}", f"t_b_dense_{product}_dgrad"):
            assert made["but"][name] == made["all"][name]
    assert made["but"]["Q_dense_mlp_gate_up_quantise"] == TOKENS * HIDDEN * (2 * 2 + 1)
    assert made["but"]["U_dense_mlp_gate_up_cast"] == TOKENS * 2 * FFN * (2 * 2 + 1)
    assert made["but"]["A_dense"] == made["wide"]["A_dense"] > made["all"]["A_dense"]
