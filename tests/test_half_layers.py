"""Layers with a mixer or a feed-forward network alone: two of them are the layer that has both."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

import symsim
from symsim.inputs.models import format_model, model_of_mapping

EACH = ["gpt2-medium", "llama3-8b", "gemma-2-2b"]


def halves(name: str) -> symsim.Architecture:
    """The model with every layer as two: attention, then the feed-forward network."""
    whole = symsim.load_model(name)
    kinds = {
        f"{kind}{half}": {**spec.model_dump(), other: "none"}
        for kind, spec in whole.layer_kinds.items()
        for half, other in (("a", "ffn"), ("f", "mixer"))
    }
    layers = [{"repeat": s.repeat, "kinds": [f"{k}{half}" for k in s.kinds for half in "af"]} for s in whole.layers]
    return symsim.Architecture.model_validate({**whole.model_dump(), "layer_kinds": kinds, "layers": layers})


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("strategy", ["tp=1", "tp=2,sp=true,dp=2", "tp=2,fusion=eager"])
def test_two_halves_are_a_layer(name: str, strategy: str) -> None:
    if name == "gpt2-medium":
        strategy += ",placement=embedding.V=none+lm_head.V=none+loss.V=none" if "tp=2" in strategy else ""
    whole, half = (symsim.derive(model, f"{strategy},num_microbatches=2", system="a100-sxm-80") for model in (name, halves(name)))
    assert half.model.num_layers == 2 * whole.model.num_layers
    for quantity in ("params.total", "flops.forward", "flops.backward", "time.step"):
        assert float(half.value(quantity)) == pytest.approx(float(whole.value(quantity)), rel=1e-9), quantity
    own = [dict(r.stage_numbers(r.stages[0])) for r in (whole, half)]
    assert own[0]["A_stage"] == own[1]["A_stage"] and own[0]["P_stage"] == own[1]["P_stage"]
    sent = [sum(m["send_bytes"] * m["count"] for m in r.to_json()["messages"]) for r in (whole, half)]
    assert sent[0] == sent[1]


def test_a_stage_may_end_inside_a_layer() -> None:
    """Of three stages over two layers the middle one has a feed-forward network and an attention."""
    data = {**halves("llama3-8b").model_dump(), "layers": "2 * (densea + densef)"}
    result = symsim.derive(symsim.Architecture.model_validate(data), "pp=3,num_microbatches=3,pipeline_model_parallel_layout=Et|tt|tL")
    own = [result.stage_values(stage) for stage in result.stages]
    kinds = result.lowered.profile.model.kind_names()
    assert [[values[f"L_{kind}_i"] for kind in kinds] for values in own] == [[1, 0], [1, 1], [0, 1]]


def test_a_model_file_of_halves_reads_back(tmp_path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(format_model(halves("llama3-8b")))
    assert symsim.load_model(str(path)) == halves("llama3-8b")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_kinds": {"dense": {"mixer": "none", "ffn": "none"}}}, "neither a mixer nor a feed-forward network"),
        ({"layer_kinds": {"dense": {"ffn": "none"}}, "parallel_block": True}, "does not go with parallel_block"),
        ({"layer_kinds": {"dense": {"ffn": "none"}}, "mtp_num_layers": 1}, "does not go with mtp_num_layers"),
    ],
)
def test_what_is_no_layer_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises((ValidationError, symsim.InputError), match=said):
        model_of_mapping({**symsim.load_model("llama3-8b").model_dump(exclude_defaults=True), **changes})
