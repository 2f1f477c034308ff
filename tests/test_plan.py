"""Plans against brute force; the numbers of their certificates; what they refuse; two evaluations side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.api.showing import shown
from symsim.exporters import refused
from symsim.grid import processes
from symsim.inputs.assumptions import ASSUMPTIONS, resolve
from symsim.inputs.models import load_model
from symsim.inputs.strategies import on_ranks, read_strategy
from symsim.planning import beside, search
from symsim.planning.command import run_diff
from symsim.planning.difference import Row, difference
from symsim.planning.frameworks import FRAMEWORKS, Choice
from symsim.planning.knobs import next_knobs, single_changes
from symsim.planning.plan import Plan, plan
from symsim.planning.space import Asked, _without, choices_of, options_of, space_of
from symsim.planning.text import choices_table
from symsim.program.base import read_base
from tests.in_process import run
from tests.plan_bounds import checked, searched

MODEL, SYSTEM = "smollm2-360m", "h100-sxm"
FIXED = "cp=1,vpp=1,tp_comm_overlap=false,overlap_grad_reduce=true"


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(MODEL, SYSTEM, world=8, global_batch_size=32, fix=FIXED)


@pytest.mark.long
def test_the_best_of_each_kind_is_that_of_all_configurations(made: Plan) -> None:
    """Every configuration of the space by `derive`, one at a time."""
    sizes, choices, derived = space_of(made.asked)
    assert {d.name for d in derived} == {"sp", "overlap_p2p_comm"} and len(choices) == 2
    axes = [*((axis.names, list(zip(*axis.columns))) for axis in sizes), *((c.names, list(c.rows)) for c in choices)]
    points = ran = 0
    best: dict[tuple[Any, ...], float] = {}
    for rows in product(*(rows for _, rows in axes)):
        values = {name: value for (names, _), row in zip(axes, rows) for name, value in zip(names, row)}
        points += 1
        try:
            found = made.at({**values, "sp": values["tp"] > 1})
        except symsim.InputError:
            continue
        ran += 1
        if found.value("memory.peak") + found.value("memory.reserve") <= found.value("memory.capacity"):
            kind = tuple(values[n] for n in ("tp", "pp", "recompute"))
            best[kind] = min(best.get(kind, float("inf")), float(found.value("time.step")))
    assert [float(c.result.value("time.step")) for c in made.best] == pytest.approx(sorted(best.values())[: len(made.best)], rel=1e-12)
    found = made.certificate
    assert points == found.configurations == sum(found.refused.values()) + found.slower + found.larger + found.evaluated
    assert found.slower > 0 and found.evaluated <= ran
    # what was ruled out is behind its kind's best
    assert found.bound is not None and found.bound < float(made.best[0].result.value("tokens_per_second"))


def test_two_processes_find_what_one_does(made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same certificate on one core, where the two halves of a space take turns."""
    begun = []
    monkeypatch.setattr(beside, "beside", lambda run: begun.append(run) or processes.beside(run))
    monkeypatch.setattr(search, "_FORK_PARTS", 2)
    monkeypatch.setattr(search, "_CELLS_A_ROUND", 1)
    found = []
    for cores in (1, 2):
        monkeypatch.setattr(search, "cores", lambda cores=cores: cores)
        found.append(plan(MODEL, SYSTEM, world=8, global_batch_size=32, fix=FIXED).to_json())
        assert len(begun) == cores - 1
    assert found[0] == found[1] and found[0]["best"] == made.to_json()["best"]


@pytest.mark.parametrize(
    ("model", "world", "fixed", "allowed", "share"),
    [
        (MODEL, 8, {"cp": 1}, (), 0.12),
        (MODEL, 8, {"cp": 1, "overlap_grad_reduce": True}, ("defer_embedding_wgrad_compute=true,false",), 0.25),
        # the first row cannot run everywhere where the other can
        ("olmoe-1b-7b", 4, {"cp": 1, "vpp": 1, "tp": 1}, ("moe_token_dispatcher_type=flex,alltoall",), 0.6),
    ],
)
def test_no_member_of_a_cell_is_below_its_bound(model: str, world: int, fixed: dict[str, Any], allowed: tuple[str, ...], share: float) -> None:
    """Every point of the grid of sizes, under some rows of the options, of all cells that hold them; what is gone does not fit."""
    loaded = load_model(model)
    search = searched(Asked(loaded, loaded.architecture, SYSTEM, world, 32, 4096, FRAMEWORKS["megatron"], fixed, allowed), share)
    several = [len(c.rows) for c in search.choices]
    compared = 0
    some = [n - 1 if {"moe_token_dispatcher_type", "recompute"} & set(c.names) else 0 for n, c in zip(several, search.choices)]
    for rows in (some, [n - 1 for n in several]):
        more, wrong = checked(search, rows)
        assert not wrong
        compared += more
    assert compared > 100 and search.account.larger > 0


