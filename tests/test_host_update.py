"""The update on the host: its seconds at the host's own memory, what travels for it, and gradients that are summed there."""

from __future__ import annotations

from typing import Any

import pytest

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

MODEL, SYSTEM = load_model("smollm2-135m").architecture, load_system("h100-sxm")
PARAMETERS, RANKS, MICROBATCHES = 134_515_008, 4, 3
SHARE = PARAMETERS / RANKS
LINK, MEMORY = 51.2e9, 61.4e9


def stage(memory: str = "", **given: Any) -> dict[str, float]:
    plain = {"fusion": "eager", "dp": RANKS, "zero": 2, "seq_length": 4096, "num_microbatches": MICROBATCHES, "optimizer_cpu_offload": True}
    result = derive(MODEL, Strategy(**{**plain, **given}), {}, {"B_dram": memory} if memory else {}, SYSTEM)
    return {name: float(value) for name, value in result.stage_numbers(result.stages[0]).items()}


def test_one_pass_over_the_hosts_memory() -> None:
    """Reads an fp32 gradient, reads and writes a copy and two moments, writes bf16: 30 bytes a parameter (arXiv:2101.06840, sec. 5)."""
    plain = stage()
    assert plain["t_host_stage"] == pytest.approx(SHARE * 30 / MEMORY)
    assert stage("100 GB/s")["t_host_stage"] == pytest.approx(SHARE * 30 / 100e9)
    assert stage(host_update="torch")["t_host_stage"] == pytest.approx(SHARE * 82 / MEMORY)
    half = stage(optimizer_offload_fraction=0.5)
    assert half["t_host_stage"] == pytest.approx(SHARE * 15 / MEMORY)
    on_device = stage(optimizer_cpu_offload=False)
    assert "t_host_stage" not in on_device
    assert half["t_opt_stage"] - half["t_host_stage"] < on_device["t_opt_stage"]


def test_a_host_that_says_no_bandwidth_has_that_of_common_nodes() -> None:
    plain = {"fusion": "eager", "dp": RANKS, "optimizer_cpu_offload": True}
    result = derive(MODEL, Strategy(**plain), system=load_system("h20"))
    assert float(result.values["B_dram"]) == 0.8 * 8 * 38.4e9 / 4


def test_what_travels_goes_beside_the_update_where_it_may() -> None:
    """Gradients of 4 bytes leave, parameters of 4 return; the update is longer."""
    both = 8 * SHARE / LINK
    assert stage()["e_offload_stage"] == pytest.approx(both)
    assert stage(overlap_cpu_optimizer_d2h_h2d=True)["e_offload_stage"] == 0
    fast = stage("10 TB/s", overlap_cpu_optimizer_d2h_h2d=True)
    assert fast["e_offload_stage"] == pytest.approx(both - fast["t_host_stage"])


def test_gradients_that_are_summed_on_the_host() -> None:
    there, here = stage(offload_gradients=True), stage()
    assert (here["M_stage_gradients"], there["M_stage_gradients"]) == (4 * SHARE, 0)
    assert there["H_stage_link_gradients"] == MICROBATCHES * 4 * SHARE
    # parameters come back after the pipeline; gradients left beside it
    assert there["e_offload_stage"] == pytest.approx(4 * SHARE / LINK)
    once = stage(offload_gradients=True, zero=3, gradient_sync="last_microbatch")
    assert (once["H_stage_link_gradients"], once["M_stage_gradients"]) == (4 * SHARE, 4 * PARAMETERS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"offload_gradients": True, "optimizer_cpu_offload": False}, "offload_gradients=true needs optimizer_cpu_offload=true: nothing is updated"),
        ({"offload_gradients": True, "zero": 1}, "offload_gradients=true needs zero=2 or 3, which shards gradients"),
        ({"optimizer": "muon", "zero": 1}, "optimizer=muon has no update on the host"),
        ({"fusion": "te"}, "optimizer_cpu_offload needs use_precision_aware_optimizer=true"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        stage(**given)
