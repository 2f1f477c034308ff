"""Moments of memory that hang on one fact each, worked out by hand from the definitions of a stage."""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.algebra.expr import Number
from symsim.api.result import Result, derive
from symsim.cost.workspace import _Backward, forward_moments
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy

MIB = 2**20


def made(model: str = "llama3-8b", assumptions: dict[str, str] | None = None, **settings: Any) -> Result:
    return derive(load_model(model).architecture, Strategy(**{"seq_length": 4096, **settings}), assumptions or {})


def stage(result: Result, index: int = 0) -> dict[str, Number]:
    return result.stage_numbers(result.stages[index])


@pytest.mark.parametrize(("generation", "bytes"), [("none", 0), ("ampere", (8 + 4) * MIB + 128 * 1024), ("hopper", 64 * MIB)])
def test_workspaces_of_libraries_stay(generation: str, bytes: int) -> None:
    """cuBLAS of PyTorch and TransformerEngine's own, on the generation of the accelerator."""
    assert stage(made(assumptions={"library_workspace": generation, "te_dummy_wgrad": "false"}))["M_stage_constant"] == bytes


@pytest.mark.parametrize("model", ["llama3-8b", "gemma-2-9b"])
def test_a_placeholder_gradient_stands_once_for_equal_shapes(model: str) -> None:
    """get_dummy_wgrad keeps one for each shape: layers with and without a window have the same four."""
    of = load_model(model).architecture
    assert of.mlp is not None
    h, d, heads, groups, f = of.hidden_size, of.head_dim, of.attention.num_attention_heads, of.query_groups, of.mlp.ffn_hidden_size
    weights = h * d * (heads + 2 * groups) + h * d * heads + h * 2 * f + f * h
    assert stage(made(model, {"te_dummy_wgrad": "true"}))["M_stage_constant"] == 2 * weights


def test_placeholders_are_told_apart_by_shape() -> None:
    """A weight and one of its shape turned have each their own (get_dummy_wgrad: key = (*shape, dtype))."""
    of = load_model("gpt3-175b").architecture
    assert of.mlp is not None and not of.mlp.gated
    h, f = of.hidden_size, of.mlp.ffn_hidden_size
    assert stage(made("gpt3-175b", {"te_dummy_wgrad": "true"}, tp=2))["M_stage_constant"] == 2 * (3 * h * h + h * h + f * h + h * f) // 2


