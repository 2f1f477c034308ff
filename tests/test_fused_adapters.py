"""Linear maps and their adapters in functions of their own (axolotl kernels/lora.py): what they keep, and the passes that they do without."""

from __future__ import annotations

from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError

ADAPTED: dict[str, Any] = {"fusion": "eager", "zero": 0, "tuner_type": "lora", "lora_rank": 16, "fused_kernels": ("activation",), "seq_length": 2048}
ALL = ("qkv", "o", "mlp")


def derived(assumptions: dict[str, str] | None = None, **more: Any) -> Result:
    return symsim.derive("llama3-8b", {**ADAPTED, **more}, assumptions, system="h100-sxm")


def kept(result: Result) -> int:
    (stage,) = result.stages
    return int(result.stage_numbers(stage)["A_dense"])


def test_the_network_is_made_again_from_gate_and_up() -> None:
    plain, own = derived(), derived(fused_adapters=ALL)
    hidden, low = 2048 * 14336 * 2, 2048 * 16 * 2
    assert kept(plain) - kept(own) == hidden + 7 * low and kept(plain) - kept(derived(fused_adapters=("mlp",))) == hidden + 3 * low
    more, less = own.to_json()["flops"], plain.to_json()["flops"]
    assert (more["forward"], more["backward"], less["recompute"]) == (less["forward"], less["backward"], 0)
    assert more["recompute"] == 32 * 2 * 2048 * 16 * (6 * 4096 + 14336)  # what first products made, for the gradients of the second
    assert own.to_json()["time"]["step"] < plain.to_json()["time"]["step"]


def test_inputs_are_not_cast_for_adapters_in_fp32() -> None:
    """Under autocast every adapter keeps its own copy of its input; a function keeps the input that its maps share."""
    plain, own = kept(derived(autocast=True)), kept(derived(autocast=True, fused_adapters=ALL))
    h, f, s = 4096, 14336, 2048
    copies = 2 * s * (3 * h + 2 * h + h + f)  # of q, k and v; gate and up; o, beside the result that attention keeps; down
    shared = 2 * s * 2 * h  # what norms made
    low = 7 * 2 * s * 16
    assert plain - own == copies - shared + low


@pytest.mark.parametrize("scaled", ["output", "rank"])
def test_every_map_by_itself_keeps_less_and_reads_more(scaled: str) -> None:
    """NeMo Automodel's use_memory_efficient_lora: nothing as wide as the rank stays, and is made again; sums stay passes of their own."""
    each, plain = (derived(fused_adapters=of, assumptions={"lora_scaling": scaled}) for of in (("each",), ()))
    assert kept(plain) - kept(each) == 7 * 2048 * 16 * 2
    assert each.to_json()["flops"]["recompute"] == 32 * 2 * 2048 * 16 * (6 * 4096 + 14336)
    assert each.to_json()["time"]["step"] > plain.to_json()["time"]["step"]


@pytest.mark.parametrize("fusion", ["eager", "te"])
def test_what_the_scale_multiplies(fusion: str) -> None:
    """A pass over a tensor as wide as the rank, where it was over one as wide as the result."""
    plain: dict[str, Any] = {"fused_kernels": ()} if fusion == "te" else {}
    ranks = 16 * (7 if fusion == "eager" else 4)  # joint products have one adapter
    wide, narrow = (derived(fusion=fusion, **plain, assumptions={"lora_scaling": of}) for of in ("output", "rank"))
    for result, width in ((wide, 2 * 4096 + 2 * 1024 + 2 * 14336 + 4096), (narrow, ranks)):
        found = [op for op in result.lowered.blocks["dense"].placed.block.ops if op.kind == "scale"]
        seen = sum(int(result.value(f"Q_dense_{op.name.replace('.', '_')}")) for op in found)
        assert 16 * len(found) == ranks and seen == 2048 * width * 2 * 2
    assert kept(wide) == kept(narrow) and narrow.value("time.step") < wide.value("time.step")


def test_experts_are_scaled_at_their_output() -> None:
    """In Automodel too (_peft/lora_experts.py), and in no function of their own."""
    at = {"ep": 8, "dp": 8, "etp": 1, "tuner_type": "lora", "lora_rank": 16}
    result = symsim.derive("mixtral-8x7b", at, {"lora_scaling": "rank"})
    block = result.lowered.blocks["moe"].placed.block
    scaled = {op.name: block.tensors[op.outputs[0]].dims for op in block.ops if op.kind == "scale"}
    assert {name for name, dims in scaled.items() if "r" not in dims} == {name for name in scaled if "experts" in name} != set()


def test_each_function_is_of_its_maps() -> None:
    def added(**more: Any) -> set[str]:
        block = derived(**more).lowered.blocks["dense"].placed.block
        return {op.name.removesuffix(".lora_add") for op in block.ops if op.kind == "added_in"}

    assert added(fused_adapters=("o",)) == {"attention.o_proj"}
    assert added(fused_adapters=("qkv",)) == {f"attention.qkv.{name}_proj" for name in "qkv"}
    assert added() == set()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"tuner_type": "full"}, r"fused_adapters=qkv needs tuner_type=lora, and it is full"),
        ({"fusion": "te", "fused_kernels": ()}, r"fused_adapters=qkv needs fusion=eager, and it is te"),
        ({"use_dora": True}, r"fused_adapters=qkv needs use_dora=false, and it is true"),
    ],
)
def test_what_cannot_be_is_a_sentence(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        derived(fused_adapters=("qkv",), **more)