def test_experts_with_biases_are_not_split() -> None:
    """Megatron-Core transformer_config.py asserts expert_tensor_parallel_size=1 beside add_bias_linear."""
    asked: dict[str, Any] = {"world": 8, "global_batch_size": 16}
    found = symsim.plan("gpt-oss-20b", SYSTEM, fix="cp=1,pp=1,vpp=1,overlap_grad_reduce=true", **asked)
    assert found.certificate.refused["experts_with_biases"] and {one.known.strategy.expert_tp for one in found.best} == {1}
    with pytest.raises(
        symsim.InputError, match="Megatron-LM does not split experts whose products have biases, as gpt-oss-20b has, over etp=2 ranks"
    ):
        symsim.plan("gpt-oss-20b", SYSTEM, fix="tp=2,etp=2,cp=1,pp=1,vpp=1,ep=1,overlap_grad_reduce=true", **asked)


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    "model, framework, fixed, beside, rule",
    [
        ("llama3.2-1b", "torchtitan", "recompute=none", "pp=2", "tied_head"),
        ("qwen3.5-9b", "torchtitan", "recompute=none", "cp=2", "whole_sequences"),
        ("qwen3.5-9b", "torchtitan", "recompute=none,tp=1", "pp=4,micro_batch_size=8", "enough_microbatches"),
        ("qwen3.5-4b", "torchtitan", "recompute=none", "tp=8,sp=true", "heads_of_keys"),
        ("llama3-8b", "megatron", "cp=1,tp=2,overlap_p2p_comm=false,recompute=none", "pp=2,vpp=2,tp=2", "chunks_of_two_stages"),
        ("llama3-8b", "deepspeed", "precision=fp16,recompute=none", "zero=0,precision=fp16", "sums_of_fp16"),
        ("llama3-8b", "deepspeed", "pp=2,recompute=none", "zero=3,pp=2", "shards_of_stages"),
    ],
)
def test_what_a_framework_does_not_start_with_is_not_in_its_plans(model: str, framework: str, fixed: str, beside: str, rule: str) -> None:
    """A certificate counts it, the best start, and beside them it is refused, in the exporter's words."""
    found = symsim.plan(model, "b200-sxm", world=8, global_batch_size=16, framework=framework, fix=fixed)
    rules = {own.__name__.strip("_"): own for own in refused.rules_of(framework)}
    assert found.certificate.refused[rule] and found.certificate.why[rule].startswith(found.asked.framework.title)
    for one in found.best:
        refused.check(rules.values(), one.result.model, one.result.strategy)
    with pytest.raises(symsim.InputError) as raised:
        found.at(f"{beside},{'fusion=te' if framework == 'megatron' else 'zero=3,fusion=compile' if framework == 'torchtitan' else 'fusion=eager'}")
    with pytest.raises(symsim.InputError) as own:
        strategy = on_ranks(*read_strategy({**options_of(found.asked), **read_strategy(beside)[0].model_dump(exclude_unset=True)}))
        rules[rule](found.asked.model, strategy)
    assert str(raised.value) == str(own.value)


def test_a_plan_that_is_written_has_the_refusals_of_its_file(tmp_path: Path) -> None:
    """The last torchtitan with TOML files cuts no qwen3 into stages, and the one since does."""
    asked = ("plan", "qwen3-32b", "-y", "h200-sxm", "--world", "8", "--global-batch-size", "16", "--framework", "torchtitan", "--fix", "tp=1,cp=1")
    for file, stages in (("train.toml", False), ("train.py", True)):
        ended = run(*asked, "--export", "torchtitan", str(tmp_path / file), "--json")
        assert ended.returncode == 0 and (tmp_path / file).exists(), ended.stderr
        assert ("older_stages" in json.loads(ended.stdout)["certificate"]["refused"]) is not stages


