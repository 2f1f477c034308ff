"""`--compat calculon` against Calculon itself (git caa4b11): every quantity of a block, and the step, to nine digits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from oracle.reduce_calculon import OWN, PEER, SAID, kept, of_own, of_peer

import symsim
from symsim.algebra.key import of_block
from symsim.compat.calculon import data_parallel
from symsim.compat.calculon.layers import Phase
from symsim.compat.calculon.machine import Machine
from symsim.compat.calculon.settings import settings_of
from symsim.compat.calculon.totals import Totals, space_of
from symsim.compat.compare import STEP, compare, evaluate, measured
from symsim.compat.difference import Question, applied
from symsim.compat.registry import differences
from symsim.evaluation.numbers import Evaluation
from symsim.importers.reading import Options, read_job

ORACLE = kept()
# seconds are those of the file; a system here only says that there are some
SYSTEM = "a100-sxm-80"
# derived, and held against Calculon to the last quantity; of the others the sums over layers alone
DERIVED = (
    "shares, core again, gathers redone", "boundary in shares, full", "pipe", "all-reduces in pieces", "one group", "sharded beside backward",
    "checkpoints offloaded", "uneven", "one byte", "activation inside",
)  # fmt: skip


def question(files: Mapping[str, Any], folder: Path) -> Question:
    """The question of a run's three files."""
    paths = []
    for what, data in files.items():
        paths.append(folder / f"{what}.json")
        paths[-1].write_text(json.dumps(data))
    job = read_job("calculon", list(map(str, paths)), Options(lenient=True))
    assert job.architecture is not None
    return Question(job.architecture, job.placed(), dict(job.assumptions), symsim.load_system(SYSTEM), job.given)


def answer(asked: Question) -> Evaluation:
    return evaluate(applied(asked, differences("calculon", asked)))


def totals_of(asked: Question) -> Totals:
    settings = settings_of(asked)
    return Totals(asked, space_of(asked, settings), Machine(asked.given["system"], settings, asked.strategy.tp))


def summed(at: Totals) -> dict[str, float]:
    """What Calculon says of a job, by its names, from sums over the layers of a block."""
    found: dict[str, Any] = {}
    phases: tuple[Phase, ...] = ("fw", "agrad", "wgrad") if at.asked.training else ("fw",)
    for phase in phases:
        found |= {f"block_{phase}_flops": sum(x.flops[phase] for x in at.layers), f"block_{phase}_flops_time": at.flop_seconds(phase)}
        found |= {f"block_{phase}_mem_accessed": sum(x.moved[phase] for x in at.layers), f"block_{phase}_mem_time": at.memory_seconds(phase)}
        found[f"block_{phase}_time"] = at.compute(phase)
    for edge, side in ((False, "base"), (True, "edge")):
        ways: tuple[tuple[Phase, str], ...] = (("fw", "fw"), ("agrad", "bw"))
        for phase, way in ways if at.asked.training else ways[:1]:
            found[f"{side}block_{phase}_tp_time"] = at.on_link(phase, edge=edge)
            found[f"{side}block_{phase}_tp_time_exposed"] = at.exposed(phase, edge=edge)
            found[f"{side}block_{way}_tp_size"] = sum(at.machine.sent(x, phase, edge=edge) for x in at.layers if x.sums)
        if at.asked.training:
            found[f"{side}block_recomm_time"] = at.on_link("wgrad", edge=edge)
            found[f"{side}block_recomm_time_exposed"] = at.exposed_again(edge=edge)
            found[f"{side}block_recomm_size"] = sum(at.machine.sent(x, "wgrad", edge=edge) for x in at.layers if x.sums)
    if at.asked.training:
        found |= {"block_re_time": at.again, "block_re_flops_time": at.summed_again("flops"), "block_re_mem_time": at.summed_again("memory")}
        found |= {"block_optim_time": at.optimizer, "block_dp_size": at.space.weights if at.question.strategy.dp > 1 else 0}
    found |= {"block_weight_space": at.space.weights, "block_act_working_space": at.space.working, "block_act_storage_space": at.space.stored}
    found |= {"block_act_grad_space": at.space.gradient, "block_act_checkpoint_size": at.checkpoint, "block_optimizer_space": at.space.optimizer}
    return found | {"bubble_time": at.bubble, "dp_comm_exposed_time": data_parallel.exposed(at)}


def derived(at: Evaluation, training: bool) -> dict[str, float]:
    """The same by symsim's definitions under the rows of Calculon."""
    again, ours = bool(at.lowered.checkpointed), measured(at)

    def block(letter: str, phase: str = "", whole: bool = False, axis: str = "") -> float:
        return float(at.numbers.get(of_block(letter, "dense", whole, phase=phase, axis=axis).text, 0))

    blocks = max(float(at.stage_numbers(stage)["L_dense_i"]) for stage in at.stages)
    kept = "block_act_checkpoint_size" if again else "block_act_storage_space"
    return {
        "block_fw_flops": block("X"),
        "backward flops": block("Y"),
        "block_re_flops": block("Z", whole=again),
        "block_fw_mem_accessed": block("Q"),
        "backward bytes": block("U"),
        "block_fw_time": block("t", "forward"),
        "backward seconds": block("t", "inputs") + block("t", "weights"),
        "block_re_time": block("t", "again", again),
        "baseblock_fw_tp_time_exposed": block("e", "forward", again, "tp"),
        "backward messages": block("e", "backward", again, "tp") if training else 0,
        **({kept: float(max(ours["saved bytes"])) / blocks} if training else {}),
        "weight_space": float(max(ours["weights"])),
        "weight_grad_space": float(max(ours["gradients"])),
        "optimizer_space": float(max(ours["optimizer states"])),
        "proc_mem_tier1_cap_req": float(max(ours["peak"])),
        "total_time": float(ours[STEP][0]),
    }


