"""DiffLlama: parameters as transformers 5.24 has them on the meta device, shares of ranks, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from mixer_cases import DIFFLLAMA

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy


def _derived(config: dict[str, Any], **options: Any) -> Result:
    return derive(read_config(config, "small", "config.json")[0], Strategy(**options))


def _kept(result: Result, tensor: str) -> int:
    return next(int(item.bytes.evaluate(result.numbers)) for item in result.lowered.blocks["dense"].saved if item.tensor.name.startswith(tensor))


def test_parameters_are_those_of_transformers() -> None:
    assert int(_derived(DIFFLLAMA).value("N")) == 74688


def test_a_rank_has_pairs_of_heads() -> None:
    wide = DIFFLLAMA | {"num_key_value_heads": 4}
    size = {"micro_batch_size": 2, "seq_length": 64}
    whole, half = (_derived(wide, **size, tp=tp) for tp in (1, 2))
    assert _kept(whole, "attention.joined") == 2 * _kept(half, "attention.joined") == 2 * 64 * 64 * 2 * 2  # both halves of the heads, in bf16
    assert _kept(whole, "attention.less") == 2 * _kept(half, "attention.less") == 2 * 64 * 64 * 2
    with pytest.raises(InputError, match="tp=4 does not divide half of num_query_groups=2; valid: 1, 2"):
        _derived(wide, tp=4)


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"num_key_value_heads": 1}, "differential halves the heads of values, of which there are 1"),
        ({"attention_dropout": 0.1}, "what a dropout of two maps that are subtracted drops is not defined"),
    ],
)
def test_others_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        _derived(DIFFLLAMA | keys)
