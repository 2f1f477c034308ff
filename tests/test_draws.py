"""A short, fixed part of the random draws (tests/draws); the whole is run by hand."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest
from draws import hf_defaults, huggingface

from symsim.inputs.hf import SUPPORTED, read_config

MISSING = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
needs_transformers = pytest.mark.skipif(bool(MISSING), reason=f"counts by transformers on the meta device: {', '.join(MISSING)} not installed")


def test_every_accepted_type_is_drawn() -> None:
    assert set(SUPPORTED) <= set(huggingface.TYPES)


@needs_transformers
def test_one_config_of_sixty_types_is_counted_as_transformers_does() -> None:
    types = tuple(random.Random(20260).sample(huggingface.TYPES, 60))
    found = list(huggingface.outcomes(len(types), seed=20260, flops_every=1, types=types))
    told = huggingface.table(found)
    assert not [one for one in found if one.fate == "different"], told
    assert sum(one.fate == "equal" for one in found) >= len(found) * 0.8, told
    assert sum(one.flops == "equal" for one in found) >= len(found) * 0.4, told
    assert all(one.note.startswith("config.json: ") and "\n" not in one.note for one in found if one.fate == "refused")


@needs_transformers
def test_the_defaults_that_are_kept_are_those_of_transformers() -> None:
    assert hf_defaults.written(hf_defaults.facts()) == hf_defaults.PATH.read_text(encoding="utf-8"), "python tests/draws/hf_defaults.py"


@needs_transformers
def test_a_wrong_count_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 64,
    }
    model = huggingface.build(config)
    assert huggingface.compare(config, model, flops=True).fate == "equal"

    def biased(*given: Any) -> Any:
        architecture, rows = read_config(*given)
        return architecture.model_copy(update={"attention": architecture.attention.model_copy(update={"out_bias": True})}), rows

    monkeypatch.setattr(huggingface, "read_config", biased)
    assert "'attention': (8256, 8192)" in huggingface.compare(config, model).note
    monkeypatch.undo()
    monkeypatch.setattr(huggingface, "own_flops", lambda result: int(result.value("F")) + 1)
    assert huggingface.compare(config, model, flops=True).fate == "different"