def test_changes_of_one_option_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    base = read_base("llama3.2-1b", "dp=8,zero=3,fusion=compile,num_microbatches=16", "h200-sxm", {})
    changes = next_knobs(base).evaluated
    monkeypatch.setitem(FRAMEWORKS, "torchtitan", replace(FRAMEWORKS["torchtitan"], refused=()))
    assert 0 < changes < next_knobs(base).evaluated


def test_kinds_come_in_order_and_differ(made: Plan) -> None:
    steps = [c.numbers["time"]["step"] for c in made.best]
    assert steps == sorted(steps) and len(steps) == 5
    kinds = {(c.result.strategy.tp, c.result.strategy.pp, c.result.strategy.recompute) for c in made.best}
    assert len(kinds) == 5
    settings = made.settings(made.best[0])
    again = symsim.derive(MODEL, made.best[0].text, system=SYSTEM, overrides=settings)
    # Megatron-LM fuses rotary embeddings; its fused norms change nothing here
    assert settings == {"assume.apply_rope_fusion": "true"} == made.to_json()["settings"]
    assert f" --set assume.apply_rope_fusion=true -y {SYSTEM}\n" in repr(made)
    assert again.value("time.step") == made.best[0].result.value("time.step")
    assert {"strategy", "time", "memory", "tokens_per_second", "mfu", "binds", "interval"} <= made.to_json()["best"][0].keys()


@pytest.mark.parametrize(("kernel", "there"), [("flash", False), ("math", True)])
def test_scores_run_again_where_they_are_kept(kernel: str, there: bool) -> None:
    """A fused kernel of attention keeps none that `core_attn` would free."""
    found = plan(MODEL, SYSTEM, world=1, global_batch_size=8, fix="tp=1", top=1, overrides={"assume.attention_kernel": kernel})
    (again,) = (choice for choice in space_of(found.asked)[1] if "recompute" in choice.names)
    assert (("selective", "core_attn") in again.rows) is there


def test_what_is_given_is_said_once() -> None:
    """An option of the strategy that --set gives is in -s, other settings are in --set; together they are the strategy that was found."""
    given = {"assume.causal": "half", "B_1": "400 GB/s"}
    found = plan(MODEL, SYSTEM, world=2, global_batch_size=32, fix=FIXED + ",pp=1,tp=1", top=1, overrides={"fp8": "blockwise", **given})
    (best,) = found.best
    assert "fp8=blockwise" in best.text and found.settings(best) == {"assume.apply_rope_fusion": "true", **given}
    alone = symsim.derive(MODEL, best.text, system=SYSTEM, overrides=found.settings(best))
    assert alone.value("time.step") == best.result.value("time.step")


def test_what_binds_is_what_the_step_waits_for(made: Plan) -> None:
    """A step is of the first degree in the seconds that a machine's numbers stand for, so that their shares of it add up."""
    binds = made.best[0].binds
    first, *_ = binds
    assert sum(binds.values()) == pytest.approx(1, rel=1e-6) and list(binds.values()) == sorted(binds.values(), reverse=True)
    assert f"Faster by a percent, {first} shorten it by {binds[first]:.3f} %" in " ".join(repr(made).split())


def test_an_option_more_is_never_worse_and_one_fixed_never_better(made: Plan) -> None:
    step = made.best[0].result.value("time.step")
    more = plan(MODEL, SYSTEM, world=8, global_batch_size=32, fix=FIXED, allow=["cross_entropy_fusion=unfused,te"], top=1)
    assert more.best[0].result.value("time.step") < step
    assert more.certificate.configurations == 2 * made.certificate.configurations
    fewer = plan(MODEL, SYSTEM, world=8, global_batch_size=32, fix=FIXED + ",pp=2", top=1)
    assert fewer.best[0].result.value("time.step") >= step and fewer.best[0].result.strategy.pp == 2


def test_single_changes_are_what_derive_says(made: Plan) -> None:
    first = made.best[0]
    found = single_changes(made.asked, first.options)
    assert found and [c.after for c in found] == sorted(c.after for c in found)
    after = symsim.derive(MODEL, f"{first.text},{found[0].text}", system=SYSTEM, overrides=made.settings(first))
    assert float(after.value("time.step")) == found[0].after < found[0].before == float(first.result.value("time.step"))


