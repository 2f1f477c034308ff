"""Experts' parameters, for which peft takes names of modules that there were before experts' weights were joined
(utils/transformers_weight_conversion.py of peft 0.21.2, with transformers 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from symsim.errors import nearest
from symsim.importers.called import WAYS
from symsim.importers.keys import Keys
from symsim.importers.parameters import matching
from symsim.importers.targets import EVERY, Maps, is_pattern, words
from symsim.inputs.architecture import Architecture
from symsim.inputs.tuning import named

# the parameter that has the name's place, and of which names it takes all
_ROUTER = {"gate": "gate.weight"}
_JOINED = "gate_up_proj"
_OF_MIXTRAL = {"w1": _JOINED, "w3": _JOINED, "w2": "down_proj"}
_OF_QWEN = {"gate_proj": _JOINED, "up_proj": _JOINED, "down_proj": "down_proj"}
_RENAMED: dict[str, Mapping[str, str]] = {
    **dict.fromkeys("mixtral minimax minimax_m2".split(), _ROUTER | _OF_MIXTRAL),
    **dict.fromkeys(
        """afmoe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe glm4_moe glm4_moe_lite glm_moe_dsa glm4v_moe longcat_flash solar_open mellum
        qwen3_moe qwen3_omni_moe qwen3_omni_moe_thinker qwen3_omni_moe_text qwen3_next hunyuan_v1_moe flex_olmo olmoe sarvam_mla exaone_moe
        cohere2_moe""".split(),
        _ROUTER | _OF_QWEN,
    ),
}


@dataclass(frozen=True)
class Renamed:
    """What is left of the names of modules, the parameters that others mean, and ranks by patterns of names."""

    modules: tuple[str, ...]
    parameters: tuple[str, ...]
    ranks: Mapping[str, int] = field(default_factory=dict)


def renamed(keys: Keys, key: str, but: str, rank: int, strategy: Mapping[str, Any], architecture: Architecture | None) -> Renamed | None:
    """What names of linear maps mean of a type of model whose experts' weights were joined; None where all of them mean modules. An expert's two
    first maps, which are one parameter, have twice the rank. but: the key of the modules that a pattern leaves out."""
    olds = _RENAMED.get(architecture.modelling or "", {}) if architecture is not None else {}
    if architecture is None or not olds or not keys.has(key):
        return None
    asked = _asked(keys, key, but, strategy, architecture, olds)
    old = {name: next((one for one in olds if name == one or name.endswith(f".{one}")), None) for name in asked}
    found = {one for one in old.values() if one is not None}
    if not found:
        return None
    joined = [one for one, new in olds.items() if new == _JOINED]
    absent = [one for one in joined if one not in found]
    if 0 < len(absent) < len(joined):
        keys.refuse(key, f"{' and '.join(joined)} of experts are one parameter, {_JOINED}, in transformers 5: name {absent[0]} too, or neither")
        found -= {*joined}
    ranks = {rf".*\.{_JOINED}": rank * len(joined)} if found.issuperset(joined) else {}
    return Renamed(tuple(name for name in asked if old[name] is None), tuple(sorted({olds[one] for one in found})), ranks)


def _asked(keys: Keys, key: str, but: str, strategy: Mapping[str, Any], architecture: Architecture, olds: Mapping[str, str]) -> list[str]:
    """The names of a list; of a pattern, and of all, the last words of the modules that they mean, in whatever layer."""
    value = keys.given[key].value
    everything = isinstance(value, str) and value in EVERY
    if not everything and not is_pattern(keys, key):
        return [word for text in keys.texts(key, [], to="target_modules") for word in words(text)]
    maps = Maps(architecture, strategy)
    linear, _ = maps.weights
    called = {name: weight for weight, _, names in weights_called(maps) for name in names}
    if everything:
        return sorted({*olds, *(_leaf(name) for name, weight in called.items() if weight in linear)})
    names = {name.removesuffix(".weight"): weight for name, weight in called.items()}
    found = matching(str(value), names) - _excluded(keys, but, names)
    before = {f"{name.rpartition('.')[0]}.{old}": old for name in names for old, new in olds.items() if name.endswith(f".{new}")}
    modules = {_leaf(name) for name in found if names[name] in linear or _leaf(name) in olds}
    return sorted(modules | {before[name] for name in matching(str(value), before) - _excluded(keys, but, before)})


def _excluded(keys: Keys, key: str, names: Iterable[str]) -> set[str]:
    """The names that a pattern matches whole, or that end as one of a list."""
    if is_pattern(keys, key):
        return matching(str(keys.given[key].value), names)
    ends = keys.texts(key, []) or []
    return {name for name in names if any(f".{name}".endswith(f".{end}") for end in ends)}


def none_found(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """No module is called as the key says, with which peft stops (tuners/tuners_utils.py inject_adapter)."""
    maps, value = Maps(architecture, strategy), keys.given[key].value
    known = sorted({_leaf(name) for weight, _, names in weights_called(maps) if weight in maps.weights[0] for name in names})
    first = value if isinstance(value, str) else str(next(iter(value), ""))
    keys.refuse(key, f"no linear module of the model is called so: {nearest(first, known)}")
    strategy["target_modules"] = [EVERY[-1]]


def refused_of_parameters(keys: Keys, key: str, strategy: Mapping[str, Any], architecture: Architecture | None) -> None:
    """What adapters of parameters do not have (peft tuners/lora/layer.py ParamWrapper): key asks for it."""
    if architecture is None or not keys.has(key) or not strategy.get("target_modules"):
        return
    others = Maps(architecture, strategy).of_others
    found = next((text for text in strategy["target_modules"] if named(text).name in others), None)
    if found is not None:
        keys.refuse(key, f"adapters of parameters have it not, and {found} is one; leave it out, or these")


def weights_called(maps: Maps) -> list[tuple[str, int | None, set[str]]]:
    """Weights with their layers and the names that transformers has for the modules of linear ones, and for the others themselves."""
    found = []
    linear, others = maps.weights
    for same in zip(*maps.names[:WAYS]):
        called = [name for parameter in same for name in parameter.called]
        alone = [name for name in called if not name.endswith(".weight")] or called
        if same[0].own in linear:
            found.append((same[0].own, same[0].at, {name.removesuffix(".weight") for name in called}))
        elif same[0].own in others:
            found.append((same[0].own, same[0].at, {*alone}))
    return found


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
