"""Files of --yaml-cfg (NVIDIA/Megatron-LM at d98e8a64, training/yaml_arguments.py; its examples/gpt3/gpt_config.yaml until 2025): fields of
TransformerConfig under language_model, those of ModelParallelConfig under model_parallel, and beside them arguments, which stand instead of
the command line's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symsim.importers.keys import Silent, silent
from symsim.inputs.reading import Document

_SECTIONS = ("language_model", "model_parallel")
_OF_ACTIVATION = "activation_func decides"
TABLE: dict[str, Silent] = {
    **silent("no_cost_effect", _OF_ACTIVATION, "swiglu squared_relu openai_gelu quick_geglu"),
    **silent("no_cost_effect", "bias_swiglu_fusion decides for swiglu", "language_model.bias_activation_fusion"),
    **silent("no_cost_effect", "true whatever it says", "model_parallel.deallocate_pipeline_outputs"),
    **silent("no_cost_effect", "num_layers_per_virtual_pipeline_stage decides", "model_parallel.virtual_pipeline_model_parallel_size"),
}


def is_configured(data: Mapping[str, Any]) -> bool:
    """A file of --yaml-cfg."""
    return all(isinstance(data.get(section), dict) for section in _SECTIONS)


def of_configured(document: Document) -> Iterator[tuple[str, str, Any, Any, str]]:
    """(argument, key as written, value, value as given, line) of every key; no argument where another key decides."""
    gated = document.data["language_model"].get("activation_func") == "swiglu"
    for key, value in document.data.items():
        inner = value.items() if key in _SECTIONS else ((None, value),)
        for name, one in inner:
            written = key if name is None else f"{key}.{name}"
            settled = written in TABLE and (gated or not written.endswith("bias_activation_fusion"))
            place = document.place((key,) if name is None else (key, name))
            yield "" if settled else str(name or key), written, one, one, place
