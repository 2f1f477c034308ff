"""`--compat megatron` against Megatron-LM's own estimates of itself (git d98e8a64), computed by its functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from megatron_cases import architecture, strategy
from shared import REDUCED, SHARED
from typer.testing import CliRunner

import symsim
from symsim.api.cli import app
from symsim.compat.compare import evaluate, measured
from symsim.compat.difference import Question, applied
from symsim.compat.megatron.differences import ACTIVATIONS, FLOPS, MEASURES, STATIC
from symsim.compat.registry import differences

CASES: list[dict[str, Any]] = json.loads((REDUCED / "megatron.json").read_text())["sections"]["formulas"]
FULL = SHARED / "oracle" / "megatron.json"
# as its functions were called
SEQUENCE, MICROBATCHES = 4096, 64


def question(case: dict[str, Any], *, shares: bool) -> Question:
    """shares: selective recomputation, which it asks for beside sequence parallelism, or none."""
    sizes = {"seq_length": SEQUENCE, "num_microbatches": MICROBATCHES, "recompute": "selective" if shares else "none"}
    return Question(architecture(case), strategy(case).model_copy(update=sizes))


def wrong(case: dict[str, Any]) -> list[str]:
    """What differs from Megatron-LM."""
    there, found = case["result"], []
    for shares, name in ((True, "activation_bytes_with_sp"), (False, "activation_bytes_without_sp")):
        asked = question(case, shares=shares)
        if shares and not asked.strategy.sp:  # its function does not ask for tensor parallelism
            continue
        ours = measured(evaluate(applied(asked, differences("megatron", asked))), MEASURES)
        batch = ours[FLOPS][0] * there["global_batch"] / (MICROBATCHES * asked.strategy.dp)
        pairs = [("flops_per_global_batch", batch), ("weight_and_optimizer_bytes_most_loaded", ours[STATIC][0]), (name, ours[ACTIVATIONS][0])]
        found += [f"{what}: {float(value)} for {there[what]}" for what, value in pairs if float(value) != pytest.approx(there[what], rel=1e-14)]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_some_estimates(case: dict[str, Any]) -> None:
    assert wrong(case) == []


def test_all_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    if not FULL.exists():
        pytest.skip("../shared/oracle is not on this machine")
    monkeypatch.setenv("SYMSIM_VERIFY", "")  # the passes are verified by those above
    sections = json.loads(FULL.read_text())["sections"]
    cases, found = {case["name"]: case for case in sections["params"]}, {}
    for row in sections["formulas"]:
        case = cases[row["name"]]
        if row["name"] not in {kept["name"] for kept in CASES}:
            said = wrong({**case, "result": {"parallel": case["result"]["parallel"], **row["result"]}})
            found |= {row["name"]: said} if said else {}
    assert len(sections["formulas"]) == 18 and found == {}


def test_without_it_they_differ() -> None:
    case = next(case for case in CASES if case["name"] == "deepseek_v3_1gpu_mtp1")
    asked = question(case, shares=False)
    rows = differences("megatron", asked)
    own = measured(evaluate(asked), MEASURES)
    there = measured(evaluate(applied(asked, rows)), MEASURES)
    assert all(own[name] != there[name] for name in MEASURES)
    assert {row.name for row in rows} >= {"causal-half", "attention-backward", "router", "norms", "biases", "depths", "second-table"}


def test_a_launch_script(tmp_path: Path) -> None:
    script = Path(__file__).parent / "imported" / "megatron" / "script" / "train_moe.sh"
    runner = CliRunner()
    assert runner.invoke(app, ["import", "megatron", str(script), "-o", str(tmp_path / "job")]).exit_code == 0
    told = runner.invoke(app, ["compare", str(tmp_path / "job"), "--compat", "megatron"])
    assert told.exit_code == 0 and "model FLOPs" in told.stdout and max(map(len, told.stdout.splitlines())) <= 80
    said = json.loads(runner.invoke(app, ["compare", str(tmp_path / "job"), "--compat", "megatron", "--json"]).stdout)
    assert set(said["quantities"]) == set(MEASURES) and all(row["quantity"] in MEASURES for row in said["differences"])


def test_what_is_another_function() -> None:
    with pytest.raises(symsim.InputError, match="has layers without attention"):
        differences("megatron", Question(symsim.load_model("qwen3-next-80b-a3b"), symsim.load_strategy("")))
