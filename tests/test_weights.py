"""Blocks as what follows from their weights reads them (`symsim/lowering/weights.py`): the same to it as they are, and the same for strategies that
differ between weights alone."""

from __future__ import annotations

from typing import Any

import pytest

from symsim.inputs.assumptions import resolve
from symsim.inputs.deciding import DEGREES, SIZES, deciding
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.inputs.traced import Memory
from symsim.lowering.lower import declared_under, differentiated
from symsim.lowering.tuned import tuned
from symsim.lowering.weights import OfWeights, of_weights
from symsim.planning import ways

MOE = "tp=4,sp=true,ep=8,dp=16,pp=2,num_microbatches=8"
CASES = {
    "dense": ("llama3-8b", "tp=2,sp=true,dp=4,pp=2,zero=1,num_microbatches=8"),
    "tied": ("gemma-2b", "dp=4,pp=2,num_microbatches=8"),
    "one on every rank": ("bert-base", "tp=2,dp=2,num_microbatches=8"),
    "experts": ("mixtral-8x7b", MOE),
    "latent": ("deepseek-v3", MOE),
    "recipe": ("deepseek-v3", f"{MOE},fp8=blockwise,fp8_param_gather=true,zero=1"),
    "delayed": ("llama3-8b", "tp=2,sp=true,dp=4,fp8=delayed,num_microbatches=8"),
    "sharded": ("llama3-8b", "zero=3,dp=8,tp=2,sp=true,num_microbatches=8,fusion=eager"),
    "adapters": ("llama3-8b", "tp=2,sp=true,dp=2,tuner_type=lora,num_microbatches=8"),
    "by shape": ("llama3-8b", "tp=2,sp=true,dp=2,optimizer=muon,num_microbatches=8"),
    "with states": ("bamba-9b", "tp=2,sp=true,dp=2,num_microbatches=8"),
}


def made(model: str, strategy: str, passes: ways.Passes) -> dict[str, Any]:
    loaded, asked = load_model(model).architecture, load_strategy(strategy)
    memory = Memory(SIZES, DEGREES, deciding(loaded))
    read, book = memory.begin(asked)
    args = passes.inputs(book, load_system("h100-sxm"), tuned(loaded, read), read, resolve({}))
    passes.work(*args)
    return {name: one.expr for name, one in book.definitions.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_follows_from_weights_is_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = (ways.staying(), ways.following())
    found = [made(*CASES[case], own) for own in passes]
    monkeypatch.setattr(ways, "_of_weights", lambda whole, profile: whole)
    assert found == [made(*CASES[case], own) for own in passes]
    assert all(len(one) > 10 for one in found)


def blocks(strategy: str) -> dict[str, OfWeights]:
    model = load_model("deepseek-v3").architecture
    profile, mesh, declared = declared_under(model, load_strategy(strategy), resolve({}))
    return {name: of_weights(differentiated(one, profile, mesh)) for name, one in declared.items()}


@pytest.mark.parametrize("option", ["cross_entropy_fusion=te", "cross_entropy_fusion=native", "delay_wgrad_compute=true"])
def test_kernels_without_weights_tell_no_blocks_apart(option: str) -> None:
    one, other = blocks(MOE), blocks(f"{MOE},{option}")
    assert {name: own.content for name, own in one.items()} == {name: own.content for name, own in other.items()}


def test_layouts_of_weights_do() -> None:
    one, other = blocks(MOE), blocks("ep=8,dp=16,pp=2,num_microbatches=8")
    assert all(one[name].content != other[name].content for name in one)