def theirs(stats: Mapping[str, Any], training: bool) -> dict[str, float]:
    """Calculon's numbers with those sums that symsim defines as one."""
    made = dict(stats)
    if training:
        for word, what in (("flops", "flops"), ("bytes", "mem_accessed"), ("seconds", "time")):
            made[f"backward {word}"] = stats[f"block_agrad_{what}"] + stats[f"block_wgrad_{what}"]
        made["backward messages"] = stats["baseblock_agrad_tp_time_exposed"] + stats["baseblock_recomm_time_exposed"]
    return made


def unlike(ours: Mapping[str, float], there: Mapping[str, float], least: int) -> list[str]:
    both = ours.keys() & there.keys()
    assert len(both) >= least
    return [f"{name}: {ours[name]} for {there[name]}" for name in sorted(both) if float(ours[name]) != pytest.approx(float(there[name]), rel=1e-9)]


@pytest.mark.parametrize("name", OWN)
def test_jobs_of_our_own(name: str, tmp_path: Path) -> None:
    asked, said = question(of_own(name), tmp_path), theirs(ORACLE["own"][name], True)
    assert unlike(summed(totals_of(asked)), said, 45) == []
    if name in DERIVED:
        assert unlike(derived(answer(asked), True), said, 16) == []


@pytest.mark.parametrize("name", ORACLE["peers"])
def test_some_runs(name: str, tmp_path: Path) -> None:
    run = ORACLE["peers"][name]
    assert unlike(derived(answer(question(run["files"], tmp_path)), True), theirs(run["said"], True), 16) == []


@cache
def _runs() -> list[str]:
    return sorted(path.stem for path in PEER.glob("*.json"))


def test_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 28, inference among them, whose saved bytes are of no backward."""
    if not PEER.exists():
        pytest.skip("../shared/peers/calculon is not on this machine")
    monkeypatch.setenv("SYMSIM_VERIFY", "")  # the passes are verified by the runs above
    wrong: dict[str, list[str]] = {}
    for name in _runs():
        run = json.loads((PEER / f"{name}.json").read_text())
        asked, training = question(of_peer(run), tmp_path), run["execution"]["training"]
        stats = theirs({name: run["stats"].get(name, 0) for name in SAID}, training)
        found = unlike(summed(totals_of(asked)), stats, 45 if training else 19)
        found += [] if name in ORACLE["peers"] else unlike(derived(answer(asked), training), stats, 11)
        wrong |= {name: found} if found else {}
    assert len(_runs()) == 28 and wrong == {}


def test_a_peer_is_its_reduction() -> None:
    if not PEER.exists():
        pytest.skip("../shared/peers/calculon is not on this machine")
    for name, here in ORACLE["peers"].items():
        run = json.loads((PEER / f"{name}.json").read_text())
        assert of_peer(run) == here["files"] and {k: run["stats"][k] for k in SAID} == here["said"]


def test_without_it_they_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs hold the differences, not symsim's own numbers; each row moves what it says."""
    monkeypatch.setenv("SYMSIM_VERIFY", "")
    asked = question(of_own("shares, core again, gathers redone"), tmp_path)
    said = theirs(ORACLE["own"]["shares, core again, gathers redone"], True)
    assert len(unlike(derived(evaluate(asked), True), said, 16)) >= 12
    rows = [row for row in differences("calculon", asked) if row.moves == (STEP,)]
    made = compare("calculon", asked, rows)
    assert {move.quantity for move in made.moves} == {STEP}
    moved = {move.difference.name for move in made.moves}
    assert moved >= {"products", "attention-kernels", "elementwise-kernels", "recomputed-seconds", "collectives", "pipeline", "optimizer-passes"}


def test_what_is_none_of_its_blocks() -> None:
    plain = symsim.load_strategy("tp=2")
    with pytest.raises(symsim.InputError, match="deepseek-v3 has mixture-of-experts layers, and Calculon knows GPT's block alone"):
        differences("calculon", Question(symsim.load_model("deepseek-v3"), plain))
    with pytest.raises(symsim.InputError, match="8 query groups"):
        differences("calculon", Question(replace_gated("llama3-8b"), plain))
    with pytest.raises(symsim.InputError, match="its seconds need a system file of Calculon"):
        differences("calculon", Question(symsim.load_model("gpt3-175b"), plain, system=symsim.load_system("h100-sxm")))


def test_what_its_system_lacks(tmp_path: Path) -> None:
    files = of_own("plain")
    lacks = (({"datatype": "bfloat16"}, "in bfloat16, which matrix of the system file does not have"), ({"data_par_net": 2}, "asks for tier 2"))
    for change, said in lacks:
        asked = question({**files, "execution": {**files["execution"], **change}}, tmp_path)
        with pytest.raises(symsim.InputError, match=said):
            differences("calculon", asked)


def replace_gated(model: str) -> symsim.Architecture:
    found = symsim.load_model(model)
    assert found.mlp is not None
    return found.model_copy(update={"mlp": found.mlp.model_copy(update={"gated": False})})


def test_a_job_that_was_not_imported() -> None:
    """Without Calculon's files the strategy says what an execution would."""
    asked = Question(symsim.load_model("gpt3-175b"), symsim.load_strategy("tp=8,sp=true,pp=8,dp=2,seq_length=2048,recompute=selective"))
    ours = measured(answer(asked))
    imported = replace(asked, given={"execution": {"activation_recompute": "attn_only", "seq_par_ag_redo": True, "tensor_par_comm_type": "rs_ag"}})
    assert ours == measured(answer(imported)) and max(ours["weights"]) == 12 * 2 * (12 * 12288**2 // 8 + 4 * 12288)
