"""The strategies that come with symsim read, fit the model they were published for, and span the published ranks."""

from __future__ import annotations

import pytest

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.shipped import list_strategies
from symsim.inputs.strategies import load_strategy

PUBLISHED = {
    "deepseek-v3-2048": ("deepseek-v3", 2048, 15360 // 128),
    "llama3-405b-16k": ("llama3.1-405b", 16384, 16),
    "llama3-405b-long": ("llama3.1-405b", 16384, 16),
    "korthikanti-175b": ("gpt3-175b", 64, 64),
    "korthikanti-1t": ("megatron-1t", 512, 512),
}


def test_all_are_published() -> None:
    assert set(list_strategies()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_strategy(name: str) -> None:
    model, ranks, microbatches = PUBLISHED[name]
    strategy = load_strategy(name)
    assert (strategy.world_size, strategy.microbatches) == (ranks, microbatches)
    result = derive(load_model(model).architecture, strategy)
    assert sum(result.stage_values(s)[f"L_{k}_i"] for s in result.stages for k in result.model.kind_names()) == result.model.num_layers


def test_null_is_an_option_that_is_not_given() -> None:
    """As an axis has it beside values: `recompute_operations=mlp,null`; an option that always has a value takes none."""
    base = {"pp": 2, "num_layers_in_last_pipeline_stage": 12}
    assert load_strategy(base, {"num_layers_in_last_pipeline_stage": "null"}) == load_strategy("pp=2,num_layers_in_last_pipeline_stage=null")
    assert load_strategy("recompute=selective,recompute_operations=null").recompute_operations is None
    with pytest.raises(InputError, match='micro_batch_size is "null"; it should be a whole number'):
        load_strategy("micro_batch_size=null")
