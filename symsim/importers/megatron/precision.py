"""The types of parameters and gradients, and the recipe of narrow products, as Megatron-LM's arguments and Megatron-Bridge's recipes say."""

from __future__ import annotations

from typing import NamedTuple

from symsim.importers.keys import Keys
from symsim.importers.megatron.settings import Settings
from symsim.importers.megatron.update import DTYPES


class Mixed(NamedTuple):
    """A recipe of mixed precision: which products are narrow, the first and last layers that are not, and whether weights are gathered so."""

    fp8: str
    first: int = 0
    last: int = 0
    gathers: bool = True


# what a name of mixed_precision has in it, the longer ones first (Megatron-Bridge at 067f987, training/mixed_precision.py)
_MIXED = {
    "nemotron_3_super_bf16_with_nvfp4": Mixed("nvfp4", 0, 14),
    "nemotron_h_bf16_with_fp8_current_scaling": Mixed("tensorwise", 2, 2),
    "nanov2_bf16_with_fp8_current_scaling": Mixed("blockwise", 2, 2),
    "nvfp4": Mixed("nvfp4"),
    "mxfp8": Mixed("mxfp8"),
    "current_scaling": Mixed("tensorwise", 1, 1),
    "subchannel": Mixed("blockwise", gathers=False),
    "delayed": Mixed("delayed"),
    "fp8": Mixed("tensorwise", 1, 1),
}
_ENDS = {"num_layers_at_start_in_bf16": "first", "num_layers_at_end_in_bf16": "last"}


def precision(read: Settings) -> None:
    """Types, the recipe, and what of it is left out, behind what says the optimizer."""
    keys, options = read.keys, read.options
    wide = keys.choice("params_dtype", DTYPES, None, to="precision")
    half = {name: keys.flag(name, False, to="precision") for name in ("bf16", "fp16")}
    if all(half.values()):
        raise keys.wrong("fp16", "given without bf16")
    named = keys.text("mixed_precision", None, to="precision")
    name = next((name for name, given in half.items() if given), None) or (wide if wide in ("bf16", "fp16") else None)
    mixed = None
    if named is not None:
        name, mixed = _mixed(read, named.replace("-", "_"))
    elif name is None and read.dialect == "recipe":
        name = "bf16"
        keys.note("mixed_precision", "derived", "precision", "bf16_mixed")
    name = _autocast(keys, name)
    if name is None:
        name = "fp32"
        keys.note("bf16", "derived", "precision", "fp32: neither bf16 nor fp16 is given")
    options["precision"] = name
    _reduction(read, name)
    _recipe(read)
    _left_out(read, mixed)


def _reduction(read: Settings, name: str) -> None:
    keys, options = read.keys, read.options
    narrow = keys.flag("grad_reduce_in_bf16", False, to="grad_reduce_in_fp32", why="the opposite")
    full = keys.flag("accumulate_allreduce_grads_in_fp32", None, to="grad_reduce_in_fp32")
    short = read.dialect == "arguments" and keys.choice("main_grads_dtype", DTYPES, None, to="main_grads_dtype") == "bf16"
    if full is False and read.dialect == "arguments":
        # training/arguments.py validate_args, yaml_arguments.py: bf16 switches it on by itself where the update reads gradients in fp32
        full = None
        if name == "bf16" and not (narrow or short):
            keys.note("accumulate_allreduce_grads_in_fp32", "no_cost_effect", why="bf16 switches it on by itself")
    if name != "fp32" and (narrow or full is False or (full is None and (short or name == "fp16"))):
        options["grad_reduce_in_fp32"] = False
        if not narrow and full is None and not keys.has("accumulate_allreduce_grads_in_fp32"):
            why = "false: main_grads_dtype=bf16 leaves it off" if short else "false: only bf16 switches it on by itself"
            keys.note("accumulate_allreduce_grads_in_fp32", "derived", "grad_reduce_in_fp32", why)


def _recipe(read: Settings) -> None:
    keys, options = read.keys, read.options
    if keys.has("fp8_format"):
        recipe = keys.choice("fp8_recipe", {n: n for n in ("tensorwise", "delayed", "mxfp8", "blockwise", "custom")}, None, to="fp8")
        keys.choice("fp8_format", {"e4m3": "e4m3", "hybrid": "hybrid"}, to="fp8")
        if recipe == "custom":
            keys.refuse("fp8_recipe", "a recipe in Python is not read; give delayed, tensorwise, blockwise or mxfp8")
        if recipe in (None, "custom"):
            read.derived("fp8_recipe", "fp8", "delayed", "delayed: Megatron-LM's recipe where none is given")
        else:
            options["fp8"] = recipe
    elif keys.has("fp8_recipe"):
        keys.note("fp8_recipe", "no_cost_effect", why="read with fp8_format only")
    if keys.has("fp4_format"):
        options["fp8"] = keys.choice("fp4_format", {"e2m1": "nvfp4"}, None, to="fp8")


