"""What is kept free beside a peak, and what 'fits' says of it."""

from __future__ import annotations

import json

import in_process
import pytest

from symsim.api.python import derive
from symsim.cost.reserve import communicators
from symsim.grid.api import sweep
from symsim.report.step import Step

MIB = 2**20


@pytest.mark.parametrize(
    ("model", "strategy", "axes"),
    [
        ("llama3-8b", "", set()),
        ("llama3-8b", "tp=2,sp=true,dp=2", {"tp", "dp_cp"}),
        ("llama3-8b", "cp=2,pp=4,dp=1", {"cp", "dp_cp", "pp"}),
        ("mixtral-8x7b", "tp=2,sp=true,ep=4,etp=1,dp=4,pp=2,num_microbatches=4", {"tp", "dp_cp", "ep", "edp", "pp"}),
        ("qwen3-0.6b", "pp=2,dp=4,num_distributed_optimizer_instances=2", {"intra_dp_cp", "inter_dp_cp", "pp", "embd"}),
    ],
)
def test_communicators_are_the_groups_of_the_messages(model: str, strategy: str, axes: set[str]) -> None:
    """As many as the messages of eval name, which are counted apart from them."""
    result = derive(model, strategy)
    groups = communicators(result.lowered)
    assert axes - {a for a, n in groups.items() if n.evaluate(result.values) > 1} == set()
    named = {m["axis"] for m in result.to_json()["messages"] if m["group_size"] > 1}
    assert named - {"tp_dp_cp", "etp_ep"} <= set(groups)


def test_the_reserve_by_hand() -> None:
    """tp of two ranks, dp and pp of four, 6 % of what the allocator holds, 1,411 MiB of the device."""
    result = derive("llama3-8b", "tp=2,sp=true,dp=4,pp=4,num_microbatches=4")
    kept = result.to_json()["memory"]
    assert kept["reserve"]["device"] == 1411 * MIB
    assert kept["reserve"]["communicators"] == (544 + 2 * 688) * MIB
    assert kept["reserve"]["allocator"] == -(-kept["peak"] * 6 // 94)
    assert float(result.value("memory.reserve")) == pytest.approx(sum(kept["reserve"].values()), abs=1)


@pytest.mark.parametrize(
    ("name", "choice", "part", "left"),
    [
        ("device_reserve", "none", "device", 0),
        ("device_context", "cuda", "device", 911 * MIB),
        ("communicator_buffers", "none", "communicators", 0),
        ("allocator", "expandable", "allocator", 0),
        ("memory", "reserved", "allocator", 0),
    ],
)
def test_what_a_peak_counts_is_not_kept_free_again(name: str, choice: str, part: str, left: int) -> None:
    assert derive("llama3-8b", "tp=2,dp=2", {name: choice}).to_json()["memory"]["reserve"][part] == left


@pytest.mark.parametrize(("memory", "said"), [("80 GiB", "yes"), ("49 GiB", "tight"), ("46 GiB", "no")])
def test_fits_says_where_the_reserve_decides(memory: str, said: str) -> None:
    """A peak of 46.46 GiB, and 5.7 beside it."""
    result = derive("llama3-8b", "tp=4,dp=8,micro_batch_size=4", None, {"accelerator.memory": memory}, system="h100-sxm")
    verdict = Step(result).verdict
    assert result.to_json()["memory"]["fits"] == said
    assert verdict.startswith({"yes": "fits, 3", "tight": "fits, tight: ", "no": "does not fit: "}[said])
    assert (said != "tight") == ("buffers of NCCL" not in verdict)


def test_a_sweep_keeps_the_reserve_free() -> None:
    """tp=1, dp=8 needs 76.64 of 80 GiB: it is there without a reserve, and not with one."""
    axes = {"tp": [1, 4], "dp": [8]}
    kept = sweep("llama3-8b", axes, system="h100-sxm", fits=True, columns=["memory.peak", "memory.reserve"])
    room = [p + r for p, r in zip(kept.rows["memory.peak"], kept.rows["memory.reserve"])]
    assert list(kept.rows["tp"]) == [4] and room[0] <= 80 * 2**30
    free = {f"assume.{name}": "none" for name in ("device_reserve", "communicator_buffers")} | {"assume.allocator": "expandable"}
    assert sorted(sweep("llama3-8b", axes, system="h100-sxm", fits=True, overrides=free).rows["tp"]) == [1, 4]


def test_eval_says_it_without_a_system_too() -> None:
    kept = json.loads(in_process.run("eval", "llama3-8b", "-s", "tp=2", "--json").stdout)["memory"]
    assert "fits" not in kept and kept["reserve"]["communicators"] == 544 * MIB
