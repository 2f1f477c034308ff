"""Transformers' default of every key that a family's config class declares, as symsim/inputs/hf/defaults.json.

    python tests/draws/hf_defaults.py           writes the file
    python tests/draws/hf_defaults.py --list    every model_type of transformers that makes text, and whether symsim reads it

Needs transformers. Keys without effect on any cost and tables are left out.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from symsim.inputs.hf import SUPPORTED
from symsim.inputs.hf.config import NO_EFFECT
from symsim.inputs.hf.reader import supported

PATH = Path(__file__).parents[2] / "symsim" / "inputs" / "hf" / "defaults.json"
SAME_CLASS = {"kimi_k2"}  # not a model_type of transformers: the facts of another


def facts() -> dict[str, Any]:
    """model_type -> its defaults, and the common names of keys that it calls otherwise."""
    from transformers import CONFIG_MAPPING, PretrainedConfig

    without = ({f.name for f in fields(PretrainedConfig)} | NO_EFFECT.keys()) - {"tie_word_embeddings", "max_position_embeddings", "n_positions"}
    found = {}
    for name in sorted(set(SUPPORTED) - SAME_CLASS):
        made = CONFIG_MAPPING[name]
        defaults = {f.name: f.default for f in fields(made) if f.name not in without and f.default is not MISSING}
        plain = {key: value for key, value in defaults.items() if isinstance(value, bool | int | float | str | None)}
        nullable = [key for key, value in plain.items() if value is not None and takes_null(made, key)]
        found[name] = (
            {"defaults": plain} | ({"names": made.attribute_map} if made.attribute_map else {}) | ({"nullable": nullable} if nullable else {})
        )
    return found


def takes_null(made: Any, key: str) -> bool:
    """Whether its type has null; what it has to be beside other keys does not matter."""
    try:
        made(**{key: None})
    except Exception as error:
        return type(error).__name__ != "StrictDataclassFieldValidationError"
    return True


def written(found: dict[str, Any]) -> str:
    """One line a model_type."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()) + "\n}\n"


def types() -> dict[str, list[str]]:
    """transformers' model_types by what they are: causal language models, masked ones, and those with a text tower."""
    from transformers.models.auto import modeling_auto as auto

    wrapped = {**auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, **auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    causal = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    masked = set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES) - causal
    return {"causal": sorted(causal), "masked": sorted(masked), "multimodal": sorted(set(wrapped) - causal - masked)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    if not parser.parse_args().list:
        PATH.write_text(written(facts()), encoding="utf-8")
        return
    read = set(supported())
    for what, names in types().items():
        print(f"{what}: {sum(name in read for name in names)} of {len(names)} are read; not: {' '.join(name for name in names if name not in read)}")
    print(f"model_types that are read: {len(read)}")


if __name__ == "__main__":
    main()
