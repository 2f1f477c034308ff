"""Plans of small spaces against all their configurations: what is best of each kind, and what the certificate says of each configuration.

`tests/draws/plans_brute.py` does so for random spaces of a million configurations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from symsim.inputs.models import load_model
from symsim.planning.frameworks import FRAMEWORKS
from tests.plan_brute import Question, brute, told, wrong_best, wrong_certificate

FEW: dict[str, Any] = {"cp": 1, "vpp": 1, "overlap_grad_reduce": True}
DENSE = Question(load_model("smollm2-360m"), "h100-sxm", 8, 64, 4096, "megatron", "cost", 1.0, 9, FEW, ("cross_entropy_fusion=unfused,te",))
LORA: dict[str, Any] = {"cp": 1, "vpp": 1, "tuner_type": "lora", "tp": 2, "micro_batch_size": 4, "recompute": "full"}
EXPERTS: dict[str, Any] = {**FEW, "tp": 1, "pp": 1}
TITAN = replace(DENSE, loaded=load_model("qwen3.5-0.8b"), world=8, batch=16, goal="tokens_per_second", framework="torchtitan", fixed={"tp": 1})
BIASES: dict[str, Any] = {**FEW, "pp": 1, "micro_batch_size": 1, "moe_token_dispatcher_type": "alltoall", "overlap_moe_expert_parallel_comm": False}


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    "asked",
    [
        DENSE,
        replace(DENSE, framework="deepspeed", goal="energy", fixed={}, allowed=()),
        replace(DENSE, loaded=load_model("olmoe-1b-7b"), world=4, batch=16, goal="memory", share=0.6, fixed=EXPERTS, allowed=()),
        # a last stage that holds fewer layers, and ends that count as layers, which cannot be given together
        replace(DENSE, fixed={"cp": 1, "vpp": 1, "tp": 1}, allowed=("num_layers_in_last_pipeline_stage=null,2,8",)),
        # weight gradients that wait
        replace(DENSE, goal="tokens_per_second", fixed=FEW | {"tp": 1}, share=0.25, allowed=("defer_embedding_wgrad_compute=true,false",)),
        # weights in few bits, which tensor ranks cannot share: a bound derives what a rule refuses
        replace(DENSE, loaded=load_model("llama3-8b"), goal="memory", fixed=LORA, allowed=("quantize_base=none,nf4",)),
        # a step that waits for its longest rows
        replace(DENSE, goal="tokens_per_second", fixed={"vpp": 1, "tp": 1, "document_lengths": "lognormal:500+0.5"}, allowed=()),
        # what a framework does not start with: a head that is the embedding, heads of keys, whole sequences, few micro-batches
        replace(DENSE, framework="torchtitan", goal="energy", fixed={}, allowed=()),
        replace(TITAN, allowed=("schedule=1f1b,gpipe",)),
        replace(DENSE, loaded=load_model("gpt-oss-20b"), world=4, batch=8, goal="memory", fixed=BIASES, allowed=()),
        # nothing fits
        replace(DENSE, goal="tokens_per_second", share=0.06),
    ],
    ids=["dense", "deepspeed", "experts", "last stage", "waiting", "quantized", "longest rows", "tied head", "qwen3_5", "biases", "nothing fits"],
)
def test_a_plan_says_of_each_configuration_what_it_is(asked: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    # a framework of tensor ranks that says of no value that it lacks it
    monkeypatch.setitem(FRAMEWORKS, "megatron", replace(FRAMEWORKS["megatron"], known={}))
    of = brute(asked)
    found, search = told(asked)
    assert not wrong_best(found, asked.top, of) and not wrong_certificate(found, search, of)
    assert of.configurations == found.certificate.configurations > 30


def test_what_differs_is_said() -> None:
    """A bound that is too high excludes what it should not; a configuration that is better than the best is seen."""
    asked = replace(DENSE, top=1)
    of = brute(asked)
    found, search = told(asked)
    higher = [(what, rows, points, low * 1.5 if what == "slower" else low) for what, rows, points, low in search.told]
    search.told = higher
    assert any("above what one of them takes" in said for said in wrong_certificate(found, search, of))
    search.told = higher[1:]
    assert any("counted nowhere" in said for said in wrong_certificate(found, search, of))
    value = of.value.copy()
    value[tuple(k[0] for k in of.fits.nonzero())] = 1.0
    assert any(said.startswith("best 1") for said in wrong_best(found, asked.top, replace(of, value=value)))
