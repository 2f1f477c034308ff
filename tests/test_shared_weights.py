"""Weights that several layers share: counted, kept and updated once, multiplied by every layer that borrows them."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

import symsim
from symsim.algebra.kinds import spelt
from symsim.api.result import Result, derive
from symsim.cost.memory_backward import gradients_ahead
from symsim.cost.memory_rank import rank_of
from symsim.cost.reduce import narrow_of_block, update_messages
from symsim.errors import InputError
from symsim.evaluation.traffic import stage_messages
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system

KINDS = tuple(map(spelt, ("hybrid", "hybrid_again", "mamba")))


@cache
def zamba2(strategy: str) -> Result:
    return derive(load_model("zamba2-7b").architecture, load_strategy(strategy))


@pytest.mark.parametrize("fusion", ["te", "eager"])
def test_a_block_counts_where_it_is_held(fusion: str) -> None:
    """Zamba2-7B: two blocks of 13 uses; what products are made of does not depend on who holds them."""
    result = zamba2(f"fusion={fusion}")
    assert int(result.value("params.total")) == 7_356_749_648  # 7.4 billion, arXiv 2411.15242
    held, again = (result.lowered.blocks[kind].differentiated for kind in KINDS[:2])
    assert [k.label for k in held.backward] == [k.label for k in again.backward]
    attention = [int(result.numbers[f"N_{kind}_attention"]) for kind in KINDS[1:]]
    assert attention[0] == attention[1]  # of a mixer, and no attention of its own
    assert int(result.numbers[f"N_{KINDS[1]}_mlp"]) == 3584**2 + 128 * (3584 + 2 * 14336)  # a projection, and adapters


def test_gradients_of_what_is_borrowed_are_sent_once() -> None:
    """Each rank sends as many gradients as it has parameters, and norms in front of what tensor ranks share as often as they are held."""
    result = zamba2("tp=2,sp=true,dp=4")
    (stage,) = result.stages
    numbers = result.stage_numbers(stage)
    assert 4 * numbers["P_stage"] == numbers["M_stage_gradients"]
    reduced = result.lowered.blocks[KINDS[1]].differentiated.reduced_over
    assert "tp" in reduced["shared_block.input_norm.weight"]  # a partial sum all the same, which the held one's gradient takes up


def test_copies_of_what_is_borrowed_are_kept_once() -> None:
    """A recipe's copies of a block's weights are no more than its parameters, though its products multiply more than these."""
    result = zamba2("fp8=delayed")
    held, again = (int(narrow_of_block(result.lowered, kind).evaluate(result.numbers)) for kind in KINDS[:2])
    assert 0 < again <= sum(result.numbers[f"N_{KINDS[1]}_{module}"] for module in ("attention", "mlp", "norm")) < held


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("pp=3,tuner_type=lora", "give pp=1, or tuner_type=full"),
        ("zero=3,dp=2,prefetch_bucket_size=10", "what prefetch_bucket_size does then is not known"),
        ("zero=3,dp=2,tuner_type=lora", "give zero=2, or tuner_type=full"),
        ("tp=3", "tp=3 does not divide num_attention_heads=32"),
    ],
)
def test_what_shared_weights_cannot_run_with(strategy: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        zamba2(strategy)
    assert said in str(found.value)


SIZES = {"vocab_size": 96, "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
HELD = 4 * (32 * 32 + 32) + 2 * 32 * 48 + 48 + 32 + 4 * 32  # parameters of a layer


@cache
def albert(strategy: str, groups: int = 2, inner: int = 1, system: bool = False) -> Result:
    """ALBERT of six layers, in groups of which each has one layer's weights (or `inner` layers', in turn)."""
    config = {"model_type": "albert", "num_hidden_layers": 6 // inner, "num_hidden_groups": groups, "inner_group_num": inner, **SIZES}
    model = read_config(config, "albert", "config.json")[0]
    return derive(model, load_strategy(strategy), system=load_system("h100-sxm") if system else None)


def test_layers_that_share_all_weights_hold_them_once() -> None:
    """ALBERT: two groups of three layers; every layer multiplies, and two of six hold parameters, gradients and states."""
    result = albert("dp=2,zero=1")
    assert sum(int(result.value(f"N_{module}")) for module in ("attention", "norm")) == 2 * (4 * (32 * 32 + 32) + 4 * 32) + 2 * 2 * 16
    embedded = 96 * 16 + 512 * 16 + 2 * 16 + 2 * 16 + 16 * 32 + 32
    assert int(result.value("params.total")) == 2 * HELD + embedded + 32 * 16 + 16 + 2 * 16 + 96
    assert result.value("F") == albert("dp=2,zero=1", groups=6).value("F")
    # a layer that runs again does so with its adapters (peft), beside those of the projections of words and of the head
    assert albert("tuner_type=lora,lora_rank=1,fusion=eager").value("params.trained") == 2 * (4 * (32 + 32) + 2 * (32 + 48)) + 2 * (16 + 32)


def _of_stages(result: Result, name: str) -> list[int]:
    return [int(result.stage_numbers(stage)[name]) for stage in result.stages]


def _sums(result: Result, stage: int) -> list[tuple[int, int, int]]:
    """Of a stage the ranks, calls and elements of sums over stages of what layers share."""
    known = {**result.values, **result.stage_numbers(result.stages[stage])}
    own = (m for m in update_messages(result.lowered, result.derivation) if m.axis.startswith("shared"))
    return [tuple(int(n.evaluate(known)) for n in (m.group, m.count, m.send_elements)) for m in own]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("strategy", "groups", "inner", "held", "sums"),
    [
        # layers 0 to 2 have one weight, 3 to 5 another
        ("pp=2", 2, 1, [1, 1], [[], []]),
        ("pp=3", 2, 1, [1, 2, 1], [[(2, 1)], [(2, 2)], [(2, 1)]]),
        ("pp=6,zero=1,dp=2", 2, 1, [1] * 6, [[(3, 1)]] * 6),
        ("pp=3,vpp=2", 2, 1, [2] * 3, [[(3, 2)]] * 3),
        # four stages of two, one, two and one layers
        ("pp=4", 1, 1, [1] * 4, [[(4, 1)]] * 4),
        # two weights in turn: 0 1 0 1 0 1
        ("pp=2", 1, 2, [2, 2], [[(2, 2)], [(2, 2)]]),
        ("pp=6", 1, 2, [1] * 6, [[(3, 1)]] * 6),
        # a group of two layers' weights twice, then a group once: 0 1 0 1 2 3
        ("pp=3", 2, 2, [2, 2, 2], [[(2, 2)], [(2, 2)], [(2, 0)]]),
    ],
)
def test_every_stage_has_a_copy_of_what_its_layers_share(strategy, groups, inner, held, sums) -> None:
    result = albert(strategy, groups, inner)
    ends = {"embedding": 96 * 16 + 512 * 16 + 2 * 16 + 2 * 16 + 16 * 32 + 32, "head": 32 * 16 + 16 + 2 * 16 + 96 + 96 * 16}
    own = [n * HELD for n in held]
    own[0] += ends["embedding"]
    own[-1] += ends["head"]
    assert _of_stages(result, "P_stage") == own
    assert _of_stages(result, "M_stage_gradients") == [4 * n for n in own]
    assert [_sums(result, i) for i in range(len(own))] == [[(ranks, calls, HELD) for ranks, calls in of] for of in sums]
    assert sum(int(n) for stage in result.stages for name, n in result.stage_values(stage).items() if name.startswith("L_")) == 6


def test_time_of_what_stages_share_is_in_the_step() -> None:
    """And a sweep over depths, of which each has other groups of stages, gives what each alone does."""
    alone = {pp: albert(f"pp={pp},num_microbatches=4", 2, 1, True) for pp in (1, 2, 3, 6)}
    unshared = albert("pp=3,num_microbatches=4", 6, 1, True)
    assert alone[3].step_numbers["t_step"] > unshared.step_numbers["t_step"]
    found = symsim.sweep(
        alone[1].model, ["pp=1,2,3,6"], strategy="num_microbatches=4", system="h100-sxm", columns="time.step,memory.peak,params.total"
    ).rows
    assert found["time.step"] == pytest.approx([float(r.step_numbers["t_step"]) for r in alone.values()], rel=1e-12)
    peaks = [max(float(r.stage_numbers(s)["M_stage_peak"]) for s in r.stages) for r in alone.values()]
    assert found["memory.peak"] == pytest.approx(peaks, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "gathers"),
    [("", (6, 6)), (",reshard_after_forward=false", (2, 4)), (",reshard_after_forward=false,reshard_after_backward=false", (2, 0))],
)
def test_a_gathered_weight_is_gathered_for_every_layer_that_has_it(options: str, gathers: tuple[int, int]) -> None:
    """As counted of torch 2.13 with fully_shard on ALBERT's two layers of three runs each, on two ranks: every gather of 7504 elements, forward
    and backward, and two reduce-scatters."""
    result = albert(f"zero=3,dp=2,fusion=eager{options}")
    known = {**result.values, **result.stage_numbers(result.stages[0])}
    counted = Counter[tuple[str, str]]()
    for m in update_messages(result.lowered, result.derivation):
        if m.payload.evaluate(known) == HELD:
            counted[m.phase, m.op] += int(m.count.evaluate(known))
    forward, backward = gathers
    assert counted == Counter({("forward", "all_gather"): forward, ("backward", "all_gather"): backward, ("backward", "reduce_scatter"): 2})


def test_a_block_that_layers_share_is_gathered_beside_their_own_weights() -> None:
    """Zamba2-7B: two layers hold a block and eleven have it from these; what is gathered for a micro-batch is what layers multiply with."""
    result = zamba2("zero=3,dp=2,fusion=eager")
    known = {**result.values, **result.stage_numbers(result.stages[0])}
    messages = [m for m in update_messages(result.lowered, result.derivation) if m.phase == "forward"]
    gathered = sum(int(m.count.evaluate(known) * m.payload.evaluate(known)) for m in messages)
    assert gathered == 7_356_749_648 + 11 * BLOCK
    scattered = [m for m in update_messages(result.lowered, result.derivation) if m.op == "reduce_scatter"]
    assert sum(int(m.count.evaluate(known) * m.payload.evaluate(known)) for m in scattered) == 7_356_749_648


BLOCK = 7168 * 3 * 7168 + 7168 * 3584 + 3 * 3584 * 14336 + 7168 + 3584


@pytest.mark.parametrize("strategy", ["pp=3", "pp=27,dp=2,zero=1", "pp=3,vpp=9"])
def test_stages_have_copies_of_a_block_and_adapters_of_their_own(strategy: str) -> None:
    """Zamba2-7B: each stage has a copy of each of the two blocks that its layers use; adapters and projections are each layer's own."""
    result = zamba2(strategy)
    pp = int(result.values["pp"])
    uses = [i for i, kind in enumerate(k for s in result.model.layers for k in s.kinds * s.repeat) if "hybrid" in kind]
    copies = sum(len({n % 2 for n, i in enumerate(uses) if any(c.first <= i < c.last for c in s.chunks)}) for s in result.stages)
    assert copies > 2
    assert sum(_of_stages(result, "P_stage")) == 7_356_749_648 + 3584 * 32000 + (copies - 2) * BLOCK
    sums = [one for stage in range(pp) for one in _sums(result, stage)]
    assert sum(calls for _, calls, _ in sums) == copies and {n for _, calls, n in sums if calls} == {BLOCK}