def test_shared_experts_as_wide_as_the_others_have_no_placeholder_of_their_own() -> None:
    """One expert of 2048 beside experts of 2048 has their shapes, and their placeholders; wider or narrower ones, or split ones, have their own."""
    model = load_model("qwen2-57b-a14b").architecture
    assert model.moe is not None
    routed = 3 * 2 * model.hidden_size * model.moe.moe_ffn_hidden_size

    def placeholders(width: int | None, **settings: Any) -> Number:
        of = model.model_copy(update={"moe": model.moe.model_copy(update={"moe_shared_expert_intermediate_size": width})})
        return stage(derive(of, Strategy(ep=8, dp=8, **settings)))["M_stage_constant"]

    def shared(width: int, **settings: Any) -> Number:
        return placeholders(width, **settings) - placeholders(None, **settings)

    wide = model.moe.moe_ffn_hidden_size
    assert shared(wide) == 0
    assert [shared(wide * n // 2) for n in (1, 3)] == [routed * n // 2 for n in (1, 3)]
    assert shared(wide, tp=2, sp=True, etp=1) == routed // 2 and shared(2 * wide, tp=2, sp=True, etp=1) == 0


def test_every_linear_module_of_a_layer_has_a_placeholder() -> None:
    """Latents of experts, and what merges the streams of a depth, are linear modules of TransformerEngine's too."""
    model = load_model("deepseek-v3").architecture.model_copy(update={"mtp_num_layers": 0})
    assert model.moe is not None
    h, f, latent = model.hidden_size, model.moe.moe_ffn_hidden_size, 1000
    narrow = model.model_copy(update={"moe": model.moe.model_copy(update={"moe_latent_size": latent})})

    def placeholders(of: Architecture) -> Number:
        return stage(derive(of, Strategy(ep=8, dp=8)))["M_stage_constant"]

    # shared experts keep what the others had in common with them
    assert placeholders(narrow) - placeholders(model) == 2 * (3 * f * latent + 2 * latent * h)
    assert placeholders(model.model_copy(update={"mtp_num_layers": 1})) - placeholders(model) == 2 * 2 * h * h


def test_earlier_micro_batches_have_left_the_head() -> None:
    """Interleaved: the last rank has several micro-batches in flight, and the head's backward follows its forward at once."""
    last = stage(made(pp=4, vpp=2, num_microbatches=8), -1)
    assert last["alive_i"] > 1 and last["A_head"] > 0
    assert last["M_stage_earlier"] == (last["alive_i"] - 1) * (last["A_stage"] - last["A_head"])


@pytest.mark.parametrize(("tied", "waiting"), [(False, 0), (True, 2 * 128256 * 4096)])
def test_the_gradient_of_a_tied_table_waits_through_the_layers(tied: bool, waiting: int) -> None:
    """PyTorch, second micro-batch on: the head's gradient of the table is there until the lookup's joins it."""
    model = load_model("llama3-8b").architecture.model_copy(update={"tie_word_embeddings": tied})
    number = stage(derive(model, Strategy(seq_length=4096, fusion="eager", num_microbatches=2)))
    stays = sum(number[f"M_stage_{part}"] for part in ("weights", "gradients", "optimizer", "constant"))
    layers = number["M_stage_activations"] - number["A_head"] - number["A_dense"] + number["W_bwd_dense"]
    assert number["M_at_backward_dense"] == stays + layers + waiting


@pytest.mark.parametrize("together", [1, 4])
def test_a_group_that_runs_again_is_there_together(together: int) -> None:
    """recompute_num_layers: of a group all saved tensors, and the layer at work once."""
    number = stage(made(recompute="full", recompute_method="uniform", recompute_num_layers=together))
    stays = sum(number[f"M_stage_{part}"] for part in ("weights", "gradients", "optimizer", "constant"))
    layers = number["M_stage_activations"] - number["A_head"] - number["A_dense_ckpt"] + number["W_bwd_dense_ckpt"]
    assert number["M_at_backward_dense_ckpt"] == stays + layers + (together - 1) * number["A_dense"]


def test_sharded_parameters_are_whole_where_they_are_read() -> None:
    """FSDP in forward: the root (table, head, last norm), the layer at work, and the buffer of the next one's gather."""
    number = stage(made(dp=8, zero=3))
    stays = sum(number[f"M_stage_{part}"] for part in ("weights", "gradients", "optimizer", "constant"))
    layers = number["M_stage_activations"] - number["A_head"] - number["A_dense"] + number["W_fwd_dense"]
    root, layer = 2 * 128256 * 4096 + 4096, 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert number["M_at_forward_dense"] == stays + layers + 2 * (root + 2 * layer)


def test_a_partial_sum_is_reduced_where_it_lies() -> None:
    """A lookup in a table split over two ranks: rows once, the ids, and what it keeps (masked ids and their mask)."""
    rows, ids, masked, mask = 2 * 4096 * 4096, 8 * 4096, 8 * 4096, 4096
    assert made(tp=2).numbers["W_fwd_embedding"] == rows + ids + masked + mask


def test_a_second_gradient_is_added_where_the_first_lies() -> None:
    """At the addition after attention: what attention keeps, the gradient of the sum (of the stream and of the norm behind it, there
    once), and those of both operands."""
    result = made()
    moments = _Backward(result.lowered.blocks["dense"], False, False, ()).moments()
    held = next(m.activations.evaluate(result.values) for m in moments if m.kernel == "add_attention, backward")
    stream, heads, groups = (2 * 4096 * n for n in (4096, 32 * 128, 8 * 128))
    kept = 2 * stream + 4 * 4096 + 4 * 2 * 4096 * 128 + 2 * heads + 2 * groups + 4 * 32 * 4096
    assert held == kept + 3 * stream


def test_a_stage_of_nothing_is_at_the_update() -> None:
    """It runs no block, so that no forward or backward of one can be where it holds the most."""
    layout = "Ettt|t||t|||t|L"
    result = symsim.derive("pythia-70m", f"dp=8,tp=2,sp=true,pp=8,num_microbatches=16,pipeline_model_parallel_layout={layout}").to_json()
    found = {stage["at"] for stage in result["memory"]["stages"] if stage["peak"] == 0}
    assert found == {"optimizer"}


def test_frozen_layers_keep_no_checkpoint() -> None:
    """Of 32 layers that run again the first is frozen, and nothing before it is trained: 31 keep their input."""
    number = stage(made(recompute="full", freeze_parameters=("embedding", "layers.0")))
    assert number["A_dense__frozen_ckpt"] == 0 < number["A_dense_ckpt"] == 2 * 4096 * 4096
    assert number["A_stage"] == 31 * number["A_dense_ckpt"] + number["A_head"] + number["A_dense_ckpt_shared"]


def test_a_checkpoint_of_transformers_asks_for_a_gradient_of_its_input() -> None:
    """The same of transformers: the first layer has one too, and runs again."""
    number = stage(made(recompute="full", fusion="eager", freeze_parameters=("embedding", "layers.0")))
    assert number["A_stage"] == 32 * number["A_dense_ckpt"] + number["A_head"] + number["A_dense_ckpt_shared"]


def test_a_norm_behind_a_layer_holds_what_its_derivative_makes() -> None:
    """OLMo 2's norm behind its feed-forward network, as the square's derivative is made: gone are its scaled input and the root; there are
    gradients of what it reads by both readers and of the squares, the power less one, that times two, and the stream's gradient."""
    model = load_model("olmo2-7b").architecture
    result = derive(model, Strategy(seq_length=512, fusion="eager", recompute="full"))
    (moment,) = (
        m
        for m in _Backward(result.lowered.checkpointed["dense"], True, True, False, op_by_op=True).moments()
        if m.kernel == "post_mlp_norm.pow, backward"
    )
    held, rows, wide = stage(result)["A_dense"], 512, 4 * 512 * model.hidden_size
    assert moment.activations.evaluate(result.numbers) == held - wide - 4 * rows + 5 * wide + wide // 2


def test_what_a_call_is_given_lives_until_it_returns() -> None:
    """LoRA beside one projection of attention: nothing keeps what the feed-forward network reads, which is there at its last product."""
    strategy = Strategy(tuner_type="lora", lora_rank=8, target_modules=("o_proj",), seq_length=64, fusion="eager")
    result = derive(load_model("llama3-8b").architecture, strategy)
    block = result.lowered.blocks["dense"]

    def at_last_product(op_by_op: bool) -> Number:
        (moment,) = (m for m in forward_moments(block, op_by_op=op_by_op) if m.kernel == "mlp.down_proj")
        return moment.activations.evaluate(result.numbers)

    assert at_last_product(True) - at_last_product(False) == 2 * 64 * 4096
