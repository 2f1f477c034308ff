"""Frameworks as objects: each choice of one shows where it should, and nothing else asks for a framework by its name."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.frameworks import choices as frameworks
from symsim.frameworks.choices import EAGER, FRAMEWORKS, TE
from symsim.frameworks.eager_modules import MODULE_CODE, ModuleCode
from symsim.frameworks.framework import Framework, Ring

DENSE, MIXTURE, LATENT = "llama3-8b", "mixtral-8x7b", "deepseek-v3"


def derived(model: str, strategy: str, **assume: str) -> Result:
    made = symsim.derive(model, f"{strategy},num_microbatches=4", system="h100-sxm", overrides={f"assume.{k}": v for k, v in assume.items()})
    assert isinstance(made, Result)
    return made


def shown(result: Result, part: str) -> Any:
    """A part of the JSON, or the definitions whose names begin so."""
    found = result.to_json()
    if part in found:
        return found[part]
    return {name: str(d.expr) for name, d in result.derivation.definitions.items() if name.startswith(part)}


# a choice, another one, and where the other one shows: model, strategy, part of the result
CHOICES = [
    ("ring", Ring(returns=True), DENSE, "cp=2", "messages"),
    ("ring", Ring(gradient_dtype="fp32"), DENSE, "cp=2", "messages"),
    ("ring", Ring(gathers=True), DENSE, "cp=2,cp_comm_type=all_gather", "messages"),
    ("counts", "all_to_all", MIXTURE, "ep=4", "messages"),
    ("keeps_gathered", True, DENSE, "tp=2,sp=true", "activations"),
    ("stops_early", True, DENSE, "recompute=full", "time"),
    ("main_gradients", False, DENSE, "grad_reduce_in_fp32=false", "memory"),
    ("placeholders", False, DENSE, "tp=2", "memory"),
    ("returns_logits", False, DENSE, "tuner_type=lora,lora_rank=8,fusion=eager", "W_fwd_head"),
    ("op_by_op", False, DENSE, "fusion=eager", "W_bwd_dense"),
    ("checkpoints_ask", False, DENSE, "fusion=eager,recompute=full,freeze_parameters=embedding", "A_dense__lowest"),
    ("launches", {}, DENSE, "tp=8,seq_length=64", "time"),
    ("adapts_experts", False, MIXTURE, "ep=4,tuner_type=lora,lora_rank=8", "params"),
    ("unadapted", frozenset({"lm_head", "router", "down_proj"}), DENSE, "tuner_type=lora,lora_rank=8", "params"),
    ("losses_in_kernels", (), DENSE, "tp=2", "time"),
    ("unrecorded", frozenset(), "deepseek-v3.2", "tp=1", "activations"),
    ("lowerings", EAGER.lowerings, DENSE, "tp=2", "activations"),
]


@pytest.mark.parametrize(("choice", "other", "model", "strategy", "part"), CHOICES, ids=[f"{c[0]}-{c[3]}" for c in CHOICES])
def test_each_choice_of_a_framework_shows(choice, other, model, strategy, part, monkeypatch):
    before = shown(derived(model, strategy), part)
    own = EAGER if "fusion=eager" in strategy else TE
    monkeypatch.setitem(FRAMEWORKS, own.name, replace(own, **{choice: other}))
    assert shown(derived(model, strategy), part) != before


def test_choices_that_an_assumption_turns_on(monkeypatch):
    """A framework without the overlap has it under no assumption; one that reduces everything has no gradient to omit."""
    tp, asked = "tp=4,sp=true", {"tp_async_backward": "true"}
    before = derived(DENSE, tp, **asked).value("time.step")
    monkeypatch.setitem(FRAMEWORKS, "te", replace(TE, reduces_beside=False))
    assert derived(DENSE, tp, **asked).value("time.step") > before == pytest.approx(before)
    architecture = symsim.load_model("deepseek-v2-lite")
    dense = architecture.model_copy(update={"layers": architecture.layers[:1]})
    assert dense.kind_names() == ["dense"]

    def backward() -> int:
        return sum(m["phase"] == "backward" for m in symsim.derive(dense, "tp=4").to_json()["messages"])

    before = backward()
    monkeypatch.setitem(FRAMEWORKS, "te", replace(TE, unreduced=frozenset()))
    assert backward() == before + 1


def test_every_choice_is_tried():
    elsewhere = {"name", "fp8", "state_types", "reduces_beside", "unreduced", "shares_redistributions", "scales_as_it_adds"}
    tried = {choice for choice, *_ in CHOICES} | elsewhere
    assert tried == {f.name for f in fields(Framework)}


def test_what_a_framework_cannot_do_is_refused_by_its_object(monkeypatch):
    assert derived(DENSE, "fp8=mxfp8").values["tp"] == 1
    monkeypatch.setitem(FRAMEWORKS, "te", replace(TE, fp8=False))
    with pytest.raises(InputError, match="fp8=mxfp8"):
        derived(DENSE, "fp8=mxfp8")
    asked = "exp_avg_dtype=bf16"
    with pytest.raises(InputError, match="use_precision_aware_optimizer"):
        derived(DENSE, asked)
    monkeypatch.setitem(FRAMEWORKS, "te", replace(TE, state_types=True))
    assert derived(DENSE, asked).values["tp"] == 1


def test_no_pass_asks_for_a_framework_by_name():
    """Whoever adds a framework adds an object: only `frameworks/choices.py` reads which one a strategy names."""
    package = Path(frameworks.__file__).parent
    asking = re.compile(r"fusion\s*(==|!=|in)\s*[\"'({\[]|\.fusion\b")
    found = {p.name: asking.findall(p.read_text()) for p in package.rglob("*.py") if p != Path(frameworks.__file__)}
    allowed = {"checks.py"}  # which looks its object up to refuse what it cannot do
    assert {name for name, asked in found.items() if asked} <= allowed


@pytest.mark.parametrize("fact", [f.name for f in fields(ModuleCode)])
def test_each_fact_of_module_code_shows(fact, monkeypatch):
    """A model lowered with modules that are so runs other kernels than one whose modules are not, or what it stores has other sides."""
    model = (
        "mixtral-8x7b" if fact.startswith(("router", "top_k", "chosen_first", "sparsemixer")) else "gpt3-175b" if fact.endswith("_norm") else DENSE
    )
    model = "qwen1.5-moe-a2.7b" if fact.startswith("shared") else model
    elsewhere = {
        "norm_in_fp32": "gpt3-175b",
        "norm_scale_cast": "llama4-scout",
        "plain_norm_by_power": "llama4-scout",
        "gated_norm_in_fp32": "kimi-linear-48b-a3b",
        "decay_bounded": "kimi-linear-48b-a3b",
        "sinks_in_fp32": "gpt-oss-20b",
        "sinks_scale_result": "gpt-oss-20b",
        "norm_by_steps": "gpt3-175b",
        "experts_in_rows": "mixtral-8x7b",
        "qkv_indexed": "gpt2",
        "qkv_heads_first": "gpt2",
    }
    model = elsewhere.get(fact, model)
    adapted = fact in ("router_is_linear", "linears_of_its_own")
    strategy = "fusion=eager,tuner_type=lora,target_modules=all_linear" if adapted else "fusion=eager"
    strategy += ",optimizer=adafactor" if fact == "experts_in_rows" else ""
    code = symsim.load_model(model).modelling
    monkeypatch.setitem(MODULE_CODE, code, ModuleCode(router_in_fp32=fact == "router_weight_in_fp32", norm_weight_in_fp32=fact == "norm_weight_cast"))

    def kernels() -> list[str]:
        result = symsim.derive(model, strategy, overrides={"assume.attention_kernel": "eager"})
        states = result.stage_numbers(result.stages[0])["M_stage_optimizer"]
        return [*(repr((b.placed.block.ops, b.placed.block.tensors)) for b in result.lowered.blocks.values()), str(states)]

    before = kernels()
    monkeypatch.setitem(
        MODULE_CODE,
        code,
        replace(
            MODULE_CODE[code],
            **{fact: {"linears_of_its_own": frozenset({"o_proj"}), "factors": frozenset({"residual"}), "queries_scaled": "every"}.get(fact, True)},
        ),
    )
    assert kernels() != before
