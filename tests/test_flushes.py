"""Pipelines that empty several times a step, for a part of the micro-batches each."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import equal_stages, held, inexact, refused, sizes

import symsim
from symsim.algebra.expr import minimum, symbol
from symsim.errors import InputError
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import check
from symsim.pipeline.flushes import flushed
from symsim.pipeline.orders import order, replay
from symsim.pipeline.schedules import SCHEDULES, schedule_of, schedule_sizes
from symsim.report.pipeline import picture
from symsim.report.question import idle_pipeline
from symsim.report.step import Step
from symsim.report.timeline import MERAK

OF_STAGES = {"pp": 4, "dp": 4, "zero": 3, "reshard_after_backward": False, "fusion": "compile", "num_microbatches": 16}
WHOLE = {**OF_STAGES, "gradient_sync": "last_microbatch"}
EMPTIED = {**OF_STAGES, "gradient_sync": "every_flush", "pipeline_flushes": 2}
HALF = {**OF_STAGES, "gradient_sync": "last_microbatch", "num_microbatches": 8}


def made(strategy: dict[str, Any], model: str = "llama3-8b", **more: Any) -> Any:
    return symsim.derive(model, strategy, system="h100-sxm", **more)


def seconds_of_runs(name: str, one: dict[str, Any], times: int, length: dict[str, Fraction], message: Fraction = Fraction(0)) -> Fraction:
    """Of the schedule's order as often after itself on every rank, which begins the next run as soon as it is free."""
    m = int(one["m"])
    entries = order(name, int(one["pp"]), m, int(one["vpp"]), int(one["group"]))
    rows = tuple(tuple(tuple(o._replace(microbatch=o.microbatch + k * m) for o in slot) for k in range(times) for slot in row) for row in entries)
    return max(t.end for t in replay(rows, lambda o: length[o.kind], message, pair=lambda _: length["F"] + length["B"]))


@settings(max_examples=120)
@given(st.data())
def test_closed_form_is_the_replay_of_orders_one_after_the_other(data: st.DataObject) -> None:
    """What a rank holds is a run's."""
    name = data.draw(st.sampled_from(sorted(set(SCHEDULES) - set(MERAK))))
    p, times = data.draw(st.integers(2, 6)), data.draw(st.integers(2, 4))
    v = data.draw(st.integers(2, 3)) if SCHEDULES[name].chunks == "any" else int(SCHEDULES[name].chunks)
    m = data.draw(st.integers(1, 14))
    one = sizes(p, m, v, data.draw(st.integers(p, p + 2)))
    if refused(SCHEDULES[name], one):
        return
    quarters = st.integers(2, 12).map(lambda n: Fraction(n, 4))
    f, x, w = data.draw(quarters), data.draw(quarters), data.draw(quarters)
    c = data.draw(st.sampled_from([Fraction(0), Fraction(1, 8)]))
    values = one | {"m": m * times} | equal_stages(p, v, f, x, w, Fraction(0), c, f + x + w)
    schedule = flushed(SCHEDULES[name], times)
    if inexact(SCHEDULES[name], {**values, "m": m}) is None:
        replayed = seconds_of_runs(name, one, times, {"F": f, "B": x + w, "I": x, "W": w}, c)
        known = name in ("gpipe", "1f1b", "zb_h2") or (name in ("zb_h1", "zbv") and m >= 2 * p - 1)
        makespan = schedule.makespan.evaluate(values)
        assert makespan == replayed if known else makespan >= replayed
        assert makespan <= times * SCHEDULES[name].makespan.evaluate({**values, "m": m})
    for rank, peak in enumerate(held(order(name, p, m, v, one["group"]))):
        assert schedule.in_flight.evaluate(values | {"i": rank}) == peak.whole


