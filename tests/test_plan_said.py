"""What a plan says of itself: utilisations above the peak, bounds of memory, options more, and what no file starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symsim
from symsim.algebra.quantity import BYTE
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategies import read_strategy
from symsim.planning.command import need_of
from symsim.planning.difference import Difference, Row, difference_text
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.knobs import single_changes
from symsim.planning.plan import plan
from symsim.planning.space import Asked, choices_of, options_beside, outside, space_of
from symsim.planning.text import _digits, plan_text
from symsim.planning.verbs import sizing
from symsim.report.amounts import human
from tests.in_process import run

SYSTEM = "h100-sxm"
ALONE = "tp=1,cp=1,pp=1,vpp=1,recompute=none,overlap_grad_reduce=true"


def of_model(model: str, **fixed: Any) -> Asked:
    loaded = load_model(model)
    return Asked(loaded, loaded.architecture, SYSTEM, 64, 64, 8192, FRAMEWORKS["megatron"], fixed)


def test_a_file_is_asked_for_by_its_suffix(tmp_path: Path) -> None:
    """torchtitan has Llama 3.2 1B since its files are Python, and Llama 4 before: what cannot be written is said before it is searched for."""
    asked = ("-y", "b200-sxm", "--world", "8", "--global-batch-size", "16", "--framework", "torchtitan", "--fix", "tp=1,cp=1,pp=1,recompute=none")
    ended = run("plan", "llama3.2-1b", *asked, "--export", "torchtitan", str(tmp_path / "train.py"))
    assert ended.returncode == 0 and (tmp_path / "train.py").exists(), ended.stderr
    for model, file, instead in (("llama3.2-1b", "x.toml", ".py"), ("llama4-scout", "x.py", ".toml")):
        ended = run("plan", model, *asked, "--export", "torchtitan", str(tmp_path / file))
        assert ended.returncode == 2 and ended.stderr.endswith(f"write a file that ends in {instead}\n")


@pytest.mark.long_after(3)
@pytest.mark.parametrize(
    ("framework", "model", "said"),
    [
        (
            "torchtitan",
            "llama2-7b",
            "torchtitan since 2026-02 has no llama2 7B, as llama2-7b is called there: it trains deepseek_v3, gpt_oss, kimi_k2_7, llama3, "
            "qwen3, qwen3_5",
        ),
        (
            "torchtitan",
            "smollm2-360m",
            "torchtitan trains models by name and flavor, and smollm2-360m has the shape of no flavor of "
            "deepseek_v3, gpt_oss, kimi_k2_7, llama2, llama3, llama4, qwen3, qwen3_5",
        ),
        ("torchtitan", "llama3.2-1b", ""),
        ("torchtitan", "llama4-scout", ""),
        ("megatron", "lfm2-350m", "Megatron-LM cannot say the layers of lfm2-350m: conv has mixer: short_convolution"),
        ("megatron", "smollm2-360m", ""),
        ("deepspeed", "lfm2-350m", ""),
    ],
)
def test_that_no_file_starts_a_plan_is_said(framework: str, model: str, said: str) -> None:
    fixed = "recompute=none" if framework == "deepspeed" else "recompute=none,tp=1,cp=1,pp=1"
    found = plan(model, "gb300-nvl72", world=4, global_batch_size=8, framework=framework, fix=fixed, top=1)
    assert found.unwritten == said == found.to_json().get("unwritten", "")
    assert f"no file starts it: {said}" in " ".join(repr(found).split()) if said else "no file starts it" not in repr(found)


def test_utilisations_above_the_peak_are_explained() -> None:
    """Of a long sequence, whose attention is counted with the keys that the causal mask hides."""
    fixed = "tp=2,pp=1,recompute=full,overlap_grad_reduce=true,tp_comm_overlap=false"
    found = plan("llama3-8b", SYSTEM, world=8, global_batch_size=1, seq_length=2**19, fix=fixed)
    (best,) = found.best
    assert best.known.value("hfu") > 1
    words = " ".join(plan_text(found).split())
    assert "100 %: assume.causal=full counts keys too that the causal mask hides, most of which no kernel computes." in words
    assert best.to_json()["above_peak"] in words
    assert "above 100 %" not in plan_text(plan("smollm2-360m", SYSTEM, world=1, global_batch_size=4, fix=ALONE))


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    result = symsim.derive("llama3.2-1b", "tp=1", system="h100-sxm")
    rows = [Row("a little less", 1.0, 0.9999), Row("less", 1.0, 0.99), Row("all", 1.0, 1.0)]
    shown = [line.split()[-2] for line in difference_text(Difference(result, result, rows, rows), ("one", "other")).splitlines() if "less" in line]
    assert shown == ["0.0", "-1.0"] * 2


def test_a_plan_for_memory_says_so() -> None:
    """Bounds in bytes as people read them, no second step, and the options that need less, those that shorten the step or not."""
    found = plan("llama3-8b", SYSTEM, world=8, global_batch_size=64, goal="memory", fix="recompute=none,tp=1")
    text, bound = plan_text(found, lambda: found.changes), found.certificate.bound
    assert bound is not None
    words = " ".join(text.split())
    assert f"None of those that need more memory at best is below {human(int(bound), BYTE)}." in words
    assert "excluded, more memory at best" in text and "slower" not in text and "second kind" not in words
    assert [change.memory for change in found.changes] == sorted(change.memory for change in found.changes)
    first, *_ = found.changes
    assert first.text == "use_precision_aware_optimizer=true,optimizer_cpu_offload=true" and first.after > first.before and first.memory < 0


@pytest.mark.parametrize(("goal", "head", "name"), [("cost", "USD/T", "cost_per_trillion_tokens"), ("energy", "MWh/T", "energy_per_trillion_tokens")])
def test_a_table_has_what_was_asked_for(goal: str, head: str, name: str) -> None:
    found = plan("llama3-8b", SYSTEM, world=8, global_batch_size=64, goal=goal, fix="cp=1,pp=1,recompute=none", top=2)
    header, first, *_ = plan_text(found).splitlines()[4:]
    value = float(found.best[0].known.value(name))
    assert header.split()[-3:] == [head, "MFU", "memory"] and "tokens/s" not in header
    assert float(first.split()[-5].replace(",", "")) == pytest.approx(value, rel=1e-3)


def test_nothing_that_fits_stays_in_eighty_columns() -> None:
    ended = run(
        "plan", "llama3-8b", "-y", SYSTEM, "--world", "1", "--global-batch-size", "64", "--fix", "recompute=full,micro_batch_size=1", "--json"
    )
    assert json.loads(ended.stdout)["smallest"] == 2 and "changes" in json.loads(ended.stdout)
    found = plan("llama3-8b", SYSTEM, world=1, global_batch_size=64, fix="recompute=full,micro_batch_size=1", fits_with=0.55)
    assert not found.fits and found.changes == () and "Nothing fits in 55% of" in repr(found)
    assert max(len(line) for line in repr(found).splitlines() if not line.startswith("first: ")) <= 80


def test_what_keeps_strategies_out_is_said() -> None:
    """A vocabulary that no tensor ranks share; memory that should stay free; a size of several that nothing runs on."""
    fixed = "cp=1,pp=1,recompute=none,zero=1,micro_batch_size=1"
    odd = plan("llama3-8b", SYSTEM, world=8, global_batch_size=32, fix=fixed, overrides={"V": 128257}, top=1)
    assert not odd.fits and odd.best[0].known.value("memory.peak") < odd.best[0].known.value("memory.capacity")
    said = " ".join(repr(odd).split())
    assert "Nothing fits in 80 GiB with 6.934 GiB free beside it, as should be" in said
    assert "no tp above 1 divides vocab_size=128257: a padded one opens such strategies, as of --set vocab_size=129024" in said
    padded = plan("llama3-8b", SYSTEM, world=8, global_batch_size=32, fix=fixed, overrides={"V": 129024}, top=1)
    assert padded.fits and "vocab_size=" not in repr(padded)
    # three ranks may share one that is odd, and one rank shares none
    for world, rows in ((12, 50265), (1, 128257)):
        other = plan("gpt3-175b", SYSTEM, world=world, global_batch_size=12, fix=fixed, overrides={"V": rows}, top=1)
        assert "no tp above 1" not in repr(other)
    sizes = sizing("llama3-8b", SYSTEM, world=[8, 10], global_batch_size=32, fix=f"{fixed},tp=1")
    assert [size.world for size in sizes.sizes] == [8] and "10 accelerators are left out: nothing in the space can run" in repr(sizes)
    ended = run("plan", "llama3-8b", "-y", SYSTEM, "--world", "8,10", "--global-batch-size", "32", "--fix", f"{fixed},tp=1")
    assert ended.returncode == 0 and "10 accelerators are left out" in ended.stderr
    with pytest.raises(InputError, match="nothing in the space can run"):
        sizing("llama3-8b", SYSTEM, world=[10, 14], global_batch_size=32, fix=f"{fixed},tp=1")


def test_an_option_more_fits_in_what_may_be_filled() -> None:
    """A schedule that holds more fits on the whole accelerator, and not in the share of it that may be filled."""
    fixed = "recompute=none,tp=1,pp=4,cp=2,vpp=1,micro_batch_size=1"
    part = plan("llama3-8b", SYSTEM, world=8, global_batch_size=64, fits_with=0.48, fix=fixed, top=1)
    more = {change.text: change.memory for change in single_changes(part.asked, part.best[0].options)}
    value = part.best[0].known.value
    over = {text for text, memory in more.items() if value("memory.peak") + memory + value("memory.reserve") > 0.48 * value("memory.capacity")}
    assert part.fits and over == {"schedule=zb_h1"} and part.changes and over.isdisjoint(change.text for change in part.changes)


def test_attention_to_chosen_keys_runs_as_megatron_has_it() -> None:
    """transformer_config.py: without fused rotary embeddings, and over context ranks with what is gathered alone."""
    chosen, others = of_model("deepseek-v3.2"), of_model("deepseek-v3")
    assert "apply_rope_fusion" not in chosen.assumptions and others.assumptions["apply_rope_fusion"] == "true"
    assert chosen.settings(()) == {"assume.layernorm_linear_fusion": "fused"}
    assert [c.rows for c in choices_of(chosen) if c.names == ("cp_comm_type",)] == [(("all_gather",),)]
    assert not any("cp_comm_type" in c.names for c in choices_of(others))
    with pytest.raises(symsim.InputError, match="^Megatron-LM runs attention to chosen keys, as deepseek-v3.2 has, over context ranks with"):
        chosen.evaluated({"fusion": "te", "world": 64, "cp": 2, "ep": 32, "global_batch_size": 64, "seq_length": 8192})


@pytest.mark.parametrize(
    ("fixed", "strategy", "said"),
    [
        ("recompute=none,cp=1", "tp=2,pp=2", ["sp=false", "p2p_comm=asynchronous", "batch_p2p_sync=false"]),
        ("recompute=none,cp=1", "tp=2,sp=true,pp=2,vpp=4,overlap_p2p_comm=true,micro_batch_size=2", []),
        ("recompute=full,cp=1", "recompute=none,micro_batch_size=64", ["recompute=none", "micro_batch_size=64"]),
        (
            "cp=1",
            "recompute=selective,recompute_modules=core_attn,cross_entropy_fusion=te",
            ["cross_entropy_fusion=te", "recompute_modules=core_attn"],
        ),
        ("cp=1", "zero=3", ["zero=3"]),
    ],
)
def test_why_not_says_what_is_not_in_the_space(fixed: str, strategy: str, said: list[str]) -> None:
    asked = of_model("llama3-8b", **read_strategy(fixed)[0].model_dump(exclude_unset=True))
    assert outside(asked, symsim.load_strategy(options_beside(asked, strategy))) == said


def test_experts_have_the_tensor_degree_of_others_unless_told() -> None:
    asked = of_model("mixtral-8x7b", cp=1)
    assert outside(asked, symsim.load_strategy(options_beside(asked, "tp=2,sp=true,ep=4"))) == []


@pytest.mark.parametrize(
    ("model", "framework", "world", "fixed", "without"),
    [
        (
            "gpt-oss-20b",
            "megatron",
            4,
            "cp=1,tp=1,pp=1,recompute=none,cp_comm_type=a2a,etp=1,moe_token_dispatcher_type=alltoall",
            ("cp_comm_type", "etp"),
        ),
        ("llama3-8b", "deepspeed", 8, "zero=2,recompute=full", ("prefetch_bucket_size", "max_live_parameters", "param_persistence_threshold")),
        # a schedule's chunks, and how its ends are cut, act
        ("llama3-8b", "megatron", 8, "tp=1,cp=1,pp=4,vpp=2,recompute=full", ()),
    ],
)
def test_a_line_has_what_acts_alone(model: str, framework: str, world: int, fixed: str, without: tuple[str, ...]) -> None:
    """Read back it gives the same numbers, and no option that a plan settles, or that was fixed, can be left out of it."""
    found = plan(model, "h200-sxm", world=world, global_batch_size=32, framework=framework, fix=fixed, top=1)
    best = found.best[0]

    def numbers(text: str) -> dict[str, Any]:
        told = symsim.derive(model, text, {**found.asked.assumptions}, found.asked.overrides, "h200-sxm").to_json()
        return {name: value for name, value in told.items() if name != "strategy"}

    whole, parts = numbers(best.whole), best.text.split(",")
    assert numbers(best.text) == whole
    said = {part.split("=")[0] for part in parts}
    assert said.isdisjoint(without) and said | set(without) <= {part.split("=")[0] for part in best.whole.split(",")}
    for part in parts:
        # of one batch that a micro-batch is, and of buckets for all parameters, the numbers are those of the defaults
        if part.split("=")[0] in ("world", "global_batch_size", "allgather_bucket_size"):
            continue
        rest = ",".join(other for other in parts if other != part)
        try:
            assert numbers(rest) != whole, part
        except symsim.InputError:
            pass


def test_a_fixed_list_of_modules_keeps_the_rows_that_have_it() -> None:
    asked = of_model("deepseek-v3", **read_strategy("cp=1,recompute_modules=mla_up_proj")[0].model_dump(exclude_unset=True))
    _, choices, _ = space_of(asked)
    assert not any("recompute" in choice.names and len(choice.rows) > 1 for choice in choices)
    other = of_model("deepseek-v3", **read_strategy("cp=1,recompute_modules=mlp")[0].model_dump(exclude_unset=True))
    assert [c.rows for c in space_of(other)[1] if "recompute" in c.names] == [(("none",), ("full",), ("selective",))]


@pytest.mark.long
def test_why_not_completes_what_is_said() -> None:
    """By the best of what has it: a plan with these options fixed finds the same."""
    asked = ("plan", "llama3-8b", "-y", SYSTEM, "--world", "16", "--global-batch-size", "64", "--fix", "cp=1,tp_comm_overlap=false")
    for said, fixed in (("tp=2,pp=2", "tp=2,pp=2"), ("dp=4,pp=2", "pp=2,tp=2"), ("num_microbatches=4,tp=1", "tp=1,pp=1,micro_batch_size=1")):
        told = json.loads(run(*asked, "--why-not", said, "--json").stdout)
        best = plan("llama3-8b", SYSTEM, world=16, global_batch_size=64, fix=f"cp=1,tp_comm_overlap=false,{fixed}", top=1).best[0]
        assert told["time"][-1]["other"] == best.result.value("time.step") and told["strategy"] == best.text
        assert {one.split("=")[0] for one in told["filled"]}.isdisjoint({"world", "global_batch_size", *(o.split("=")[0] for o in said.split(","))})
    words = " ".join(run(*asked, "--why-not", "tp=2,pp=2").stdout.split())
    assert "strategies that have what is said this is the best by tokens_per_second, with sp=true, vpp=" in words
    ended = run(*asked, "--why-not", "dp=3")
    assert ended.stdout == "It cannot run: dp=3 is not what tp, cp and pp leave of the accelerators (dp=16 where all else fits)\n"
    assert run(*asked, "--why-not", "tp=1,num_microbatches=3").stdout.startswith(
        "It cannot run: num_microbatches=3 is not what micro_batch_size and dp leave"
    )
    assert run(*asked, "--why-not", " ").stderr == "symsim: --why-not says no option: give some, such as tp=4,pp=2, or a file\n"
    assert "no multiple of tp*cp*pp = 3*1*1 = 3" in run(*asked, "--why-not", "tp=3").stdout
    text = run(*asked, "--why-not", "overlap_grad_reduce=true").stdout
    assert text.endswith("It is the best: nothing that has what is said is better.\n")


def test_why_not_of_a_file_is_as_it_stands(tmp_path: Path) -> None:
    place = tmp_path / "other.yaml"
    asked = ("plan", "smollm2-360m", "-y", SYSTEM, "--world", "4", "--global-batch-size", "16", "--fix", "cp=1,pp=1,recompute=none")
    place.write_text("zero: 1\nmicro_batch_size: 2\n")
    told = json.loads(run(*asked, "--why-not", str(place), "--json").stdout)
    its = {"layernorm_linear_fusion": "fused", "apply_rope_fusion": "true"}
    own = symsim.derive("smollm2-360m", "micro_batch_size=2,global_batch_size=16,world=4", its, None, SYSTEM)
    assert told.keys() == {"time", "memory", "outside"} and told["time"][-1]["other"] == own.value("time.step")


def test_what_a_file_says_otherwise_stands_in_the_plan() -> None:
    """Gemma's gated GELU, and its norms behind blocks, have no arguments of Megatron-LM."""
    found = plan("gemma-3-4b", SYSTEM, world=4, global_batch_size=16, fix="cp=1,pp=1,tp=1,recompute=none", top=1)
    assert {"mlp.gated", "norms"} <= {one.name for one in found.written.unsaid} and found.written.result is not None
    here, there = (float(one.value("time.step")) for one in (found.best[0].result, found.written.result))
    words = " ".join(plan_text(found).split())
    assert there < 0.95 * here and "mlp.gated=true (it says false)" in words and "Read back, its step takes" in words and "% less" in words
    assert found.to_json()["written"]["time.step"] == there
    how = {"assume.causal": "half"}
    other = plan("smollm2-360m", SYSTEM, world=4, global_batch_size=16, fix="cp=1,pp=1,tp=1,recompute=none", top=1, overrides=how)
    assert not other.written.unsaid and "written" not in other.to_json() and "cannot say" not in plan_text(other)


