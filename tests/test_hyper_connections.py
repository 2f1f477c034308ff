"""Several residual streams: the facts are those of transformers' own module around a Llama layer (transformers 5.23, DeepseekV4HyperConnection and
DeepseekV4HyperHead; torch 2.13: parameters, FlopCounterMode, storages that forward leaves alive and tables that come from outside)."""

from __future__ import annotations

import pytest

from symsim.api.result import Result, derive
from symsim.inputs.architecture import Architecture, HyperConnections
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.lowering.differentiate import elements

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 100}
# streams, iterations, b, s: parameters of a layer and its FLOPs, bytes kept and tables, parameters and FLOPs of the sum at the end
MEASURED = {
    (4, 20, 2, 48): (43190, 9830400, 1496064, 3072, 1029, 196608),
    (2, 3, 3, 16): (32918, 3391488, 284544, 1024, 259, 24576),
    (3, 1, 1, 8): (36644, 618496, 56128, 512, 580, 9216),
}


def connected(model: Architecture, streams: int, iterations: int = 20) -> Architecture:
    given = {"hyper_connections": HyperConnections(streams=streams, sinkhorn_iterations=iterations)}
    return Architecture.model_validate(model.model_copy(update=given).model_dump())


@pytest.mark.parametrize("case", MEASURED)
def test_counts_of_transformers(case: tuple[int, int, int, int]) -> None:
    streams, iterations, b, s = case
    plain = read_config(SMALL | {"model_type": "llama"}, "small", "config.json")[0]
    given = Strategy(fusion="eager", micro_batch_size=b, seq_length=s), {"attention_kernel": "eager", "causal": "full"}
    result, before = (derive(model, *given) for model in (connected(plain, streams, iterations), plain))
    block = result.lowered.blocks["dense"]
    kept, tables = (sum(int(item.bytes.evaluate(result.numbers)) for item in items) for items in (block.saved, block.shared))

    def layer(found: Result) -> int:
        return sum(int(n) for name, n in found.numbers.items() if name.startswith("N_dense_"))

    at_end = int(result.value("params.total")) - layer(result) - int(before.value("params.total")) + layer(before)
    flops_at_end = int(result.numbers["F_head"] - before.numbers["F_head"])
    assert (layer(result), int(result.numbers["F_dense"]), kept, tables, at_end, flops_at_end) == MEASURED[case]


def test_streams_cross_the_boundary_of_a_stage_and_lie_on_sequence_ranks() -> None:
    model = connected(load_model("llama3.2-1b").architecture, 4)
    result = derive(model, load_strategy("tp=2,sp=true,pp=2"))
    head = result.lowered.blocks["head"].placed
    assert int(elements(head, "x").evaluate(result.numbers)) == 4096 // 2 * 4 * 2048
    sent = [(m.op, m.what) for _, m in result.lowered.blocks["dense"].differentiated.forward_messages]
    assert [op for op, _ in sent] == ["all_gather", "reduce_scatter"] * 2  # the streams are mixed where they lie


def test_fused_kernels_make_the_iterations_again() -> None:
    """Under te what is kept does not depend on them."""
    model = load_model("llama3.2-1b").architecture
    few, many = (derive(connected(model, 4, turns), load_strategy("")) for turns in (2, 20))
    assert few.numbers["A_dense"] == many.numbers["A_dense"]


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="hyper_connections go without parallel_block"):
        connected(load_model("gpt-neox-20b").architecture, 2)
