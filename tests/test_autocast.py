"""Autocast: fp32 parameters whose copies products multiply, held against PyTorch 2.13's autocast on transformers 5.23's and peft 0.21's modules.

The facts are of a processor (torch.autocast("cpu")), whose lists differ from an accelerator's in no operation of these models.
"""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.inputs.hf import read_config

AUTOCAST: dict[str, Any] = {"fusion": "eager", "autocast": True, "zero": 0}
SMALL = {
    **dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2),
    **dict(vocab_size=96, tie_word_embeddings=False),
}
# bytes that a layer keeps for backward, of 2 rows of 32 tokens: with eager attention, and with a fused kernel without its 24 bytes of random state
LAYERS = {"llama": (356864, 300544), "qwen3": (395264, 338944), "phi3": (332288, 296448), "gemma": (357376, 301056)}
# hidden, FFN, layers, heads, groups, vocabulary, tied, tokens, checkpoints -> peaks of torch.distributed._tools.mem_tracker
PEAKS: list[tuple[tuple[Any, ...], dict[str, int]]] = [
    ((256, 704, 4, 4, 2, 1000, False, 256, False), {"step1.mb1.fwd": 38058256, "step1.mb1.bwd": 38306056, "step2.opt": 55417244}),
    (
        (256, 704, 4, 4, 2, 1000, False, 256, True),
        {"step1.mb1.fwd": 24928528, "step1.mb1.bwd": 30230792, "step1.mb2.fwd": 38782224, "step2.mb2.fwd": 66489772, "step2.opt": 55417244},
    ),
    ((256, 704, 4, 4, 2, 8000, False, 64, True), {"step1.mb1.fwd": 43830288, "step1.mb1.bwd": 56445704, "step2.mb1.bwd": 112825252}),
    ((512, 1536, 3, 8, 8, 5000, True, 128, False), {"step1.mb1.fwd": 95520528, "step2.mb1.bwd": 225076604, "step2.mb2.fwd": 248967044}),
]


def derived(config: dict[str, Any], kernel: str = "flash", **options: Any) -> Result:
    model, _ = read_config(config, config["model_type"], config["model_type"])[:2]
    return symsim.derive(model, {**AUTOCAST, **options}, {"attention_kernel": kernel, "optimizer_implementation": "fused"})


def numbers(result: Result) -> dict[str, Any]:
    (stage,) = result.stages
    return dict(result.stage_numbers(stage))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_keeps_what_pytorch_keeps(kind: str) -> None:
    config = {"model_type": kind, **SMALL, **({"head_dim": 16} if kind in ("qwen3", "gemma") else {})}
    eager, flash = (numbers(derived(config, kernel, micro_batch_size=2, seq_length=32))["A_dense"] for kernel in ("eager", "flash"))
    assert (eager, flash - 24) == LAYERS[kind]


def test_a_layer_with_adapters_keeps_what_pytorch_keeps() -> None:
    """Base weights in bf16, so that adapters' inputs are cast up by peft and down again by autocast for each of them."""
    found = derived({"model_type": "llama", **SMALL}, micro_batch_size=2, seq_length=32, tuner_type="lora", lora_rank=8)
    assert numbers(found)["A_dense"] - 24 == 215040


@pytest.mark.parametrize("case", PEAKS, ids=["plain", "checkpoints", "vocabulary", "tied"])
def test_peaks_are_pytorchs(case: tuple[tuple[Any, ...], dict[str, int]]) -> None:
    (hidden, ffn, layers, heads, groups, vocabulary, tied, s, checkpoints), expected = case
    sizes = dict(hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups)
    config = {"model_type": "llama", **sizes, "vocab_size": vocabulary, "tie_word_embeddings": tied}
    recompute = "full" if checkpoints else "none"
    first, later = (numbers(derived(config, seq_length=s, num_microbatches=m, recompute=recompute)) for m in (1, 2))
    for phase, peak in expected.items():
        step, _, what = phase.partition(".")
        ours = later if "mb2" in what else first
        moments = "M_at_optimizer" if what == "opt" else "M_at_forward" if what.endswith("fwd") else ("M_at_backward", "M_at_first_layers")
        found = max(v for name, v in ours.items() if name.startswith(moments)) - (ours["M_stage_optimizer"] if step == "step1" else 0)
        assert found == pytest.approx(peak, rel=1e-3), phase


def test_a_frozen_output_layer_is_as_without() -> None:
    """Adapters alone are fp32: what the loss and the output layer keep in one function is in the type of products."""
    adapted = {"fusion": "eager", "zero": 0, "tuner_type": "lora", "cross_entropy_fusion": "cut", "recompute": "full"}
    cast, plain = (numbers(symsim.derive("llama3.2-1b", {**adapted, "autocast": on})) for on in (True, False))
    assert cast["A_head"] == plain["A_head"] and cast["A_embedding"] == plain["A_embedding"] and cast["A_dense"] > plain["A_dense"]


def test_parameters_are_fp32_and_their_copies_cost_time() -> None:
    wide, narrow = (symsim.derive("llama3.2-1b", {"fusion": "eager", "zero": 0, "autocast": on}, system="h100-sxm") for on in (True, False))
    count = wide.to_json()["params"]["total"]
    ours, theirs = numbers(wide), numbers(narrow)
    assert ours["M_stage_weights"] == 4 * count and theirs["M_stage_weights"] == 2 * count
    # moments alone: nothing is copied
    assert ours["M_stage_optimizer"] == 8 * count and theirs["M_stage_optimizer"] == 12 * count
    assert wide.to_json()["time"]["step"] > narrow.to_json()["time"]["step"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"fusion": "te"}, "autocast=true needs fusion=eager, and it is te"),
        ({"zero": 3}, "autocast=true needs zero=0, and it is 3"),
        ({"precision": "fp32"}, "autocast=true needs precision=bf16 or fp16"),
        ({"main_params_dtype": "bf16"}, "autocast=true needs precision=bf16 or fp16, to which it casts, and fp32 parameters"),
        ({"cross_entropy_fusion": "liger"}, "autocast=true does not work with cross_entropy_fusion=liger"),
        ({"cross_entropy_fusion": "torch"}, "autocast=true does not work with cross_entropy_fusion=torch, whose types"),
    ],
)
def test_what_cannot_be_is_a_sentence(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        symsim.derive("llama3.2-1b", {**AUTOCAST, **more})
