"""`--compat simumax` against SimuMax v1.2 itself: bytes and FLOPs of every stage to the unit, the step within 1 per cent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from oracle.reduce_simumax import PEER, STAGES, given, theirs
from shared import REDUCED

import symsim
from symsim.compat.compare import STEP, compare, evaluate, measured, replayed
from symsim.compat.difference import Question, applied
from symsim.compat.registry import differences
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.importers.reading import read_job

FILES = ("system", "strategy", "model")
ORACLE = json.loads((REDUCED / "simumax.json").read_text())
# what the file lacks of a system, which is that of no run: SimuMax's own rates and tables are in `given`
SYSTEM = "h100-sxm"


def question(files: Mapping[str, Any], folder: Path) -> Question:
    """The question of a run's three files."""
    paths = []
    for what in ("strategy", "model"):
        paths.append(folder / f"{what}.json")
        paths[-1].write_text(json.dumps(files[what]))
    job = read_job("simumax", list(map(str, paths)))
    assert job.architecture is not None
    return Question(job.architecture, job.placed(), dict(job.assumptions), symsim.load_system(SYSTEM), files)


def answer(files: Mapping[str, Any], folder: Path) -> Evaluation:
    asked = question(files, folder)
    return evaluate(applied(asked, differences("simumax", asked)))


def held(at: Evaluation, said: Mapping[str, Any]) -> list[str]:
    """What differs: exactly for counts, by more than 1 per cent for the step."""
    ours, wrong = measured(at), []
    for name, expected in said["stages"].items():
        stage = {STAGES[0]: 0, STAGES[1]: 1, STAGES[2]: -1}[name]
        wrong += [f"{name} {q}: {ours[q][stage]} for {there}" for q, there in expected.items() if ours[q][stage] != there]
    step = 1000 * float(ours[STEP][0])
    return wrong + ([f"step: {step} for {said['step_ms']}"] if abs(step / said["step_ms"] - 1) > 0.01 else [])


@pytest.mark.parametrize("name", ORACLE["runs"])
def test_some_runs(name: str, tmp_path: Path) -> None:
    run = ORACLE["runs"][name]
    at = answer({"system": ORACLE["systems"][run["system"]], "strategy": run["strategy"], "model": run["model"]}, tmp_path)
    assert held(at, run) == []


@cache
def _drawn() -> dict[str, Any]:
    """Jobs that draws/simumax.py made, with what SimuMax says of them."""
    kept = json.loads((REDUCED / "simumax_drawn.json").read_text())
    runs: dict[str, Any] = {}
    for name, run in kept["runs"].items():
        strategy = {key: value for key, value in {**kept["strategy"], **run["strategy"]}.items() if value is not None}
        runs[name] = {**run, "strategy": strategy, "model": {**kept["models"][run["model"]], **run["changed"]}}
    return runs


def _files(run: Mapping[str, Any]) -> dict[str, Any]:
    return {"system": ORACLE["systems"][run["system"]], "strategy": run["strategy"], "model": run["model"]}


@pytest.mark.parametrize("name", _drawn())
def test_drawn_jobs(name: str, tmp_path: Path) -> None:
    assert held(answer(_files(_drawn()[name]), tmp_path), _drawn()[name]) == []


@pytest.mark.parametrize("row", ["gelu-inputs", "values-alone", "scores-of-a-share", "combined-rows", "exchanged-once", "maxima-reduced"])
def test_some_drawn_job_needs_a_row(row: str, tmp_path: Path) -> None:
    def needs(run: Mapping[str, Any]) -> bool:
        asked = question(_files(run), tmp_path)
        rows = differences("simumax", asked)
        fewer = [one for one in rows if one.name != row]
        return len(fewer) < len(rows) and measured(evaluate(applied(asked, fewer))) != measured(evaluate(applied(asked, rows)))

    assert any(needs(run) for run in _drawn().values())


@pytest.mark.parametrize("version, since, step", [("1.0", "2.8.0", 69.0589), ("2.8.0", "2.8.0", 68.1448), ("1.0", "1.0", 68.1448)])
def test_written_out_attention_exchanges_its_output_again(version: str, since: str, step: float, tmp_path: Path) -> None:
    """Before TransformerEngine 2.8, though its backward reads probabilities alone (SimuMax v1.2, run as it is)."""
    files = _files(_drawn()["drawn_7"])
    strategy = {**files["strategy"], "te_version": version, "te_cp_a2a_save_pre_posta2a_min_version": since}
    assert 1000 * float(measured(answer({**files, "strategy": strategy}, tmp_path))[STEP][0]) == pytest.approx(step, rel=1e-4)


