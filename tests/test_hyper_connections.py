"""Several residual streams: the facts are those of transformers' own module around a Llama layer (transformers 5.23, DeepseekV4HyperConnection and
DeepseekV4HyperHead; torch 2.13: parameters, FlopCounterMode, storages that forward leaves alive and tables that come from outside)."""

from __future__ import annotations

from collections import Counter

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture, HyperConnections
from symsim.inputs.attention import Attention
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


def test_streams_mixed_by_three_kernels() -> None:
    """Unfused, what is mixed and what is spread are written and read again, each as wide as the streams; the same is kept."""
    model = connected(load_model("llama3.2-1b").architecture, 4)
    fused, apart = (derive(model, load_strategy(f"use_fused_mhc={said}")) for said in ("true", "false"))
    assert apart.numbers["F_dense"] == fused.numbers["F_dense"]
    streams, weights = 4096 * 4 * 2048 * 2, 4096 * (4 + 16) * 2  # the weights that spread and mix have 16-bit copies
    assert apart.numbers["A_dense"] - fused.numbers["A_dense"] == -2 * weights
    assert apart.numbers["Q_dense"] - fused.numbers["Q_dense"] == 2 * (4 * streams + 2 * weights)


def test_streams_are_made_again_from_what_a_layer_reads() -> None:
    """mhc: of the streams a layer's input stays, and what mixer and network made."""
    model = connected(load_model("llama3.2-1b").architecture, 4)
    result = derive(model, load_strategy("recompute=selective,recompute_modules=mhc"))
    kept = {item.tensor.name for item in result.lowered.blocks["dense"].saved}
    wide = {name for name in kept if "n_r" in result.lowered.blocks["dense"].placed.block.tensors[name].dims}
    assert wide == {"x"} and {"attention.o_proj.out", "mlp.down_proj.out"} <= kept
    assert not any(name.endswith("_connection.collapsed") for name in kept)
    with pytest.raises(InputError, match="recompute_modules=mhc needs hyper-connections"):
        derive(load_model("llama3.2-1b").architecture, load_strategy("recompute=selective,recompute_modules=mhc"))
    with pytest.raises(InputError, match="mhc.mlp is refused"):
        derive(model, load_strategy("recompute=selective,recompute_modules=mhc+mlp"))


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="hyper_connections go without parallel_block"):
        connected(load_model("gpt-neox-20b").architecture, 2)


HY = SMALL | {"model_type": "hy_v4", "num_hidden_layers": 2, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
HY |= {"v_head_dim": 10, "index_topk": 7, "index_n_heads": 2, "index_head_dim": 20, "hc_mult": 3, "mlp_layer_types": ["dense", "dense"]}


def hy(strategy: str) -> Result:
    return derive(read_config(HY, "small", "config.json")[0], load_strategy(f"seq_length=32,{strategy}"))


def test_independent_streams_are_spread_and_not_mixed() -> None:
    """HY V4: two weights of every stream at a site, no matrix of streams, and a norm that scales what was projected; all tokens by tokens."""
    result = hy("fusion=eager")
    block = result.lowered.blocks["dense"].placed.block
    held = {t.name.rsplit(".", 2)[-2 if t.name.endswith("weight") else -1]: t for t in block.parameters() if "mlp_connection" in t.name}
    assert sorted(held) == ["base", "fn", "scale"]
    assert [int(elements(result.lowered.blocks["dense"].placed, held[name].name).evaluate(result.numbers)) for name in sorted(held)] == [
        6,
        6 * 192,
        2,
    ]
    assert not {"mix_streams"} & {op.kind for op in block.ops}
    products = [p for op in block.ops if "connection" in op.name for p in op.products]
    assert products == [("b", "s", "w_r", "n_r", "h")] * 2
    adapted = hy("fusion=eager,tuner_type=lora").lowered.blocks["dense"].placed.block.tensors
    assert not any("connection" in name and "lora" in name for name in adapted)  # a parameter, and no linear module


def test_a_gate_of_values_reads_what_tensor_ranks_gather() -> None:
    """The gate of every value of latent attention is of a rank's heads, and the stream that it reads is gathered for it and scattered back."""
    with_gate, model = hy("tp=2,sp=true"), read_config(HY, "small", "config.json")[0]
    spec = model.attention.model_copy(update={"output_gate": False})
    without = derive(model.model_copy(update={"attention": spec}), load_strategy("seq_length=32,tp=2,sp=true"))

    def sent(result: Result) -> Counter[tuple[str, str, str]]:
        block = result.lowered.blocks["dense"]
        both = [("forward", block.differentiated.forward_messages), ("backward", block.backward_messages)]
        return Counter((phase, m.op, str(m.send_elements)) for phase, messages in both for _, m in messages)

    more = sent(with_gate) - sent(without)
    again = ("backward", "all_gather", "b*h*s/tp")
    assert more == {("forward", "all_gather", "b*h*s/tp"): 1, ("backward", "reduce_scatter", "b*h*s"): 1, again: 1}
    assert int(with_gate.value("params.total") - without.value("params.total")) == 2 * 64 * 4 * 10
    placed = with_gate.lowered.blocks["dense"].placed
    held = [int(elements(placed, name).evaluate(with_gate.numbers)) for name in ("attention.sinks", "attention.gate_proj.weight")]
    assert held == [4 // 2, 64 * 4 * 10 // 2]


def test_what_a_gate_of_latent_attention_goes_without() -> None:
    spec = read_config(HY, "small", "config.json")[0].attention.model_dump()
    with pytest.raises(ValueError, match="fused_gate and gate_head_bias of an output_gate go with kind: gqa"):
        Attention.model_validate(spec | {"fused_gate": True})
