"""One list of a step's messages: what is listed is what is priced, and a group of one rank sends nothing."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from symsim.algebra.expr import expr
from symsim.api.result import Result, derive
from symsim.cost.collectives import Network, groups
from symsim.errors import InputError
from symsim.grid.api import sweep
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.ir.messages import Message
from symsim.pipeline.shared import groups_of_stages
from symsim.report import render_markdown

MODELS = ("llama3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b", "gemma-3-4b", "qwen3-0.6b")
CHOICES = {
    "tp": ("1", "2"),
    "sp": ("true", "false"),
    "cp": ("1", "2"),
    "pp": ("1", "2", "4"),
    "vpp": ("1", "1", "2"),
    "ep": ("1", "2", "4"),
    "etp": ("1", None),
    "dp": ("1", "4", "8"),
    "zero": ("0", "1", "1", "2", "3"),
    "num_distributed_optimizer_instances": ("1", "1", "2"),
    "overlap_grad_reduce": ("true", "false"),
    "gradient_sync": ("every_microbatch", "last_microbatch"),
    "grad_reduce_in_fp32": ("true", "false"),
    "mtp_num_layers": (None, None, "1"),
    "recompute": ("none", "full"),
    "fusion": ("te", "te", "eager"),
}
LAYOUT = "num_microbatches=4,pipeline_model_parallel_layout="
EAGER = "tp=4,sp=true,pp=8,ep=8,dp=8,micro_batch_size=4,num_microbatches=1,fusion=eager"
T14, T15, T16, T31, T58 = (n * "t" for n in (14, 15, 16, 31, 58))
PLACED = (
    ("deepseek-v3", f"pp=4,dp=2,tp=2,sp=true,mtp_num_layers=1,{LAYOUT}E{T15}|{T31}|{T15}m|L"),
    ("qwen3-0.6b", f"pp=4,dp=2,mtp_num_layers=1,{LAYOUT}E{T14}|{T14}|m|L"),
    ("deepseek-v3", f"pp=2,ep=8,dp=8,mtp_num_layers=1,{LAYOUT}Ettt|{T58}mL"),
    ("llama3-8b", f"pp=4,dp=2,tp=2,sp=true,{LAYOUT}E|{T16}|{T16}|L"),
    ("mixtral-8x22b-instruct", EAGER),
    ("qwen3-0.6b", "pp=4,dp=2,schedule=zbv,vpp=2,num_microbatches=8"),
    ("qwen3-0.6b", f"pp=3,dp=2,mtp_num_layers=1,{LAYOUT}E{T14}|{T14}m|L"),
)


def drawn(count: int) -> list[tuple[str, str]]:
    draw, found = random.Random(9), []
    while len(found) < count:
        model = draw.choice(MODELS)
        given = {n: draw.choice(v) for n, v in CHOICES.items()}
        text = ",".join(f"{n}={v}" for n, v in given.items() if v is not None and v != "1") + ",num_microbatches=8"
        try:
            derive(load_model(model).architecture, load_strategy(text))
        except InputError:
            continue
        found.append((model, text))
    return found


CASES = [*PLACED, *drawn(40)]


def shape(message: Message, at: Any) -> tuple[Any, ...]:
    bytes_of = (message.send_bytes, message.receive_bytes)
    return (message.op, message.axis, message.per, *(Fraction(e.evaluate(at)) for e in (message.group, *bytes_of)))


@pytest.mark.long_after(20)
@pytest.mark.parametrize(("model", "strategy"), CASES, ids=range(len(CASES)))
def test_what_is_listed_is_what_is_priced(model: str, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every message that is no block's own: group, bytes, calls, on every stage."""
    priced: list[Message] = []
    times = Network.seconds
    monkeypatch.setattr(Network, "seconds", lambda self, m: (priced.append(m), times(self, m))[1])
    result = derive(load_model(model).architecture, load_strategy(strategy), system=load_system("h100-sxm"))
    lowered = (*result.lowered.blocks.values(), *result.lowered.checkpointed.values())
    blocks = {id(m) for b in lowered for _, m in (*b.differentiated.forward_messages, *b.backward_messages)}
    wholes = {m.what for m in priced if id(m) not in blocks}
    for stage in result.stages:
        at = result.stage_numbers(stage)
        ours = [m for m in priced if id(m) not in blocks and m.op != "p2p"]
        mine: Counter[tuple[Any, ...]] = Counter()
        for m in ours:
            calls = int(m.count.evaluate(at))
            if calls and m.group.evaluate(at) != 1:
                mine[shape(m, at)] += calls
        listed: Counter[tuple[Any, ...]] = Counter()
        for m in result.stage_messages(stage):
            if m.op != "p2p" and set(m.what.split("; ")) & wholes:
                listed[shape(m, at)] += int(m.count.evaluate(at))
        assert listed == mine
        assert all(m.group.evaluate(at) > 1 for m in result.stage_messages(stage))
        for m in priced:
            axes = groups(result.strategy, result.lowered.mesh, groups_of_stages(result.model, result.strategy))[m.axis]
            members = Fraction(1)
            for a in axes:
                members *= Fraction(a.degree.evaluate(at))
            assert members == m.group.evaluate(at), m