def test_context_ranks_of_torchtitan_gather_keys() -> None:
    """Its files in Python say no other way, and its TOML files this one unless told."""
    found = plan("llama3-8b", "h200-sxm", world=8, global_batch_size=16, framework="torchtitan", fix=f"{ALONE},cp=2".replace("cp=1,", ""))
    assert found.best[0].result.strategy.cp_comm_type == "all_gather"
    assert "cp_comm_type" not in [one.name for one in found.written.unsaid]


def test_what_moves_nothing_is_not_lost_in_a_file(tmp_path: Path) -> None:
    """ZeRO-3 has no buckets of gathered parameters; that layers run again stands in the trainer's arguments."""
    asked = ("-y", SYSTEM, "--world", "8", "--global-batch-size", "16", "--framework", "deepspeed", "--fix", "zero=3,recompute=full")
    ended = run("plan", "llama3-8b", *asked, "--export", "deepspeed", str(tmp_path / "ds.json"))
    assert "cannot say recompute=full" in ended.stderr and "allgather_bucket_size" not in ended.stderr


def test_kinds_that_take_as_long_are_said_so() -> None:
    found = plan("smollm2-360m", SYSTEM, world=4, global_batch_size=16, fix=ALONE, top=1)
    first = found.best[0]
    text = plan_text(replace(found, best=[first, first]))
    assert "second kind's step is as long." in " ".join(text.split()) and "0.0 % longer" not in " ".join(text.split())