def test_linear_maps_are_two_leaves_under_fp8(tmp_path: Path) -> None:
    """Queries of latent attention that are not compressed run again alone: the quantiser keeps their input (SimuMax v1.2, run as it is)."""
    kept = json.loads((REDUCED / "simumax_drawn.json").read_text())
    strategy = {name: value for name, value in kept["strategy"].items() if value is not None}
    strategy |= {"fp8": True, "tp_size": 1, "cp_size": 1, "pp_size": 1, "ep_size": 1, "world_size": 2, "seq_len": 1024, "micro_batch_num": 1}
    strategy |= {"enable_recompute": True, "recompute_granularity": "selective_recompute", "recompute_layer_num": 2, "attn_recompute": True}
    model = {**kept["models"]["deepseekv2"], "layer_num": 2, "q_lora_rank": None}
    at = answer({"system": ORACLE["systems"]["a100_pcie"], "strategy": strategy, "model": model}, tmp_path)
    assert measured(at)["saved bytes"][0] == 783_925_248
    assert 1000 * float(measured(at)[STEP][0]) == pytest.approx(1266.9, rel=0.01)


def test_without_it_they_differ(tmp_path: Path) -> None:
    """The runs hold the differences, not symsim's own numbers."""
    run = ORACLE["runs"]["b200_deepseekv3_l4_ep8_megatron_recompute"]
    asked = question({"system": ORACLE["systems"][run["system"]], "strategy": run["strategy"], "model": run["model"]}, tmp_path)
    assert len(held(evaluate(asked), run)) >= 3


def test_each_row_of_time_moves_the_step_alone(tmp_path: Path) -> None:
    run = ORACLE["runs"]["b200_mixtral_8x7b_tp2_ep2_etp2"]
    asked = question({"system": ORACLE["systems"][run["system"]], "strategy": run["strategy"], "model": run["model"]}, tmp_path)
    rows = [row for row in differences("simumax", asked) if row.moves == (STEP,)]
    made = compare("simumax", asked, rows)
    assert {move.quantity for move in made.moves} == {STEP}
    moved = {move.difference.name for move in made.moves}
    assert {"products", "attention-kernels", "memory-kernels", "kernels-left-out", "collectives", "buckets", "optimizer-passes"} <= moved
    assert {"embedding-reduced", "probabilities-sent", "combine-over-etp"} <= moved


@cache
def _runs() -> list[str]:
    return sorted(path.stem for path in PEER.glob("*.json") if not path.stem.startswith("_"))


def test_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 98; those that differ in micro-batches alone share a derivation."""
    if not PEER.exists():
        pytest.skip("../shared/peers/simumax is not on this machine")
    monkeypatch.setenv("SYMSIM_VERIFY", "")  # the passes are verified by the runs above
    derived: dict[str, Evaluation] = {}
    wrong: dict[str, list[str]] = {}
    for name in _runs():
        run = json.loads((PEER / f"{name}.json").read_text())
        files = {what: given(run, what, "models" if what == "model" else what) for what in FILES}
        alike = json.dumps({**files, "strategy": {**files["strategy"], "micro_batch_num": 0}, "system": run["config"]["system_file"]})
        if alike not in derived:
            derived[alike] = answer(files, tmp_path)
        at = derived[alike]
        at = replayed(replace(at, strategy=at.strategy.model_copy(update={"num_microbatches": files["strategy"]["micro_batch_num"]})))
        wrong |= {name: said} if (said := held(at, theirs(run))) else {}
    assert len(_runs()) == 98 and wrong == {}


def test_groups_that_never_meet_are_refused(tmp_path: Path) -> None:
    """Its leading rank asks for what the last has sent a group of pp before: with other groups they wait for each other for ever."""
    run = ORACLE["runs"]["b200_deepseekv3_l4_ep8_megatron_recompute"]
    interleaved = {"interleaving_size": 2, "micro_batch_num": 4, "microbatch_group_size_per_vp_stage": 4}
    strategy = {**run["strategy"], "pp_size": 2, "world_size": 16, **interleaved}
    with pytest.raises(InputError, match="wait for each other for ever with microbatch_group_size_per_vp_stage=4 and 4 micro-batches, of pp=2"):
        answer({"system": ORACLE["systems"][run["system"]], "strategy": strategy, "model": run["model"]}, tmp_path)
