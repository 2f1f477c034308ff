"""Apertus 1.5 and Molmo 2, whose tables of words have rows that their heads have not: as transformers 5.24 has them on the meta device, and keeps."""

from __future__ import annotations

from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
APERTUS = SMALL | {"model_type": "apertus1p5_text", "vocab_size": 128, "output_vocab_size": 100, "pad_token_id": 0}
MOLMO = SMALL | {
    "model_type": "molmo2_text",
    "vocab_size": 100,
    "additional_vocab_size": 28,
    "head_dim": 16,
    "qk_norm_type": "olmo",
    "norm_after": True,
}


def _derived(config: dict[str, Any], **options: Any) -> Result:
    return derive(read_config(config, "small", "config.json")[0], Strategy(**options), {"attention_kernel": "eager"})


@pytest.mark.parametrize(("config", "parameters", "kept"), [(APERTUS, 64132, 417796), (MOLMO, 76544, 388608)])
def test_parameters_and_kept_bytes_are_those_of_transformers(config: dict[str, Any], parameters: int, kept: int) -> None:
    result = _derived(config, fusion="eager", micro_batch_size=2, seq_length=48)
    assert result.value("N") == parameters and result.value("N_embedding") == 128 * 64 and result.value("N_lm_head") == 100 * 64
    assert sum(int(item.bytes.evaluate(result.numbers)) for item in result.lowered.blocks["dense"].saved) == kept


def test_tensor_ranks_share_the_rows_of_both() -> None:
    assert _derived(APERTUS, tp=4).value("N") == _derived(APERTUS).value("N")
    with pytest.raises(InputError, match="tp=4 does not divide embedding_rows=126; valid: 1, 2, 3"):
        _derived(APERTUS | {"vocab_size": 126}, tp=4)


def test_a_tied_table_is_refused() -> None:
    with pytest.raises(InputError, match="embedding_rows goes with an output layer of its own"):
        _derived(APERTUS | {"tie_word_embeddings": True})