def messages(result: Result, stage: int) -> list[dict[str, Any]]:
    return [m for m in result.to_json()["messages"] if m["stage"] == stage]


def test_router_biases_are_summed_in_the_tail_of_a_step() -> None:
    """The all-reduce of tokens per expert takes time, with the bytes of every router of a stage, depths of MTP too."""
    found = {}
    for bias in ("none", "buffer"):
        model = load_model("deepseek-v3").architecture
        assert model.moe is not None
        moe = model.moe.model_copy(update={"moe_router_enable_expert_bias": bias})
        strategy = load_strategy("tp=2,sp=true,pp=4,ep=8,dp=8,mtp_num_layers=1,num_microbatches=8")
        found[bias] = derive(model.model_copy(update={"moe": moe}), strategy, system=load_system("h100-sxm"))
    (last,) = [m for m in messages(found["buffer"], 3) if m["axis"] == "tp_dp_cp"]
    assert last["send_bytes"] == 256 * 4 * (found["buffer"].stage_numbers(found["buffer"].stages[3])["L_moe_i"] + 1)
    for with_it, without in zip(*([r.stage_numbers(s) for s in r.stages] for r in (found["buffer"], found["none"])), strict=True):
        assert with_it["c_grad_stage"] > without["c_grad_stage"]