def _left_out(read: Settings, mixed: Mixed | None) -> None:
    """Layers that are left in 16 bits: none unless first_last_layers_bf16 is set, then one at either end unless they are counted."""
    keys, options = read.keys, read.options
    counts = {key: keys.integer(key, None, to=key) for key in _ENDS}
    on = keys.flag("first_last_layers_bf16", None, to="num_layers_at_start_in_bf16")
    can = options.get("fp8", "none") not in ("none", "delayed")
    if on is None:
        on = mixed is not None and bool(mixed.first or mixed.last)
    for key, end in _ENDS.items():
        count = counts[key]
        if on and can:
            given = count is not None
            options[key] = count if given else 1 if mixed is None else getattr(mixed, end)
            if not given:
                keys.note(key, "derived", key, f"{options[key]}: " + ("the default" if mixed is None else "as mixed_precision says"))
        elif count is not None:
            keys.note(key, "no_cost_effect", why="read with first_last_layers_bf16 only" if can else _NEEDS)
    if keys.has("first_last_layers_bf16") and on and not can:
        keys.note("first_last_layers_bf16", "no_cost_effect", why=_NEEDS)


_NEEDS = "read with a recipe that leaves layers out: not with delayed scaling"


def weights(read: Settings) -> None:
    """Weights that are kept in FP8 or FP4 alone, and what of attention is narrow, behind what says the recipe and the optimizer."""
    keys, options = read.keys, read.options
    narrow, sharded = options.get("fp8", "none"), options.get("zero", 1) in (1, 2, 3)
    for key, recipes in (("fp8_param_gather", "an FP8 recipe"), ("fp4_param_gather", "an FP4 recipe")):
        if not keys.flag(key, False, to="fp8_param_gather"):
            continue
        if narrow != "none" and (narrow == "nvfp4") == (key == "fp4_param_gather") and sharded:
            options["fp8_param_gather"] = True
        else:
            keys.note(key, "no_cost_effect", why=f"read with {recipes} and the distributed optimizer")
    if keys.flag("fp8_output_proj", False, to="fp8_output_proj"):
        if narrow == "mxfp8":
            options["fp8_output_proj"] = True
        else:
            keys.note("fp8_output_proj", "no_cost_effect", why="read with fp8=mxfp8")
    for name, needed in (("fp8_dot_product_attention", "fp8"), ("fp8_multi_head_attention", "fp8_dot_product_attention")):
        if keys.flag(name, False, to=name):
            if options.get(needed, "none") not in ("none", "blockwise"):
                options[name] = True
            else:
                keys.note(name, "no_cost_effect", why=f"read with {needed}, of a recipe that has it")


def _autocast(keys: Keys, name: str | None) -> str | None:
    """The type of products: where weights are fp32, that of autocast."""
    types = {spelt: known for spelt, known in DTYPES.items() if known != "fp8"}
    on, kind = keys.flag("enable_autocast", False), keys.choice("autocast_dtype", types, None)
    if on and name in (None, "fp32"):
        why = "products in this type; weights of 4 bytes are 2 and a copy of 4 here, which a distributed optimizer cuts and autocast does not; "
        why += "casts are not timed: 6 bytes of HBM a parameter and micro-batch"
        keys.note("enable_autocast", "derived", "precision", why)
        if kind is not None:
            keys.note("autocast_dtype", "derived", "precision")
        return kind or "bf16"
    for key in ("enable_autocast", "autocast_dtype"):
        if keys.has(key):
            keys.note(key, "no_cost_effect", why="weights have the type of the products" if on else "off at this value")
    return name


def _mixed(read: Settings, named: str) -> tuple[str, Mixed | None]:
    """The type of a recipe's mixed precision, and its narrow part: bf16_with_fp8_current_scaling_mixed."""
    name = "fp16" if "fp16" in named else "bf16"
    if "bf16" not in named and "fp16" not in named:
        raise read.keys.wrong("mixed_precision", "one of bf16_mixed, fp16_mixed, bf16_with_fp8_current_scaling_mixed, bf16_with_mxfp8_mixed")
    mixed = next((mixed for part, mixed in _MIXED.items() if part in named), None)
    if mixed is not None:
        read.options["fp8"] = mixed.fp8
        said = {"fp8": mixed.fp8}
        for gather in ("fp8_param_gather", "fp4_param_gather"):
            if mixed.gathers and not read.keys.has(gather) and (mixed.fp8 == "nvfp4") == (gather == "fp4_param_gather"):
                if read.options.get("zero", 1) in (1, 2, 3):
                    read.options["fp8_param_gather"] = True
                    said["fp8_param_gather"] = "true"
        read.keys.note("mixed_precision", to="precision", why=", ".join((name, *(f"{option}={value}" for option, value in said.items()))))
    return name, mixed
