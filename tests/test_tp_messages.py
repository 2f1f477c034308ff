"""tp_comm_overlap by message: which product every message of a layer hides beside, by hand from the seconds of kernels and messages."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.importers.reading import Options, read_job

MODEL, SYSTEM = "llama3-8b", "h100-sxm"
ALL = "tp=8,sp=true,tp_comm_overlap=true"


@cache
def numbers(options: str) -> dict[str, float]:
    # a slow link, so that no product hides a whole message
    result = symsim.derive(MODEL, options, system=SYSTEM, overrides={"B_1": "10 GB/s"})
    assert isinstance(result, Result)
    return {name: float(result.numbers[name]) for name in result.numbers if "_dense_" in name}


def kernel(name: str, phase: str = "f") -> float:
    return numbers(ALL)[f"t_{phase}_dense_{name}"]


def exposed(options: str) -> tuple[float, float]:
    at = numbers(options)
    return at["e_f_dense_tp"], at["e_b_dense_tp"]


QKV, FC1 = "attention_qkv", "mlp_gate_up"
PROJ, FC2 = "attention_o_proj", "mlp_down_proj"


def gradient(name: str, kind: str) -> float:
    return numbers(ALL)[f"t_b_dense_{name}_{kind}"]


def test_all_ten_hide() -> None:
    """Four messages forward beside four products; six backward beside dgrad of all four and wgrad of two."""
    at = numbers(ALL)
    forward = at["c_f_dense_tp"] - sum(kernel(name) for name in (QKV, FC1, PROJ, FC2))
    dgrad = 2 * sum(gradient(name, "dgrad") for name in (QKV, FC1)) + sum(gradient(name, "dgrad") for name in (PROJ, FC2))
    found = exposed(ALL)
    assert found[0] == pytest.approx(forward)
    assert found[1] == pytest.approx(at["c_b_dense_tp"] - dgrad + sum(gradient(n, "dgrad") - gradient(n, "wgrad") for n in (QKV, FC1)))


@pytest.mark.parametrize(
    ("switch", "forward", "backward"),
    [
        ("tp_comm_overlap_ag=false", {(QKV, "f"): 1, (FC1, "f"): 1}, {(PROJ, "dgrad"): 1, (FC2, "dgrad"): 1}),
        ("tp_comm_overlap_rs=false", {(PROJ, "f"): 1, (FC2, "f"): 1}, {}),
        ("tp_comm_bulk_dgrad=false", {}, {(QKV, "dgrad"): 1, (FC1, "dgrad"): 1}),
        ("tp_comm_bulk_wgrad=false", {}, {(QKV, "wgrad"): 1, (FC1, "wgrad"): 1}),
        # in pieces beside dgrad: the scatter changes its product, and the repeated gather has none
        ("tp_comm_overlap_rs_dgrad=true", {}, {(QKV, "wgrad"): 1, (FC1, "wgrad"): 1}),
        ("tp_comm_overlap_disable_qkv=true", {(QKV, "f"): 1}, {}),
        ("tp_comm_overlap_disable_fc1=true", {(FC1, "f"): 1}, {}),
        (
            "tp_comm_overlap_rs_dgrad=true,tp_comm_overlap_disable_qkv=true",
            {(QKV, "f"): 1},
            {(FC1, "wgrad"): 1},
        ),
    ],
)
def test_what_a_switch_takes_out(switch: str, forward: dict[tuple[str, str], int], backward: dict[tuple[str, str], int]) -> None:
    """The seconds of the products beside which messages no longer run come back."""
    before, after = exposed(ALL), exposed(f"{ALL},{switch}")
    for index, taken in enumerate((forward, backward)):
        back = sum(often * (gradient(n, kind) if kind != "f" else kernel(n)) for (n, kind), often in taken.items())
        assert after[index] - before[index] == pytest.approx(back)


def test_switches_alone_move_nothing() -> None:
    plain = exposed("tp=8,sp=true")
    assert exposed("tp=8,sp=true,tp_comm_bulk_dgrad=false,tp_comm_overlap_rs_dgrad=true") == plain


WORDS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 1024 --seq-length 64 --micro-batch-size 1 --global-batch-size 8 --bf16"


def imported(words: str) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    job = read_job("megatron", (f"{WORDS} --world-size 8 --hidden-dropout 0 --attention-dropout 0 {words}").split(), Options())
    assert job.strategy is not None
    return dict(job.strategy), {row.key.lstrip("-").replace("-", "_"): (row.fate, row.to) for row in job.rows}


def test_arguments_of_megatron() -> None:
    on = "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap"
    found, rows = imported(f"{on} --no-tp-comm-bulk-dgrad --disable-tp-comm-overlap-ag --tp-comm-overlap-rs-dgrad --tp-comm-overlap-disable-fc1")
    assert {name: value for name, value in found.items() if name.startswith("tp_comm")} == {
        "tp_comm_overlap": True,
        "tp_comm_bulk_dgrad": False,
        "tp_comm_overlap_ag": False,
        "tp_comm_overlap_rs_dgrad": True,
        "tp_comm_overlap_disable_fc1": True,
    }
    assert rows["disable_tp_comm_overlap_ag"] == ("mapped", "tp_comm_overlap_ag")
    alone, rows = imported("--tensor-model-parallel-size 2 --sequence-parallel --no-tp-comm-bulk-wgrad")
    assert "tp_comm_bulk_wgrad" not in alone and rows["no_tp_comm_bulk_wgrad"][0] == "no_cost_effect"