@pytest.mark.parametrize("name", ["zb_h2", "zbv"])
def test_no_barrier_is_between_two_runs(name: str) -> None:
    f, x, w = Fraction(10), Fraction(12), Fraction(8)
    v = int(SCHEDULES[name].chunks)
    one = sizes(4, 12, v)
    values = {**one, "m": 36} | equal_stages(4, v, f, x, w)
    made = flushed(SCHEDULES[name], 3)
    assert made.makespan.evaluate(values) == seconds_of_runs(name, one, 3, {"F": f, "B": x + w, "I": x, "W": w})
    assert made.makespan.evaluate(values) < 3 * SCHEDULES[name].makespan.evaluate({**values, "m": 12})
    assert made.without_barrier.bubble.evaluate(values) == 3 * SCHEDULES[name].apart.evaluate({**values, "m": 12})


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_messages_of_gradients_hide_behind_a_flush(zero: int) -> None:
    """Parameters are gathered once a step where the update is in shards, and in every flush where they lie in shards."""
    beside = {"zero": zero, "reshard_after_backward": zero < 3, "overlap_grad_reduce": True, "overlap_param_gather": zero > 0}
    for length in (4096, 128):
        two, one = (made({**s, **beside, "seq_length": length}).step_numbers["e_dp"] for s in (EMPTIED, HALF))
        assert one > 0 and (two == pytest.approx(2 * one, rel=1e-12) if zero in (0, 3) else one < two < 2 * one)


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_a_step_of_two_flushes_is_two_of_half_the_micro_batches_and_one_update(name: str) -> None:
    two, one = (made({**strategy, "schedule": name}).step_numbers for strategy in (EMPTIED, HALF))
    for part in ("t_pipeline", "t_bubble", "exposed_fsdp", "exposed_pp", "e_dp"):
        assert two[part] == pytest.approx(2 * one[part], rel=1e-12) and two[part] > 0
    assert two["t_opt"] == one["t_opt"]
    assert made({**WHOLE, "schedule": name}).value("time.step") < made({**EMPTIED, "schedule": name}).value("time.step")


def test_gradients_are_reduced_and_parameters_gathered_as_the_pipeline_empties() -> None:
    counts = {}
    for strategy in (WHOLE, EMPTIED, {**EMPTIED, "gradient_sync": "last_microbatch"}):
        result = made(strategy)
        stage = result.stages[1]
        sent = [m for m in result.stage_messages(stage) if m.axis == "dp_cp" and m.per == "step"]
        found = {m.op: m.count.evaluate(result.stage_numbers(stage)) for m in sent}
        counts[len(counts)] = found["reduce_scatter"], found["all_gather"]
    assert counts[1] == tuple(2 * n for n in counts[0]) and counts[2] == counts[0]


def test_sums_of_the_flushes_before_lie_beside_whole_gradients() -> None:
    """In shards, in fp32; with one micro-batch a flush too."""
    emptied, whole, alone = made(EMPTIED), made(WHOLE), made({**EMPTIED, "num_microbatches": 2})
    for stage in range(4):
        more, less, one = (result.stage_numbers(result.stages[stage]) for result in (emptied, whole, alone))
        assert more["M_stage_gradients"] - less["M_stage_gradients"] == less["M_stage_gradients"] / 4
        assert more["M_stage_peak"] - less["M_stage_peak"] == less["M_stage_gradients"] / 4
        assert one["M_stage_gradients"] == more["M_stage_gradients"]


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("micro", [1, 3])
def test_a_flush_holds_what_its_micro_batches_alone_would_and_the_shards_before(zero: int, micro: int) -> None:
    """With one micro-batch a flush too: its gradients are new, and no sum lies there before its backward."""
    beside = {"zero": zero, "reshard_after_backward": zero < 3, "fusion": "te" if zero == 2 else "compile"}
    two, one = (made({**s, **beside, "num_microbatches": n * micro}) for s, n in ((EMPTIED, 2), (HALF, 1)))
    for stage in range(4):
        more, less = (result.stage_numbers(result.stages[stage]) for result in (two, one))
        shards = more["M_stage_gradients"] / 5
        for at in ("M_stage_peak", "M_stage_gradients", "M_at_forward_dense", "M_at_backward_dense"):
            assert more[at] - less[at] == shards > 0


def test_rows_of_several_lengths_are_waited_for_in_every_flush() -> None:
    lengths = {"document_lengths": "lognormal:500+0.5"}
    for zero in (3, 0):
        two, one = (made({**s, **lengths, "zero": zero, "reshard_after_backward": zero == 0}).step_numbers for s in (EMPTIED, HALF))
        assert two["exposed_lengths"] == pytest.approx(2 * one["exposed_lengths"], rel=1e-12) and two["exposed_lengths"] > 0


def test_further_forwards_fill_the_pipeline_as_often() -> None:
    two, one = (made({**s, "reference_models": 1}).step_numbers["t_further"] for s in (EMPTIED, HALF))
    assert two == pytest.approx(2 * one, rel=1e-12)


def test_a_batch_that_grows_adds_whole_flushes() -> None:
    """What one more micro-batch adds is a part of what one more in every flush adds."""
    asked = {"tokens": "100B", "rampup_batch_size": "4 4 3600"}
    known = symsim.run("llama3-8b", EMPTIED, "h100-sxm", overrides=asked).numbers
    here, more = (made({**EMPTIED, "num_microbatches": m}).step_numbers["t_pipeline"] for m in (16, 18))
    assert known["longer"] == pytest.approx((more - here) / 2, rel=1e-12)


