"""Layers of a stage, in closed form and in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symsim.inputs.layer_pattern import compress, format_layers, parse_layers
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.pipeline.stages import kinds_between, layers_before, stage_layer_formula, stages

kinds = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=40)


@given(kinds)
def test_compression_is_lossless(layers: list[str]) -> None:
    segments = compress(layers)
    assert [k for s in segments for _ in range(s.repeat) for k in s.kinds] == layers
    assert [k for s in parse_layers(format_layers(segments)) for _ in range(s.repeat) for k in s.kinds] == layers


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "gemma-3-27b", "llama4-maverick", "gpt-oss-20b", "jamba-v0.1", "nemotron-h-8b", "kimi-linear-48b-a3b"]
)
def test_layers_before_counts(name: str) -> None:
    model = load_model(name).architecture
    listed = [k for s in model.layers for _ in range(s.repeat) for k in s.kinds]
    for position in range(len(listed) + 1):
        assert {k: int(n.constant()) for k, n in layers_before(model, position).items()} == {
            k: listed[:position].count(k) for k in model.kind_names()
        }


@pytest.mark.parametrize("name, pp", [*(("deepseek-v3", pp) for pp in (1, 4, 16, 61)), ("nemotron-h-8b", 7), ("gemma-3-27b", 5), ("jamba-v0.1", 6)])
def test_closed_form_is_what_stages_hold(name: str, pp: int) -> None:
    model = load_model(name).architecture
    strategy = Strategy(pp=pp)
    formula = stage_layer_formula(model, strategy)
    assert formula is not None
    for stage in stages(model, strategy, 0):
        held = {k: sum(kinds_between(model, c.first, c.last)[k] for c in stage.chunks) for k in model.kind_names()}
        assert {k: f.evaluate({"i": stage.index, "L": model.num_layers, "pp": pp}) for k, f in formula.items()} == held


def test_a_rank_of_a_v_holds_a_chunk_from_each_end() -> None:
    """Controllable Memory (arXiv 2405.15362): rank i has chunks i and 2 p - 1 - i."""
    held = stages(load_model("llama3-8b").architecture, Strategy(pp=4, vpp=2, num_microbatches=8, schedule="zbv"), 0)
    assert [[(c.first, c.last) for c in s.chunks] for s in held] == [[(4 * i, 4 * i + 4), (28 - 4 * i, 32 - 4 * i)] for i in range(4)]
    assert [(s.embedding, s.loss) for s in held] == [(True, True)] + [(False, False)] * 3
