"""What torchtitan calls a model: its folder and the flavor there, and which of them files of a version may name."""

from __future__ import annotations

from functools import cache

from symsim.errors import InputError
from symsim.importers.torchtitan.tables import FLAVORS
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model

# of those with layers, the folders and flavors of the last version with TOML files (the parent of 9810191bb), and the folders since (b5bcd76c6)
_OLDER = {
    "deepseek_v3": ("16B", "236B", "671B"),
    "gpt_oss": ("20b", "120b"),
    "llama3": ("8B", "70B", "405B"),
    "llama4": ("17bx16e", "17bx128e"),
    "qwen3": ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B"),
}
_NEWER = ("deepseek_v3", "gpt_oss", "kimi_k2_7", "llama3", "qwen3", "qwen3_5")
_FLAVORS = {shipped: (name, flavor) for name, known in FLAVORS.items() for flavor, shipped in known.items()}


def flavor_of(architecture: Architecture, suffix: str) -> tuple[str, str]:
    """torchtitan's name and flavor of a model. InputError where it has none, and where the version that reads files of a suffix has not."""
    a, (name, flavor) = architecture, ("", "")
    if (own := _FLAVORS.get(a.name)) is not None and _shaped(a.name) == _shape(a):
        name, flavor = own
    else:
        name, flavor = _by_shape(_shape(a))
    if not name:
        raise InputError(f"torchtitan trains models by name and flavor, and {a.name} has the shape of no flavor of {', '.join(sorted(FLAVORS))}")
    there = [ending for ending, has in ((".toml", flavor in _OLDER.get(name, ())), (".py", name in _NEWER)) if has]
    if suffix not in there:
        version = "the last torchtitan with TOML files" if suffix == ".toml" else "torchtitan since 2026-02"
        instead = f"write a file that ends in {there[0]}" if there else f"it trains {', '.join(_OLDER if suffix == '.toml' else _NEWER)}"
        raise InputError(f"{version} has no {name} {flavor}, as {a.name} is called there: {instead}")
    return name, flavor


def called(architecture: Architecture) -> tuple[str, str]:
    """torchtitan's name and flavor of a model, by its name here or else by its shape; two empty ones where it has none."""
    return _FLAVORS.get(architecture.name) or _by_shape(_shape(architecture))


def _shape(architecture: Architecture) -> str:
    """Two of the same shape have the same text."""
    from symsim.exporters.export import plain_model

    return repr(plain_model(architecture))


@cache
def _shaped(shipped: str) -> str:
    return _shape(load_model(shipped).architecture)


@cache
def _by_shape(shape: str) -> tuple[str, str]:
    return next((found for shipped, found in _FLAVORS.items() if _shaped(shipped) == shape), ("", ""))