def test_a_share_of_the_boundary_tensor_is_gathered_on_arrival() -> None:
    """Megatron-LM until 2022 (p2p_communication.py): a chunk of 1/t is sent, and gathered over tp; not with sequence parallelism."""
    model, whole = load_model("llama3-8b").architecture, 4096 * 4096 * 2
    given = {"pipeline_scatter_gather": "true"}
    for strategy, share in (("tp=4,pp=4", whole // 4), ("tp=4,pp=4,sp=true", whole // 4), ("pp=4", whole)):
        results = [derive(model, load_strategy(f"{strategy},num_microbatches=8"), a, system=load_system("h100-sxm")) for a in (given, {})]
        sent = [{max(m["send_bytes"], m["recv_bytes"]) for m in r.to_json()["messages"] if m["op"] == "p2p"} for r in results]
        assert sent[0] == {share}
        gathers = [[m for m in messages(results[0], s) if "on arrival" in m["what"]] for s in range(4)]
        if strategy != "tp=4,pp=4":
            assert not any(gathers) and results[0].value("t_step") == results[1].value("t_step")
            continue
        assert sent[1] == {whole}
        phases = [[(m["phase"], m["op"], m["axis"], m["group_size"], m["count"], m["send_bytes"], m["recv_bytes"]) for m in g] for g in gathers]
        forward, backward = (("forward", "all_gather", "tp", 4, 1, share, whole), ("backward", "all_gather", "tp", 4, 1, share, whole))
        assert phases == [[backward], [forward, backward], [forward, backward], [forward]]
        # a gather over tp takes as long as any other all-gather of so many bytes
        one = Message("forward", "all_gather", "tp", expr(4), expr(share // 2), expr(whole // 2), "bf16", "")
        at = results[0].stage_numbers(results[0].stages[1])
        book = results[0].derivation
        assert "beta_tp_all_gather" in book.definitions
        seconds = float(one.receive_bytes.evaluate(at)) * float(at["beta_tp_all_gather"]) * 3 / 4 + float(at["alpha_tp"])
        before = results[1].stage_numbers(results[1].stages[1])
        assert float(at["t_stage"] - before["t_stage"]) == pytest.approx(2 * seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("llama3-8b", ""),
        ("llama3-8b", "fusion=eager"),
        ("mixtral-8x7b", "ep=2,dp=2"),
        ("llama3-8b", "dp=2,num_distributed_optimizer_instances=2"),
        ("llama3-8b", "dp=2,recompute=full,distribute_saved_activations=false"),
        ("qwen3-0.6b", "pp=2,vpp=2,schedule=zbv,num_microbatches=4"),
    ],
)
def test_one_rank_sends_itself_nothing(model: str, strategy: str) -> None:
    result = derive(load_model(model).architecture, load_strategy(strategy), system=load_system("h100-sxm"))
    assert all(m["group_size"] > 1 for m in result.to_json()["messages"])
    report = render_markdown(result)
    assert ("| all-reduce |" in report) == any(m["op"] == "all_reduce" for m in result.to_json()["messages"])
    if result.strategy.world_size == 1:
        assert "Messages: none" in result.table()


@pytest.mark.parametrize(
    ("model", "strategy", "axes", "overrides"),
    [
        ("deepseek-v3", "sp=true,mtp_num_layers=1,num_microbatches=8", {"tp": [1, 2], "pp": [2, 4], "ep": [4], "dp": [4, 8]}, {}),
        ("llama3-8b", "num_microbatches=8", {"tp": [1, 4], "pp": [1, 2, 4], "sp": [False]}, {"assume.pipeline_scatter_gather": "true"}),
        ("llama3-8b", "num_microbatches=8,tp=2", {"vpp": [1, 2, 4], "pp": [2, 4]}, {"assume.pipeline_scatter_gather": "true"}),
    ],
)
def test_sweeps_price_the_same_messages(model: str, strategy: str, axes: dict[str, list[Any]], overrides: dict[str, str]) -> None:
    rows = sweep(model, axes, strategy, "h100-sxm", overrides=overrides).rows
    given = {"pipeline_scatter_gather": "true"} if overrides else {}
    assert len(rows["time.step"]) > 3
    for k, step in enumerate(rows["time.step"]):
        point = ",".join(f"{n}={str(rows[n][k]).lower()}" for n in axes)
        result = derive(load_model(model).architecture, load_strategy(f"{strategy},{point}"), given, system=load_system("h100-sxm"))
        assert float(step) == pytest.approx(float(result.value("t_step")), rel=1e-12)


def test_a_group_of_counts_is_its_axis() -> None:
    """PyTorch exchanges counts over the expert ranks, whatever etp is: one definition of seconds a byte over ep."""
    result = derive(load_model("mixtral-8x22b-instruct").architecture, load_strategy(EAGER), system=load_system("mi300x"))
    over_ep = [m for m in result.to_json()["messages"] if m["axis"] == "ep" and m["stage"] == 0]
    assert {m["group_size"] for m in over_ep} == {8} and any("tokens per expert" in m["what"] for m in over_ep)
    axes = ["tp=4", "pp=8", "ep=8,4", "micro_batch_size=4", "num_microbatches=1", "sp==tp>1"]
    steps = sweep("mixtral-8x22b-instruct", axes, "fusion=eager,dp=8", "mi300x").rows["time.step"]
    assert len(steps) == 2 and float(result.value("t_step")) in [pytest.approx(float(t), rel=1e-12) for t in steps]