def test_what_the_embedding_made_goes_from_stage_to_stage() -> None:
    """Beside the stream, in its layout, and its gradient back; a stage keeps what came until its backward."""
    result = zamba2("pp=3,tp=2,sp=true,num_microbatches=6")
    one = 4096 * 3584 // 2
    for stage, ways in zip(result.stages, (1, 2, 1), strict=True):
        counted = Counter[tuple[str, int]]()
        for m in (m for m in stage_messages(result, stage) if m.op == "p2p"):
            moved = sum(int(n.evaluate(result.values)) for n in (m.send_elements, m.receive_elements))
            counted[m.phase, moved] += int(m.count.evaluate(result.values))
        assert counted == {("forward", one): 2 * ways, ("backward", one): 2 * ways}
    stages = [result.stage_numbers(stage) for stage in result.stages]
    assert [int(n["M_stage_activations"] - n["alive_i"] * n["A_stage"]) for n in stages] == [0, 2 * 2 * one, 2 * one]


def test_time_and_gradients_of_what_goes_beside_the_stream() -> None:
    """Two tensors take twice the time of one; the gradient waits at every layer but those behind the last that reads."""
    model, strategy = load_model("zamba2-7b").architecture, load_strategy("pp=3,num_microbatches=6")
    alone = model.model_validate(model.model_dump() | {"layers": [{"repeat": 81, "kinds": ["mamba"]}]})
    sent = [derive(m, strategy, system=load_system("h100-sxm")).step_numbers["tc"] for m in (model, alone)]
    assert sent[0] == pytest.approx(2 * sent[1], rel=1e-12) and sent[1] > 0
    result = zamba2("pp=3")
    waits = [gradients_ahead(rank_of(result.derivation, result.lowered), kind) for kind in KINDS]
    assert [int(w.evaluate(result.values | {"loss_i": last})) for w in waits for last in (0, 1)] == [2 * 4096 * 3584 * n for n in (1, 1, 1, 0, 1, 0)]


def test_a_layer_borrows_what_there_is() -> None:
    model = load_model("zamba2-7b").architecture
    kinds = {**model.layer_kinds, "hybrid": model.layer_kinds["hybrid_again"]}
    with pytest.raises(ValueError, match="before any layer has held such"):
        type(model).model_validate(model.model_dump() | {"layer_kinds": {k: v.model_dump() for k, v in kinds.items()}})
    with pytest.raises(InputError, match="give pp=1, or tuner_type=full without frozen parameters"):
        albert("pp=2,tuner_type=lora")
