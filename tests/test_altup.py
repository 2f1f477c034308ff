"""Alternating updates, augmented residuals and gates that are cut off: the facts are those of transformers' Gemma 3n (transformers 5.23, torch 2.13:
parameters and FlopCounterMode on the meta device, bytes as tests/draws/kept.py measures them; per-layer embeddings and rotary tables come from
outside of a layer)."""

from __future__ import annotations

from typing import Any

import pytest
from gemma_cases import LAYERS

from symsim.algebra.kinds import spelt
from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.ir.block import MODULES

GEMMA3N = LAYERS | {
    "model_type": "gemma3n_text",
    "vocab_size": 100,
    "hidden_size": 64,
    "vocab_size_per_layer_input": 90,
    "activation_sparsity_pattern": [0.9] + [0.0] * 5,
    "laurel_rank": 6,
}
THREE = {"altup_num_inputs": 3, "altup_correct_scale": False}
OWN = 2 * 40 * 12 * 2
# a config and a layer of it: bytes kept at b=2, s=40
KEPT = {
    "a gate that is cut off": ({}, 0, 763650 + OWN),
    "attention to everything": ({}, 1, 748128 + OWN),
    "keys of an earlier layer": ({}, 4, 714784 + OWN),
    "three streams": (THREE, 0, 730676 + OWN),
}
# parameters by module, and forward FLOPs at b=2, s=11
COUNTED: dict[str, tuple[dict[str, Any], dict[str, int], int]] = {
    "four streams": ({}, {"embedding": 17488, "attention": 65536, "norm": 2924, "mlp": 151392}, 10721920),
    "three streams": (THREE, {"embedding": 17488, "attention": 65536, "norm": 2924, "mlp": 142552}, 10197792),
}


def small(**change: Any) -> Architecture:
    return read_config(GEMMA3N | change, "small", "config.json")[0]


@pytest.mark.parametrize("name", KEPT)
def test_bytes_that_torch_keeps(name: str) -> None:
    change, layer, bytes_kept = KEPT[name]
    model = small(**change)
    result = derive(model, Strategy(fusion="eager", micro_batch_size=2, seq_length=40), {"attention_kernel": "eager"})
    kinds = [kind for segment in model.layers for _ in range(segment.repeat) for kind in segment.kinds]
    assert sum(int(item.bytes.evaluate(result.numbers)) for item in result.lowered.blocks[spelt(kinds[layer])].saved) == bytes_kept


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_and_flops_of_transformers(name: str) -> None:
    change, modules, flops = COUNTED[name]
    result = derive(small(**change), Strategy(fusion="eager", micro_batch_size=2, seq_length=11))
    assert {m: int(result.value(f"N_{m}")) for m in MODULES if result.numbers.get(f"N_{m}")} == modules
    assert int(result.value("F")) == flops


@pytest.mark.parametrize(("name", "count"), [("e2b", 4_435_182_688), ("e4b", 6_835_235_568)])
def test_models_as_published(name: str, count: int) -> None:
    """Parameters of transformers' text tower on the meta device."""
    assert int(derive(load_model(f"gemma-3n-{name}").architecture, load_strategy("")).value("params.total")) == count


def test_streams_lie_where_they_are_mixed() -> None:
    """Under tensor parallelism a layer sends what one without streams does, and the moments of a row of the gate."""
    block = derive(small(), load_strategy("tp=2,sp=true")).lowered.blocks[spelt("sparse_local")]
    sent = [message.op for _, message in block.differentiated.forward_messages]
    assert sent == ["all_gather", "reduce_scatter", "all_gather", "all_reduce", "all_reduce", "reduce_scatter"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"altup_active_idx": 1}, "'altup_active_idx' must be 0"),
        ({"altup_coef_clip": None}, "'altup_coef_clip' must be a number"),
        ({"activation_sparsity_pattern": [0.9]}, "'activation_sparsity_pattern' has 1 entries, but there are 6 layers"),
        ({"activation_sparsity_pattern": [1.5] * 6}, "'activation_sparsity_pattern' must be a list of numbers from 0 to below 1"),
        ({"intermediate_size": [96] * 5}, "'intermediate_size' has 5 entries"),
        ({"intermediate_size": [96] * 5 + [0]}, "'intermediate_size' must be positive integers"),
    ],
)
def test_a_config_that_does_not_read_says_why(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        small(**change)


def test_layers_of_one_type_with_other_widths_are_kinds_of_their_own() -> None:
    model = small(intermediate_size=[96, 96, 40, 96, 96, 96], activation_sparsity_pattern=[0.0] * 6)
    assert [model.layer_kinds[kind].ffn_hidden_size for kind in ("local", "local_2")] == [None, 40]


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="altup and laurel_rank go with whole layers, and without parallel_block"):
        Architecture.model_validate(small().model_dump() | {"parallel_block": True})
