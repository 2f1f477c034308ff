"""Parameters as modelling code calls them (`python tests/draws/names.py` holds 2,640 drawn cases against transformers)."""

from __future__ import annotations

import pytest

from symsim.importers.called import parameters
from symsim.importers.parameters import ended_modules, ended_parameters, of_beginnings, of_modules, of_patterns, whole_modules
from symsim.inputs.models import load_model


@pytest.mark.parametrize(
    ("model", "pattern", "entries"),
    [
        ("gpt-oss-20b", r"\.mlp\.router\.", ["router"]),
        ("gpt-oss-20b", r"\.mlp\.gate\.", []),
        ("granite-4.0-h-small", "shared_mlp", ["shared_experts"]),
        ("lfm2-1.2b", r"\.conv\.", ["conv1d", "in_proj_gate", "in_proj_out_gate", "in_proj_value", "out_proj"]),
        ("lfm2-1.2b", r"feed_forward\.w2", ["down_proj"]),
        ("kimi-linear-48b-a3b", r"\.self_attn\.", ["attention"]),
        ("jamba-v0.1", r"feed_forward\.router", ["router"]),
        ("qwen3-30b-a3b", r"experts\.gate_up_proj", ["gate_proj", "up_proj"]),
        ("phi-4", r"mlp\.gate_up_proj", ["gate_proj", "up_proj"]),
        ("starcoder2-15b", r"mlp\.c_proj", ["down_proj"]),
        ("llama3-8b", r"model\.language_model\.layers\.3\.", ["layers.3-3"]),
    ],
)
def test_names_of_families(model: str, pattern: str, entries: list[str]) -> None:
    found, lost = of_patterns([pattern], load_model(model).architecture)
    assert sorted(found) == entries and lost == ([] if entries else [pattern])


def test_beginnings_modules_and_whole_names() -> None:
    model = load_model("llama3-8b").architecture
    assert of_beginnings(["model.layers.1", "norm"], model) == (["layers.1-1", "layers.10-19"], ["norm"])
    assert of_patterns(["^norm", "layers"], model, at_start=True) == ([], ["^norm", "layers"])
    assert of_modules(["norm", "embed_tokens"], model)[0] == ["norm", "embedding"]
    weights = {"attention.q_proj.weight", "mlp.up_proj.weight"}
    every = parameters(model)
    assert whole_modules(r"model\.layers\.[12]\..*_proj", weights, every) == {name: {1, 2} for name in sorted(weights)}
    assert whole_modules(r"layers\.[12]\..*_proj", weights, every) == {}
    assert ended_modules("layers.2.self_attn.q_proj", weights, every) == {"attention.q_proj.weight": {2}}
    assert ended_modules("2.mlp.up_proj", weights, every) == ended_parameters("2.mlp.up_proj.weight", weights, every) == {"mlp.up_proj.weight": {2}}
    assert ended_modules("_proj", weights, every) == {}
