"""Definitions that are made when they are asked for: their values are the numbers of `eval --json` and of the reports."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from symsim import InputError, derive
from symsim.algebra.expr import Number
from symsim.api.result import Result
from symsim.pipeline.stages import Stage
from symsim.report.totals import Totals

CASES = {
    "tp": ("llama3-8b", "tp=4,sp=true,dp=2,num_microbatches=4", {}),
    "tp, pp, chunks": ("llama3-8b", "tp=2,pp=4,vpp=2,sp=true,num_microbatches=8,zero=1,dp=2", {}),
    "a V": ("llama3-8b", "pp=4,vpp=2,schedule=zbv,num_microbatches=8", {}),
    "sent in shares": ("llama3-8b", "tp=2,pp=4,num_microbatches=8", {"assume.pipeline_scatter_gather": "true"}),
    "cp, recomputed in part": ("llama3-8b", "tp=2,sp=true,cp=4,pp=2,num_microbatches=4,recompute=selective", {}),
    "recomputed in full": ("llama3-8b", "pp=4,tp=2,num_microbatches=8,recompute=full,recompute_method=block,recompute_num_layers=3", {}),
    "recomputed in groups": ("llama3-8b", "pp=2,dp=2,num_microbatches=8,recompute=full,recompute_num_layers=4", {}),
    "sharded": ("llama3-8b", "dp=8,zero=3,num_microbatches=4,fusion=eager", {}),
    "sharded gradients": ("llama3-8b", "dp=4,zero=2,num_microbatches=4", {}),
    "instances": ("llama3-8b", "dp=8,zero=1,num_distributed_optimizer_instances=2", {}),
    "experts": ("mixtral-8x7b", "tp=2,sp=true,ep=4,etp=1,dp=8,pp=2,num_microbatches=8,zero=1", {}),
    "experts sharded": ("mixtral-8x7b", "ep=4,dp=8,zero=3,num_microbatches=2", {}),
    "latent attention, mtp": ("deepseek-v3", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,cp=2,num_microbatches=16", {}),
    "tied": ("qwen3-0.6b", "pp=2,tp=2,num_microbatches=4", {}),
}


@cache
def made(case: str) -> Result:
    model, strategy, overrides = CASES[case]
    return derive(model, strategy, overrides=overrides, system="h100-sxm")


def numbers(result: Result, stage: Stage | None = None) -> Mapping[str, Number]:
    """Of every definition of the model, or of a stage too."""
    known = dict(result.step_numbers) if stage is None else {**result.step_numbers, **result.stage_numbers(stage)}
    known |= {} if stage is None else result.stage_values(stage)
    for name, definition in result.further.definitions.items():
        if name not in known and (stage is not None or definition.key.scope != "stage"):
            known[name] = definition.expr.evaluate(known)
    return known


def rounded_up(value: Number) -> int:
    return math.ceil(Fraction(value))


@pytest.mark.parametrize("case", CASES)
def test_totals_by_module(case: str) -> None:
    result, found = made(case), numbers(made(case))
    said = result.to_json()["flops"]
    for letter, word in (("F", "forward"), ("G", "backward"), ("R", "recompute")):
        own = {d.key.module: found[d.symbol] for d in result.definitions(letter, scope="model") if d.key.module}
        assert own == {m: entry[word] for m, entry in said["by_module"].items() if entry[word]}
        assert sum(own.values()) == found[letter] == said[word]
    for stage, total in zip(result.stages, result.to_json()["params"]["per_rank"]):
        at = numbers(result, stage)
        assert sum(at[d.symbol] for d in result.definitions("P", scope="stage") if d.key.module) == total["total"]
        kept = {d.key.module.replace("_", " "): at[d.symbol] for d in result.definitions("A", scope="stage") if d.key.module}
        assert sum(kept.values()) == at["A_stage"]
        shown = Totals(result).saved(stage.index)
        assert {m.replace("_", " "): n for m, n in shown.items() if n} == {m: n for m, n in kept.items() if n}


@pytest.mark.parametrize("case", CASES)
def test_every_message_is_defined(case: str) -> None:
    result = made(case)
    said: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for m in result.to_json()["messages"]:
        key = (m["stage"], m["phase"], m["op"], m["axis"], m["per"])
        for n, value in enumerate((m["count"], m["count"] * m["send_bytes"], m["count"] * m["recv_bytes"])):
            said[key][n] += value
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for stage in result.stages:
        at = numbers(result, stage)
        for d in result.definitions("calls", scope="stage"):
            if d.key.tensor and at[d.symbol]:
                per = "step" if "calls a step" in d.meaning else "microbatch"
                sizes = [rounded_up(at[d.key._replace(quantity=name).text]) for name in ("handed_in", "got_back")]
                for n, value in enumerate((1, *sizes)):
                    found[stage.index, d.key.phase, d.key.operation, d.key.axis, per][n] += int(at[d.symbol]) * value
    assert {k: v for k, v in found.items() if v[1] or v[2]} == dict(said)


@pytest.mark.parametrize("case", ["tp", "experts", "sharded", "instances"])
def test_sums_of_messages(case: str) -> None:
    result = made(case)
    at = numbers(result, result.stages[-1])
    for together in (d for d in result.definitions("handed_in", "got_back", "on_wire", "calls", scope="stage") if not d.key.tensor):
        key, total = together.key, Fraction(0)
        for own in result.definitions(key.quantity, scope="stage", phase=key.phase, operation=key.operation, axis=key.axis):
            if own.key.tensor:
                assert ("a step" in result.further[own.key._replace(quantity="calls")].meaning) == (key.phase == "step" or key.part == "once")
                total += Fraction(at[own.symbol]) * (1 if key.quantity == "calls" else Fraction(at[own.key._replace(quantity="calls").text]))
        assert total == at[together.symbol]


def test_bytes_on_the_wire() -> None:
    result = made("tp")
    at = numbers(result, result.stages[0])
    wire = {(d.key.operation, d.key.axis): (at[d.symbol], d.key) for d in result.definitions("on_wire", scope="stage") if d.key.tensor}
    buffer = 2 * 4096 * 4096
    assert wire["all_gather", "tp"][0] == Fraction(buffer * 3, 4) == wire["reduce_scatter", "tp"][0]
    # a large all-reduce is a ring, and a tree where latency is all; without a system none is chosen, and the ring counts
    fast, slow, counted = (
        derive("llama3-8b", "dp=512,zero=0", overrides=overrides, system=system)
        for overrides, system in (({"alpha_1": "0 s", "alpha_2": "0 s"}, "h100-sxm"), ({"alpha_2": "1 s"}, "h100-sxm"), ({}, None))
    )
    handed = fast.stage_numbers(fast.stages[0])["P_stage"] * 4
    ring = Fraction(2 * handed * 511, 512)
    for result, bytes in ((fast, ring), (slow, 2 * handed), (counted, ring)):
        (gradients,) = (d for d in result.definitions("on_wire", scope="stage", axis="dp_cp") if d.key.tensor)
        own = result.stage_numbers(result.stages[0])
        assert gradients.expr.evaluate({**(result.step_numbers if result.system else result.numbers), **own}) == bytes


@pytest.mark.parametrize("case", CASES)
def test_backward_of_an_operation_and_parameters_of_a_weight(case: str) -> None:
    result, found = made(case), numbers(made(case))
    for name in result.lowered.blocks:
        backward = [d for d in result.definitions("G", scope="block", block=name) if d.key.operation]
        assert sum(found[d.symbol] for d in backward) == found[f"G_{name}"]
        assert sum(found[d.symbol] for d in result.definitions("Y", scope="block", block=name) if d.key.operation) == found[f"Y_{name}"]
        for letter in "NP":
            weights = sum(found[d.symbol] for d in result.definitions(letter, scope="block", block=name) if d.key.tensor)
            assert weights == sum(found[d.symbol] for d in result.definitions(letter, scope="block", block=name) if d.key.module)


def test_seconds_by_module_are_those_of_the_kernels() -> None:
    for case in ("tp", "experts", "latent attention, mtp", "recomputed in full", "cp, recomputed in part"):
        model, strategy, overrides = CASES[case]
        result = derive(model, strategy, overrides={**overrides, "assume.host_launch": "hidden"}, system="h100-sxm")
        for stage in result.stages:
            at = numbers(result, stage)
            for phase, letter in (("forward", "f"), ("inputs", "i"), ("weights", "w"), ("again", "r")):
                modules = sum(float(at[d.symbol]) for d in result.definitions("t", scope="stage", phase=phase) if d.key.module)
                messages = {"f": "forward", "i": "backward"}.get(letter, "none")
                exposed = sum(float(at[d.symbol]) for d in result.definitions("e", scope="stage", phase=messages))
                assert math.isclose(modules + exposed, float(at[f"t{letter}_stage"]), rel_tol=1e-12, abs_tol=1e-18)


def test_the_bubble_as_a_share() -> None:
    for case in ("tp, pp, chunks", "experts", "a V"):
        result = made(case)
        said = result.to_json()["time"]
        assert math.isclose(result.value("bubble_ratio"), said["bubble"] / (result.strategy.microbatches * result.value("t_slow")))
        assert math.isclose(result.value("bubble_share"), said["bubble"] / result.value("t_pipeline"))
    equal = derive("gpt3-175b", "pp=4,num_microbatches=8", overrides={"num_layers_in_first_pipeline_stage": 24}, system="h100-sxm")
    assert 0 < equal.value("bubble_ratio") < 3 / 8 + 1e-9


def test_what_waits_for_the_weight_gradients() -> None:
    """Zero Bubble Pipeline Parallelism, table 1: M_W = 32 s b h of a layer of GPT."""
    result = derive("gpt3-175b", "pp=8,num_microbatches=16")
    waiting = result.formula("A_dense_between").given("a*d = h, g = a, f = 4*h").expand()
    assert str(waiting) == "32*b*h*s"


def test_numbers_with_a_meaning() -> None:
    result = made("recomputed in groups")
    assert [result.value(n) for n in ("bytes_bf16", "bytes_fp32", "gemm_tile", "bucket_size", "recompute_num_layers")] == [2, 4, 128, 40_000_000, 4]


def test_they_are_made_on_demand() -> None:
    result = derive("llama3-8b", "tp=2", system="h100-sxm")
    result.to_json()
    assert result.formula("F_dense").at(b=1, s=8, h=4, a=1, g=1, d=4, f=8) and "further" not in vars(result)
    assert "F_of_attention" not in result.derivation.definitions and result.value("F_of_attention") > 0
    assert "further" in vars(result)


def test_unknown_names_find_the_nearest_of_all() -> None:
    result = made("tp")
    with pytest.raises(KeyError, match="did you mean 'F_of_attention'"):
        result.formula("F_of_attentoin")
    with pytest.raises(KeyError, match="each stage has its own A_stage_of_mlp"):
        result.value("A_stage_of_mlp")
    with pytest.raises(InputError, match="a key has no 'modul': did you mean 'module'"):
        result.definitions("F", modul="mlp")
    assert [d.symbol for d in result.definitions("G", block="dense", operation="mlp.down_proj", phase="wgrad")] == ["G_dense_mlp_down_proj_wgrad"]


def test_seconds_of_a_call() -> None:
    result = derive("llama3-8b", "tp=2,pp=2,dp=4,zero=1", system="h100-sxm")
    numbers_of = {**result.step_numbers, **result.stage_numbers(result.stages[0])}
    single = (d for d in result.definitions("calls", "call_seconds", "ring_seconds", "tree_seconds") if d.key.tensor)
    at = {d.symbol: d.expr.evaluate(numbers_of) for d in single}

    def total(**fields: str) -> object:
        calls = (d.key for d in result.definitions("calls", scope="stage", **fields) if d.key.tensor)
        return sum(at[key.text] * at[key._replace(quantity="call_seconds").text] for key in calls)

    layers = numbers_of["L_dense_i"]
    assert total(block="dense", axis="tp", phase="forward") == numbers_of["c_f_dense_tp"] * layers > 0
    assert total(axis="dp_cp", operation="reduce_scatter") == numbers_of["c_grad_stage"] > 0
    assert total(axis="dp_cp", operation="all_gather") == numbers_of["c_param_stage"] > 0
    reductions = result.definitions("ring_seconds", scope="stage", axis="tp")
    assert reductions
    for ring in reductions:
        tree, call = (at[ring.key._replace(quantity=name).text] for name in ("tree_seconds", "call_seconds"))
        assert call == min(at[ring.symbol], tree)


@pytest.mark.parametrize(
    ("model", "elements"),
    [("deepseek-v3", 35136), ("deepseek-v2", 34560), ("qwen2.5-72b", 163840), ("llama3.1-405b", 258048)]
    + [("gpt3-175b", 2 * 96 * 12288), ("falcon-7b", 4096)],
)
def test_cache(model: str, elements: int) -> None:
    """arXiv 2505.09343 Table 1 (70.272, 327.680 and 516.096 KB at two bytes), arXiv 2405.04434 Tables 1 and 9; whatever kernels do with them."""
    for options in ("", "fusion=eager"):
        assert derive(model, options).value("kv_cache") == elements


def test_hours() -> None:
    result = made("tp")
    hours = result.value("gpu_hours_per_trillion_tokens")
    assert float(hours) * 3600 * float(result.value("tokens_per_second")) == pytest.approx(10**12 * 8, rel=1e-12)


def test_until_input_gradients() -> None:
    """arXiv 2401.10241 sec. 2.3: worker i from one holds p - i + 1 micro-batches whole, and i - 1 for their weight gradients alone."""
    result = derive("llama3-8b", "pp=4,num_microbatches=16,schedule=zb_h1")
    for stage in result.stages:
        values = {**result.values, **result.stage_values(stage)}
        assert [result.formula(n).value(values) for n in ("alive_dgrad_i", "alive_i")] == [4 - stage.index, 4]


@pytest.mark.parametrize(("model", "word"), [("olmo2-7b", "input"), ("llama3-8b", "output")])
def test_gradient_of_the_input_of_a_layer(model: str, word: str) -> None:
    """Without sequence parallelism both column-parallel maps of a layer reduce their input gradient, with a norm before them or without
    (Megatron-Core ColumnParallelLinear)."""
    result = derive(model, "tp=8,fusion=te")
    calls = [d for d in result.definitions("calls", block="dense", phase="backward", operation="all_reduce", axis="tp") if "gradient" in d.key.tensor]
    assert [str(d.expr) for d in calls] == ["2*L_dense_i"]
    assert word in calls[0].key.tensor.rpartition("gradient")[2]
