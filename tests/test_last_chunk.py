"""What stands in the model's last chunk alone is held as often as that chunk, by the order of operations replayed."""

from __future__ import annotations

import pytest

from symsim.api.python import derive
from symsim.pipeline.orders import order

V = ("zbv", "v_half", "v_min", "1f1b_v", "dualpipev")


@pytest.mark.parametrize("schedule", ["interleaved", "interleaved_zb", "grouped_interleaved", "looped_bfs", *V])
def test_prediction_depths_are_held_as_their_chunk(schedule: str) -> None:
    p, v = 4, 2
    for m in (8, 12) if schedule in V else (4, 8, 12):
        result = derive("llama3-8b", f"pp={p},vpp={v},schedule={schedule},mtp_num_layers=1,num_microbatches={m}")
        stage = next(s for s in result.stages if s.mtp)
        numbers = result.stage_numbers(stage)
        chunk = 2 * p - 1 if schedule in V else v * p - 1
        depth = numbers["A_mtp"] * numbers["mtp_i"]
        head = 0 if schedule == "looped_bfs" else numbers["A_head"]
        others = (numbers["alive_i"] - 1) * (numbers["A_stage"] - head - depth)
        assert numbers["M_stage_earlier"] == others + (_held(schedule, p, m, v, stage.index, chunk) - 1) * depth


def _held(schedule: str, p: int, m: int, v: int, rank: int, chunk: int) -> int:
    """Micro-batches of a chunk that a rank holds at once, at most."""
    now = most = 0
    for slot in order(schedule, p, m, v)[rank]:
        now += sum(kind == "F" and stage == chunk for kind, stage, _ in slot)
        most = max(most, now)
        now -= sum(kind in "BW" and stage == chunk for kind, stage, _ in slot)
    return most