def test_what_is_said_of_a_pipeline_is_of_a_flush() -> None:
    """Of 6 micro-batches in two flushes three fill 4 stages: no formula may take them for 4, the picture has 3, and a stage waits."""
    strategy = {**EMPTIED, "num_microbatches": 6}
    step = Step(made(strategy))
    sizes = {"m": 6, **schedule_sizes(Strategy(**strategy))}
    assert all(larger.evaluate(sizes) >= smaller.evaluate(sizes) for larger, smaller in step.holding)
    assert picture(step).microbatches == 3
    enough = Step(made({**EMPTIED, "num_microbatches": 8}))
    assert enough.decided(minimum(symbol("m") / 2, symbol("pp")))[0] == symbol("pp")
    assert idle_pipeline(Strategy(**strategy)).startswith("3 micro-batches between two flushes keep at most 3 of 4 pipeline stages busy")
    assert idle_pipeline(Strategy(**{**strategy, "num_microbatches": 8})) == ""


def test_a_sweep_knows_it() -> None:
    found = symsim.sweep("llama3-8b", {"pipeline_flushes": [1, 2, 4, 16], "num_microbatches": [16, 24, 32]}, EMPTIED, "h100-sxm").rows
    assert len(found["time.step"]) == 11
    for times, count, step, peak in zip(*(found[n] for n in ("pipeline_flushes", "num_microbatches", "time.step", "memory.peak"))):
        again = made({**EMPTIED, "pipeline_flushes": int(times), "num_microbatches": int(count)})
        assert (step, peak) == pytest.approx((again.value("time.step"), again.value("memory.peak")), rel=1e-12)


def test_a_module_has_rounds_of_a_flush() -> None:
    """Of as many micro-batches as are no multiple of the stages: 12 in two flushes are rounds of 6, and 20 of 5."""
    strategy = "pp=4,vpp=2,dp=4,num_microbatches=16,schedule=interleaved_zb,pipeline_flushes=2"
    space: dict[str, Any] = {}
    exec(symsim.compile("llama3-8b", strategy, "h100-sxm", free=["m"]), space)
    counts = [8, 12, 14, 20]
    found = space["kernel"](m=counts)
    there = [symsim.derive("llama3-8b", strategy.replace("batches=16", f"batches={m}"), system="h100-sxm") for m in counts]
    assert found["memory.peak"].tolist() == [r.value("memory.peak") for r in there]
    assert found["time.step"].tolist() == pytest.approx([float(r.value("time.step")) for r in there], rel=1e-12)


@pytest.mark.parametrize(("micro", "group"), [(20, 5), (24, 4), (6, 3)])
def test_rounds_of_interleaved_zb_are_of_a_flush(micro: int, group: int) -> None:
    strategy = Strategy(pp=4, vpp=2, num_microbatches=micro, schedule="interleaved_zb", pipeline_flushes=2)
    assert schedule_sizes(strategy)["group"] == group
    assert schedule_of(strategy).in_flight.evaluate({**schedule_sizes(strategy), "i": 0}) == schedule_of(
        strategy.model_copy(update={"num_microbatches": micro // 2, "pipeline_flushes": 1})
    ).in_flight.evaluate({"pp": 4, "vpp": 2, "m": micro // 2, "group": group, "i": 0})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"pp": 1}, "pipeline_flushes=2 needs pp above 1"),
        ({"num_microbatches": 9}, "pipeline_flushes=2 does not divide num_microbatches=9; valid: 1, 3, 9"),
        ({"gradient_sync": "every_group", "vpp": 2}, "give gradient_sync=every_flush"),
        ({"defer_embedding_wgrad_compute": True, "fusion": "te"}, "defer_embedding_wgrad_compute=true of Megatron-Core's; give one of them"),
        ({"vpp": 2, "num_microbatches": 12}, r"vpp=2 needs the micro-batches of a flush \(6\) to be a multiple of pp=4"),
        (
            {"schedule": "zb_h2", "num_microbatches": 8},
            "a flush of schedule=zb_h2 needs .* 2\\*pp - 1 or more; it has pp=4, num_microbatches=8, ",
        ),
        ({"vpp": 2, "microbatch_group_size_per_vp_stage": 9}, "should lie between pp=4 and num_microbatches=16/2"),
    ],
)
def test_what_cannot_be_is_a_sentence(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check(symsim.load_model("llama3-8b"), Strategy(**{**EMPTIED, **more}))