def test_graphs_of_what_stands_before_experts_are_an_option_more() -> None:
    """Rows of experts without a capacity have no fixed number, so that no whole layer is a graph."""
    found = plan("olmoe-1b-7b", "gb200-nvl72", world=8, global_batch_size=16, seq_length=1024, fix=f"{ALONE},ep=8,micro_batch_size=1", top=1)
    assert "cuda_graph_impl=transformer_engine,cuda_graph_scope=attn+moe_router" in [one.text for one in found.changes]


def test_why_not_where_nothing_fits() -> None:
    asked = ("plan", "llama3-8b", "-y", SYSTEM, "--world", "1", "--global-batch-size", "64", "--fix", "recompute=none,micro_batch_size=1,tp=1")
    ended = run(*asked, "--why-not", "recompute=full")
    assert "It is not in the space of the plan: recompute=full." in ended.stdout
    assert "Nothing of the space fits; best is what needs the least memory.\nbest: " in ended.stdout
    assert json.loads(run(*asked, "--why-not", "recompute=full", "--json").stdout)["outside"] == ["recompute=full"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--set", "seq_length=8192"], "--set seq_length: the length of a sequence is given by --seq-length"),
        (["--set", "s=8192"], "--set seq_length: the length of a sequence is given by --seq-length"),
        (["--set", "world=8"], "--set world: the number of ranks is given by --world"),
        (["--set", "global_batch_size=8"], "--set global_batch_size: the batch is given by --global-batch-size or --tokens-per-step"),
        (["--set", "tp=2", "--fix", "tp=4"], "tp is given by --fix and by --set; give it in one of them"),
        (["--set", "tp=3"], "--set: world=4 is no multiple of tp*cp*pp = 3*1*1 = 3, so no dp gives it"),
        (["--set", "tp=2", "--allow", "tp=1,2"], "tp is fixed and varies by --allow; give it in one of them"),
        (["--seq-length", "0"], "--seq-length 0: a number of tokens from 1 up is needed"),
        (["--fix", "fusion=eager"], "Megatron-LM has no fusion=eager: it has te"),
    ],
)
def test_an_option_is_given_once(more: list[str], said: str) -> None:
    ended = run("plan", "smollm2-360m", "-y", SYSTEM, "--world", "4", "--global-batch-size", "16", *more)
    assert ended.returncode == 2 and ended.stderr == f"symsim: {said}\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"world": True}, "--world True: a number of accelerators from 1 to 1,048,576 is needed"),
        ({"global_batch_size": "16"}, "--global-batch-size 16: a number of sequences from 1 up is needed"),
        (
            {"global_batch_size": None, "tokens_per_step": 0},
            "--tokens-per-step '0': a whole number of tokens is needed, such as 4194304, or 4M for 4*2^20",
        ),
        ({"seq_length": "8K"}, "--seq-length 8K: a number of tokens from 1 up is needed"),
        ({"top": 0}, "--top 0: a number of strategies from 1 up is needed"),
        ({"fits_with": "90%"}, "--fits-with 90%: a share of the memory above 0 and up to 1 is needed"),
        ({"goal": None}, "--for None: valid names: cost, energy, memory, tokens_per_second"),
        ({"framework": ["megatron"]}, "--framework ['megatron']: valid names: deepspeed, megatron, torchtitan"),
        ({"allow": 3}, "--allow 3: axes are texts such as 'cross_entropy_fusion=unfused,te', one or several"),
        ({"fix": ["tp=1"]}, "the strategy is ['tp=1']; a name, a path or what its load_... returns is needed"),
        ({"system": ["h100-sxm"]}, "the system is ['h100-sxm']; a name, a path or what its load_... returns is needed"),
    ],
)
def test_what_python_gives_is_read_or_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(symsim.InputError) as raised:
        symsim.plan(**{"model": "smollm2-360m", "system": SYSTEM, "world": 4, "global_batch_size": 16, **given})
    assert str(raised.value) == said