def test_parts_of_a_difference_add_up(made: Plan) -> None:
    made_of = difference(made.best[0].result, made.at("pp=4,recompute=full"))
    # of one micro-batch gradients are made while activations go, and the peak has neither whole
    apart = difference(*(symsim.derive("opt-2.7b", f"dp=4,tp=16,fusion=eager,recompute={r}", system=SYSTEM) for r in ("none", "full")))
    for rows in (made_of.time, made_of.memory, apart.time, apart.memory):
        assert sum(r.one for r in rows[:-1]) == pytest.approx(rows[-1].one) and sum(r.other for r in rows[:-1]) == pytest.approx(rows[-1].other)
        assert [abs(r.more) for r in rows[:-1]] == sorted((abs(r.more) for r in rows[:-1]), reverse=True)


@pytest.mark.long
def test_a_plan_of_a_job_trains_what_the_job_trains(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(shown("model", "smollm2-135m"))
    (tmp_path / "strategy.yaml").write_text("tuner_type: lora\nlora_rank: 4\nquantize_base: nf4\noptimizer: muon\ntp: 3\n")
    asked = ["-y", "h100-sxm", "--world", "1", "--global-batch-size", "4", "--fits-with", "90%", "--framework", "deepspeed", "--json"]
    of_job = run("plan", str(tmp_path), *asked, "--fix", "lora_rank=16")
    told = "it keeps tuner_type=lora,lora_rank=4,quantize_base=nf4, and --fix keeps more"
    assert of_job.stderr == f"symsim: a plan looks for a strategy of its own: of that in {tmp_path} {told}\n"
    by_hand = run("plan", "smollm2-135m", *asked, "--fix", "tuner_type=lora,lora_rank=16,quantize_base=nf4")
    found, wanted = (json.loads(ended.stdout)["best"] for ended in (of_job, by_hand))
    assert found == wanted and found[0]["memory"]["peak"] < json.loads(run("plan", "smollm2-135m", *asked).stdout)["best"][0]["memory"]["peak"]


def test_a_plan_of_a_job_has_its_rows(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(shown("model", "smollm2-135m"))
    (tmp_path / "strategy.yaml").write_text("seq_length: 1024\npacked_document_length: 512\nmicro_batch_size: 2\nnum_microbatches: 4\ndp: 2\n")
    asked = ["-y", "h100-sxm", "--world", "1", "--framework", "deepspeed"]
    of_job = run("plan", str(tmp_path), *asked)
    assert "16 sequences of 1,024 tokens a step (16,384 tokens)" in of_job.stdout
    assert "it keeps packed_document_length=512,seq_length=1024,global_batch_size=16, and" in of_job.stderr
    other = run("plan", str(tmp_path), *asked, "--seq-length", "2048", "--tokens-per-step", "16384")
    assert "8 sequences of 2,048 tokens a step" in other.stdout and "it keeps packed_document_length=512, and" in other.stderr


def test_sums_in_another_order_are_no_difference() -> None:
    assert Row("kernels", 0.1 + 0.2, 0.3).more == 0 and Row("kernels", 22.08, 22.09).more == pytest.approx(0.01)


def test_where_nothing_fits_the_nearest_and_the_smallest_world_are_said() -> None:
    found = plan("llama3-8b", SYSTEM, world=1, global_batch_size=64, fix=FIXED + ",recompute=full,micro_batch_size=1")
    assert not found.fits and found.smallest == 2
    peaks = [c.result.value("memory.peak") for c in found.best]
    assert peaks == sorted(peaks) and "2 accelerators are enough" in " ".join(repr(found).split())


@pytest.mark.parametrize(
    ("batch", "length", "sizes"),
    [(64, 4096, (1, 2, 4, 8, 16)), (36, 4096, (1, 2, 3, 4, 6, 9, 12)), (100, 512, (1, 2, 4, 5, 10, 20, 25, 50)), (7, 2**20, (1, 7))],
)
def test_micro_batches_divide_the_batch(batch: int, length: int, sizes: tuple[int, ...]) -> None:
    loaded = load_model(MODEL)
    asked = Asked(loaded, loaded.architecture, SYSTEM, 4, batch, length, FRAMEWORKS["deepspeed"], {})
    assert [c.rows for c in choices_of(asked) if c.names == ("micro_batch_size",)] == [tuple((b,) for b in sizes)]


def test_three_sequences_a_rank_may_be_one_micro_batch() -> None:
    found = plan(MODEL, "h200-sxm", world=12, global_batch_size=36, fix=FIXED + ",tp=1,pp=1,recompute=none", top=1).best[0].known
    again = symsim.derive(MODEL, "zero=1,overlap_grad_reduce=true,overlap_param_gather=true,dp=12,global_batch_size=36", system="h200-sxm")
    assert found.strategy.micro_batch_size == 3 and found.value("time.step") < 0.75 * float(again.value("time.step"))


def test_fixed_options_leave_the_rows_that_have_them() -> None:
    choice = Choice(("x", "y"), ((False, False), (True, True), (True, False)))
    assert _without(choice, set(), {"x": True}) == Choice(("y",), ((True,), (False,)))
    assert _without(choice, {"y"}, {"x": True}) is None


def _of_stages(fixed: str) -> list[dict[str, Any]]:
    """What stages have of their own, of every depth of a space."""
    found = plan(MODEL, SYSTEM, world=4, global_batch_size=32, fix=f"cp=1,tp=1,recompute=none,overlap_grad_reduce=true,micro_batch_size=1,{fixed}")
    (depths,) = (axis for axis in space_of(found.asked)[0] if "pp" in axis.names)
    return [dict(zip(depths.names, row)) for row in zip(*depths.columns)]


@pytest.mark.parametrize("given", ["account_for_embedding_in_pipeline_split=true", "p2p_comm=asynchronous"])
def test_what_is_given_of_stages_leaves_one_stage_in_the_space(given: str) -> None:
    """It moves nothing there."""
    rows, name = _of_stages(f"vpp=1,{given}"), given.split("=")[0]
    assert {row["pp"] for row in rows} == {1, 2, 4} and all(name not in row for row in rows)


def test_chunks_that_are_given_exchange_as_chunks_do() -> None:
    """9 are none of those that a plan tries: their boundary tensors travel beside computation, as those of others do."""
    rows = _of_stages("vpp=9")
    assert {row["pp"] for row in rows} == {2} and {row["p2p_comm"] for row in rows} == {"asynchronous"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_option_of_a_framework_is_one(name: str) -> None:
    framework = FRAMEWORKS[name]
    options = {*framework.fixed, *framework.degrees, *framework.derived, *framework.staged, *(n for c in framework.choices for n in c.names)}
    assert options <= set(symsim.Strategy.model_fields)
    # what is said of it is not the default
    assert resolve(framework.assumptions).items() >= framework.assumptions.items()
    assert all(value != ASSUMPTIONS[name].default for name, value in framework.assumptions.items())
    for text in framework.further:
        symsim.load_strategy(text)
    for choice in framework.choices:
        assert all(len(row) == len(choice.names) for row in choice.rows)


def test_experts_take_the_layers_tensor_degree_or_one() -> None:
    """With experts cut further than the rest a rank would hold less: Megatron-Core's groups allow it, the plan's space does not."""
    degrees = "tp=1,pp=1,vpp=1,cp=1,ep=1"
    fix = f"{degrees},overlap_grad_reduce=true,recompute=none,moe_token_dispatcher_type=alltoall,overlap_moe_expert_parallel_comm=false"
    found = plan("olmoe-1b-7b", SYSTEM, world=4, global_batch_size=8, fix=fix, goal="memory", top=2)
    assert {c.result.strategy.etp for c in found.best} == {1}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--world", "0", "--global-batch-size", "8"], "--world 0: whole numbers above 0 are needed"),
        (["--world", "a:b", "--global-batch-size", "8"], "--world a:b"),
        (["--world", "4,8", "--global-batch-size", "8", "--why-not", "tp=1"], "--why-not is of one number of accelerators"),
        (["--global-batch-size", "8"], "give --world"),
        (["--world", "8"], "a plan needs a batch: give --global-batch-size"),
        (["--world", "8", "--global-batch-size", "8", "--tokens-per-step", "4M"], "one of the two"),
        (["--world", "8", "--tokens-per-step", "4000000"], "4001792 is the nearest that is"),
        (["--world", "8", "--tokens-per-step", "4Q"], "--tokens-per-step '4Q'"),
        (["--world", "8", "--global-batch-size", "8", "--fix", "tp=3"], "--fix: world=8 is no multiple of tp*cp*pp = 3*1*1 = 3"),
        (
            ["--world", "8", "--global-batch-size", "8", "--fix", "seq_length=8192"],
            "--fix seq_length: the length of a sequence is given by --seq-length",
        ),
        (
            ["--world", "8", "--global-batch-size", "8", "--fix", "tp=2", "--allow", "tp=1,2"],
            "tp is fixed and varies by --allow; give it in one of them",
        ),
        (["--world", "8", "--global-batch-size", "8", "--for", "speed"], "--for speed"),
        (["--world", "8", "--global-batch-size", "8", "--framework", "megatorn"], "--framework megatorn: did you mean 'megatron'?"),
        (["--world", "8", "--global-batch-size", "8", "--fits-with", "2"], "--fits-with 2: a share"),
        (["--world", "8", "--global-batch-size", "8", "--fits-with", "200%"], "--fits-with 2: a share"),
        (["--world", "8", "--global-batch-size", "8", "--fits-with", "most"], "--fits-with most: a share is needed, such as 90% or 0.9"),
        (["--world", "8", "--global-batch-size", "8", "--top", "0"], "--top 0"),
        # what is asked for otherwise, axes that do not read, and what would be found out after the search
        *(
            (["--world", "8", "--global-batch-size", "8", *more], said)
            for more, said in (
                (["--allow", "world=4,8"], "--allow world: the number of ranks is given by --world"),
                (["--allow", "dp=world/tp"], "--allow dp: it is what the other degrees leave of --world"),
                (["--allow", "global_batch_size=4,8"], "--allow global_batch_size: the batch is given by --global-batch-size"),
                (["--allow", "seq_length=1024,2048"], "--allow seq_length: the length of a sequence is given by --seq-length"),
                (["--allow", "tpp=1,2"], "--allow tpp: no such setting; did you mean 'tp'?"),
                (["--allow", "x"], "--allow 'x': it has no '='"),
                (["--allow", "cross_entropy_fusion=te,none"], 'symsim: --allow cross_entropy_fusion: cross_entropy_fusion is "none"; valid: unfused'),
                (["--allow", "sp==foo>1"], "--allow sp=foo>1: there is no axis or setting 'foo'"),
                (["--why-not", "tpp=2"], "--why-not strategy 'tpp=2': unknown key 'tpp': did you mean 'tp'?"),
                (["--export", "megatorn", "x.sh"], "symsim does not export 'megatorn': did you mean 'megatron'?"),
                (["--export", "megatron", "x.json"], "x.json: a file for Megatron-LM ends in .sh"),
                (["--export", "megatron", "nowhere/x.sh"], "nowhere/x.sh: it cannot be written: there is no directory nowhere"),
                (["--export", "torchtitan", "x.toml"], "torchtitan trains models by name and flavor"),
                (["--plot", "nowhere/x.svg"], "--plot nowhere/x.svg: it cannot be written: there is no directory nowhere"),
                (["--set", "B_2=100"], "symsim: --set: network[1].bandwidth: '100' is a plain number"),
                (["-y", "h20", "--for", "cost"], "--for cost: system h20 has no price: --set accelerator.price='2 USD/h' gives one"),
                (["-y", SYSTEM], f"-y {SYSTEM} is given twice"),
            )
        ),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(asked: list[str], said: str) -> None:
    ended = run("plan", MODEL, *([] if "h20" in asked else ["-y", SYSTEM]), *asked)
    assert ended.returncode == 2 and said in ended.stderr and ended.stderr.count("\n") == 1


def test_the_command_prints_a_plan_writes_it_and_says_why_not(tmp_path: Path) -> None:
    asked = ["plan", MODEL, "-y", SYSTEM, "--world", "8", "--global-batch-size", "32", "--fix", FIXED + ",pp=1"]
    ended = run(*asked, "--export", "megatron", str(tmp_path / "train.sh"))
    assert ended.returncode == 0 and "Certificate" in ended.stdout and "No other strategy of this space that fits is better" in ended.stdout
    assert max(len(line) for line in ended.stdout.splitlines() if not line.startswith("first: ")) <= 80
    assert "wrote" in ended.stderr and "--global-batch-size" in (tmp_path / "train.sh").read_text()
    said = [line.removeprefix("symsim: ") for line in ended.stderr.splitlines() if "add by hand" in line]
    assert len(said) == 1 and f"\n# {said[0]}\n" in (tmp_path / "train.sh").read_text()
    ended = run(*asked, "--why-not", "tp=5,sp=true")
    assert ended.returncode == 0 and ended.stdout.startswith("It cannot run: ")
    ended = run(*asked, "--why-not", "world=16")
    assert ended.returncode == 2 and "--why-not world=16: strategies are set side by side with world=8, which the plan is for" in ended.stderr
    ended = run(*asked, "--why-not", "pp=4,dp=4")
    assert ended.stdout == "It cannot run: dp=4 is not what tp, cp and pp leave of the accelerators (dp=2 where all else fits)\n"
    ended = run(*asked, "--fits-with", "0.001", "--export", "megatron", str(tmp_path / "none.sh"))
    assert ended.returncode == 2 and "nothing fits, so nothing is written" in ended.stderr and not (tmp_path / "none.sh").exists()
    ended = run(*asked, "--why-not", "pp=4", "--json")
    assert ended.returncode == 0 and {"time", "memory", "outside", "strategy", "filled"} == json.loads(ended.stdout).keys()


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    ("model", "framework", "fixed", "file"),
    [
        ("llama3-8b", "megatron", "pp=2,vpp=4,cp=1,tp=2", "train.sh"),
        ("mixtral-8x7b", "megatron", "pp=2,vpp=1,cp=1,tp=1,ep=8,moe_token_dispatcher_type=flex,recompute=full", "train.sh"),
        ("qwen3-32b", "torchtitan", "pp=2,cp=1,tp=2", "train.py"),
        ("llama3-8b", "deepspeed", "zero=3,recompute=none", "train.json"),
        ("llama3-8b", "deepspeed", "zero=1,recompute=none", "train.json"),
    ],
)
def test_a_file_that_is_read_back_takes_as_long_as_the_plan(model: str, framework: str, fixed: str, file: str, tmp_path: Path) -> None:
    place, back = tmp_path / file, tmp_path / "back"
    wanted = ["--fix", f"{fixed},micro_batch_size=1", "--world", "16", "--global-batch-size", "64", "--fits-with", "1", "--framework", framework]
    ended = run("plan", model, "-y", "h200-sxm", *wanted, "--export", framework, str(place), "--json")
    assert ended.returncode == 0 and "computes so" not in ended.stderr
    ended_back = run("import", framework, str(place), *(["--of", model] if framework == "deepspeed" else []), "-o", str(back))
    assert ended_back.returncode == 0, ended_back.stderr
    again = run("eval", str(back), "-y", "h200-sxm", "--set", "dp=16" if framework == "deepspeed" else "clip_grad=1.0", "--json")
    best, found = json.loads(ended.stdout)["best"][0], json.loads(again.stdout)
    assert found["time"]["step"] == best["time"]["step"] and found["memory"]["peak"] == best["memory"]["peak"]


def test_what_stops_a_whole_space_is_a_rule_before_it_is_its_grid() -> None:
    with pytest.raises(symsim.InputError, match="exp_avg_dtype=bf16 needs use_precision_aware_optimizer=true"):
        symsim.plan("llama3-8b", SYSTEM, world=8, global_batch_size=16, fix="exp_avg_dtype=bf16")


@pytest.mark.parametrize(
    ("framework", "given", "said"),
    [
        ("megatron", {"fix": "optimizer=galore"}, "Megatron-LM has no optimizer=galore: it has adam, sgd, sgd_momentum, lion, muon"),
        ("torchtitan", {"overrides": {"optimizer_bits": "8"}}, "torchtitan has no optimizer_bits=8: it has 32"),
        ("torchtitan", {"fix": "zero=2"}, "torchtitan has no zero=2: it has 0, 3"),
        ("torchtitan", {"allow": ["optimizer=adam,lamb"]}, "torchtitan has no optimizer=lamb: it has adam, sgd, sgd_momentum, muon"),
        ("megatron", {"fix": "tuner_type=lora,quantize_base=nf4"}, "Megatron-LM has no quantize_base=nf4: it has none"),
        ("megatron", {"allow": ["task_type=causal_lm,seq_cls"]}, "Megatron-LM has no task_type=seq_cls: it has causal_lm"),
        ("torchtitan", {"overrides": {"task_type": "seq_cls"}}, "torchtitan has no task_type=seq_cls: it has causal_lm"),
    ],
)
def test_no_plan_has_what_its_framework_lacks(framework: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(symsim.InputError, match=f"^{said}$"):
        symsim.plan("llama3-8b", SYSTEM, world=8, global_batch_size=16, framework=framework, **given)


def test_members_that_only_a_rule_tells_apart_are_not_evaluated_as_one() -> None:
    """Nothing reads how tensor-parallel messages run, where there are none; a rule refuses to overlap them there."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "recompute": "none", "micro_batch_size": 1, "overlap_grad_reduce": True, "tp": 1}
    found = symsim.plan("smollm2-360m", system="h100-sxm", world=8, global_batch_size=32, fix=fixed).certificate
    assert (found.configurations, found.refused, found.evaluated) == (2, {"overlap": 1}, 1)


def test_a_difference_needs_two_of_something() -> None:
    ended = run("diff", MODEL, "-s", "tp=1", "-s", "pp=2", "-y", SYSTEM)
    assert ended.returncode == 0 and "Time of a step" in ended.stdout and "pipeline bubble" in ended.stdout
    for given, said in ((["-s", "tp=1"], "nothing to set side by side"), (["-s", "a", "-s", "b", "-s", "c"], "-s is given 3 times")):
        ended = run("diff", MODEL, *given, "-y", SYSTEM)
        assert ended.returncode == 2 and said in ended.stderr
    with pytest.raises(symsim.InputError, match="give one with -y"):
        run_diff([MODEL, "llama3-8b"], (), (), {}, False, print, print)


def test_several_sizes_are_a_curve_of_the_best_of_each() -> None:
    ended = run("plan", MODEL, "-y", SYSTEM, "--world", "2:8:*2", "--global-batch-size", "32", "--fix", FIXED + ",recompute=none", "--json")
    rows = json.loads(ended.stdout)["sizes"]
    assert ended.returncode == 0 and [r["world"] for r in rows] == [2, 4, 8]
    alone = plan(MODEL, SYSTEM, world=4, global_batch_size=32, fix=FIXED + ",recompute=none", top=1)
    assert rows[1]["best"][0]["strategy"] == alone.best[0].text and rows[1]["certificate"] == alone.certificate.to_json()


WIDE = {"recompute": "selective", "recompute_modules": ("mla_up_proj", "layernorm"), "cp": 2, "ep": 256, "vpp": 12}


def test_what_a_plan_knows_of_the_best_is_what_their_own_derivations_say(made: Plan) -> None:
    assert len(made.best) > 1
    for choice in made.best:
        assert choice.known.strategy == choice.result.strategy and choice.known.model == choice.result.model
        assert choice.known.derivation.definitions == choice.result.derivation.definitions
        assert choice.known.step_numbers == choice.result.step_numbers and choice.known.value("memory.peak") == choice.result.value("memory.peak")


def test_the_table_of_the_best_is_as_wide_as_a_terminal(made: Plan) -> None:
    long = []
    for choice in made.best:
        strategy = choice.known.strategy.model_copy(update=WIDE)
        long.append(("1", replace(choice, known=replace(choice.known, strategy=strategy))))
    lines = choices_table("", "", long).splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 80 and all("mla_up_proj+layernorm" in line for line in lines[2:])


@pytest.mark.parametrize(("model", "kinds"), [("gemma-3-4b", {"a2a", "all_gather"}), ("gpt-oss-20b", {"a2a"}), ("llama3-8b", {"p2p"})])
def test_layers_with_windows_are_planned_with_context_parallelism(model: str, kinds: set[str]) -> None:
    """Their keys and values go around no ring, which is the kind unless another is asked for."""
    found = plan(model, "h100-sxm", world=8, global_batch_size=8, seq_length=32768, fix="cp=2,pp=1,recompute=full,micro_batch_size=1")
    assert found.fits and {choice.result.strategy.cp_comm_type for choice in found.best} <= kinds
    assert {choice.result.strategy.cp for choice in found.best} == {2}
