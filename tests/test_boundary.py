"""How boundary tensors travel: ranks that wait for them, shapes ahead of them, and the ends of an interleaved schedule."""

from __future__ import annotations

import random
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.importers.reading import Options, read_job
from symsim.inputs.strategy import Strategy
from symsim.pipeline.orders import Order, order, replay
from symsim.pipeline.schedules import schedule_of


def equal(p: int, m: int, f: float, b: float, c: float, v: int = 1, group: int = 0) -> dict[str, Any]:
    """Equal stages, of which a chunk takes f forward and b backward."""
    one = {"tf": f * v, "ti": b * v, "tw": 0, "tr": 0}
    return {
        **one,
        **{f"sum_{k}": t * p for k, t in one.items()},
        "pp": p,
        "m": m,
        "vpp": v,
        "group": group or p,
        "tc": c,
        "t_place": 0,
        "t_uneven": 0,
        "t_late": 0,
        "tfb": 0,
    }


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("mode", "exchanges"), [("batched", "merak_1f1b"), ("single", "ds_default")])
def test_ranks_that_wait(mode: str, exchanges: str, seed: int) -> None:
    """1F1B with blocking exchanges, replayed: the pairs of a step together, or one after the other."""
    draw = random.Random(seed)
    p, m, f, c = draw.randint(2, 9), draw.randint(1, 24), draw.randint(20, 60), draw.randint(1, 9)
    b = draw.randint(f, 3 * f)
    schedule = schedule_of(Strategy(pp=p, num_microbatches=m, p2p_comm=mode))
    entries = order(exchanges, p, m)
    length = {"F": f, "B": b, "R": 0}
    assert schedule.makespan.evaluate(equal(p, m, f, b, c)) == max(t.end for t in replay(entries, lambda o: length[o.kind], exchange=c))
    assert schedule.in_flight == schedule_of(Strategy(pp=p, num_microbatches=m)).in_flight


def with_waits(rows: Order, ahead: list[int], last: int, f: float, b: float, c: float) -> float:
    """The last end where a rank stands still for what it sends in its first and last `ahead` operations, and sends beside work between."""
    arrived: dict[tuple[str, int, int], float] = {}
    clock, position, moved = [0.0] * len(rows), [0] * len(rows), True
    ends: list[float] = []
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while position[rank] < len(row):
                entry = row[position[rank]]
                assert isinstance(entry, tuple)
                kind, stage, k = entry[0]
                source = ("F", stage - 1, k) if kind == "F" else ("B", stage + 1, k)
                edge = stage == (0 if kind == "F" else last)
                if not edge and source not in arrived:
                    break
                clock[rank] = max(clock[rank], 0 if edge else arrived[source]) + (f if kind == "F" else b)
                ends.append(clock[rank])
                arrived[kind, stage, k] = clock[rank] + c
                sends = stage != (last if kind == "F" else 0)
                if sends and not ahead[rank] <= position[rank] < len(row) - ahead[rank]:
                    clock[rank] += c
                position[rank] += 1
                moved = True
    assert [len(row) for row in rows] == position
    return max(ends)


@pytest.mark.parametrize("seed", range(40))
def test_ends_of_an_interleaved_schedule_that_wait(seed: int) -> None:
    draw = random.Random(seed)
    p, v, c = draw.choice((2, 3, 4, 6)), draw.choice((2, 3)), draw.randint(1, 5)
    group = draw.randint(p, 3 * p)
    m = group * draw.randint(1, 2) + (draw.randint(p, group - 1) if group > p and draw.random() < 0.5 else 0)
    f, b = draw.randint(50, 150), draw.randint(50, 300)
    options: dict[str, Any] = {"pp": p, "vpp": v, "num_microbatches": m, "microbatch_group_size_per_vp_stage": group, "overlap_p2p_comm": True}
    values = equal(p, m, f, b, c, v, group)
    ahead = [min(m * v, (v - 1) * min(group, m) + 2 * (p - 1 - rank)) for rank in range(p)]
    rows = order("interleaved", p, m, v, group)
    waiting, beside = (schedule_of(Strategy(**options, overlap_p2p_comm_warmup_flush=flush)).makespan.evaluate(values) for flush in (False, True))
    replayed = with_waits(rows, ahead, p * v - 1, f, b, c)
    # two ranks: one exchange of a larger group is that of the steady part
    assert waiting == replayed if p > 2 or group == p else replayed <= waiting <= replayed + c
    assert beside == with_waits(rows, [0] * p, p * v - 1, f, b, c)
    if group == p:
        assert waiting == beside


def seconds(options: str, **overrides: str) -> Result:
    result = symsim.derive("llama3-8b", f"pp=4,num_microbatches=8{options}", system="h100-sxm", overrides=overrides)
    assert isinstance(result, Result)
    return result


def test_shapes_and_launches() -> None:
    plain, shaped, waited = (seconds(options) for options in ("", ",variable_seq_lengths=true", ",batch_p2p_sync=true"))
    at = plain.values
    tc = [float(r.numbers["tc"]) for r in (plain, shaped, waited)]
    assert tc[1] - tc[0] == pytest.approx(24 / (at["B_1"] * at["eta_1_p2p"]) + at["alpha_1"])
    assert tc[2] - tc[0] == pytest.approx(at["t_launch"]) and at["t_launch"] > 0
    hidden = symsim.derive("llama3-8b", "pp=4,num_microbatches=8,batch_p2p_sync=true", system="h100-sxm", assumptions={"host_launch": "hidden"})
    assert isinstance(hidden, Result) and float(hidden.numbers["tc"]) == pytest.approx(tc[0])


def test_shapes_are_messages() -> None:
    plain, shaped = (seconds(options).to_json() for options in ("", ",variable_seq_lengths=true"))

    def sent(made: dict[str, Any]) -> float:
        return sum(m["count"] for m in made["messages"] if m["axis"] == "pp")

    assert sent(shaped) == 2 * sent(plain) > 0


WORDS = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 1024 --seq-length 64 --micro-batch-size 1 --global-batch-size 32 --bf16"


def imported(words: str) -> dict[str, Any]:
    job = read_job("megatron", (f"{WORDS} --world-size 8 --pipeline-model-parallel-size 2 {words}").split(), Options())
    assert job.strategy is not None
    return dict(job.strategy)


def test_arguments_of_megatron() -> None:
    virtual = "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 4"
    found = imported(virtual)
    assert found["overlap_p2p_comm"] and found["overlap_p2p_comm_warmup_flush"] is False
    assert imported(f"{virtual} --overlap-p2p-communication-warmup-flush")["overlap_p2p_comm_warmup_flush"] is True
    assert "overlap_p2p_comm_warmup_flush" not in imported("")


def test_prediction_on_a_stage_of_its_own() -> None:
    """Its lengths differ from the trunk's, so shapes are sent ahead (Megatron-Core mtp_standalone)."""
    stages = "--pipeline-model-parallel-size 4 --mtp-num-layers 1 --pipeline-model-parallel-layout"
    words = f"{WORDS} --world-size 8 {stages}".split()
    alone, beside = (read_job("megatron", [*words, layout], Options()).strategy for layout in ("Et*4|t*4|m|L", "Et*4|t*2|t*2|mL"))
    assert alone is not None and alone["variable_seq_lengths"] is True
    assert beside is not None and "variable_seq_lengths" not in beside
    made = symsim.derive("deepseek-v3", "pp=4,ep=8,mtp_num_layers=1,pipeline_model_parallel_layout=Et*30|t*31|m|L")
    assert isinstance(made, Result) and [stage.mtp for stage in made.stages] == [0, 0, 1, 0]