def test_numbers_of_numpy_and_tokens_as_text_are_numbers() -> None:
    found = symsim.plan("smollm2-360m", SYSTEM, world=np.int64(4), tokens_per_step="64K", fix=symsim.load_strategy(ALONE), top=1)
    assert (found.asked.world, found.asked.batch) == (4, 16) and found.at({"tp": 1, "recompute": "full"}).value("time.step") > 0
    assert [size.world for size in symsim.sizing("smollm2-360m", SYSTEM, world=np.int64(4), global_batch_size=16, fix=ALONE).sizes] == [4]


def test_what_set_gives_is_fixed() -> None:
    """Also an option that is an axis of the space: the numbers of all parts of a plan are of one strategy."""
    whole = "cp=1,pp=1,vpp=1,recompute=none,overlap_grad_reduce=true"
    one = plan("smollm2-360m", SYSTEM, world=4, global_batch_size=16, fix=whole, overrides={"tp": "1"})
    other = plan("smollm2-360m", SYSTEM, world=4, global_batch_size=16, fix=f"{whole},tp=1")
    assert one.to_json() == other.to_json()


def test_thousands_of_dollars_have_either_letter() -> None:
    assert need_of(None, None, "200K", {}).budget == need_of(None, None, "200k", {}).budget == 200_000


def test_large_bounds_are_written_out() -> None:
    assert [_digits(value) for value in (1632504.5, 129467.21, 99.5, 129.46721)] == ["1,632,500", "129,467", "99.5", "129.467"]
