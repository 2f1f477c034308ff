"""Types of parameters, products and gradients of torchtitan, and what mixes them."""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Keys

_TYPES = {"bfloat16": "bf16", "float32": "fp32"}


def precision(keys: Keys, strategy: dict[str, Any]) -> None:
    """The types that a file asks for."""
    kept = keys.choice("training.dtype", _TYPES, "fp32", to="main_params_dtype")
    computed = keys.choice("training.mixed_precision_param", _TYPES, "bf16", to="precision")
    reduced = keys.choice("training.mixed_precision_reduce", {"float32": "fp32", "bfloat16": "bf16"}, "fp32", to="grad_reduce_in_fp32")
    strategy["precision"] = "bf16" if kept == "bf16" else computed
    strategy["grad_reduce_in_fp32"] = reduced == "fp32"
    if kept == "bf16":
        strategy |= {"main_params_dtype": "bf16"}
    if "training.mixed_precision_param" not in keys.given:
        keys.note("training.mixed_precision_param", "derived", "precision", "bf16 by default; weights are fp32 and cast as they are gathered")


def unsharded(keys: Keys, strategy: dict[str, Any]) -> None:
    """The type of products where nothing shards: autocast's, and of ranks that are cut otherwise that of parameters (distributed/utils.py
    maybe_enable_amp)."""
    key = "training.mixed_precision_param"
    if strategy["zero"] or strategy["precision"] == "fp32" or strategy.get("main_params_dtype") == "bf16":
        return
    if strategy.get("fp8", "none") != "none":
        keys.note(key, "not_modelled", "precision", "8-bit products of parameters in fp32: they are in bf16 beside fp32 here, 2 bytes of each more")
    elif strategy["tp"] * strategy["pp"] > 1:
        strategy["precision"] = "fp32"
        keys.note(key, "derived", "precision", "fp32: without FSDP types are mixed on ranks alone that have no tensor or pipeline parallelism")
    elif strategy["fusion"] == "eager":
        strategy["autocast"] = True
        keys.note(key, "derived", "precision, autocast", "PyTorch's autocast, since no FSDP casts parameters")
    else:
        keys.note(key, "not_modelled", "precision", "compiled layers under autocast: parameters are in bf16 beside fp32 here, 2 bytes of each more")
