"""Which linear maps have adapters: by lists of names, by patterns of whole names, and in some layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from symsim.errors import cut
from symsim.importers.called import parameters
from symsim.importers.keys import Keys
from symsim.importers.parameters import Called, Places, all_layers, consecutive, ended_modules, ended_parameters, runs, whole_modules
from symsim.inputs.architecture import Architecture
from symsim.inputs.tuning import named

if TYPE_CHECKING:
    from symsim.ir.block import Block, Op

EVERY = ("all", "all-linear", "all_linear")
# one product here, which has one adapter, under the names of its parts and of modelling code that joins them
_JOINT = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "Wqkv", "c_attn", "linear_qkv"), "linear_qkv"),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "linear_fc1"), "linear_fc1"),
}
_PARTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
# modelling code with names of its own for the linear maps of a layer (gpt2, gpt_neox, opt, internlm and their like)
_OF_OTHERS: dict[str, tuple[str, ...]] = {
    "c_proj": ("o_proj", "down_proj"),
    **dict.fromkeys(("dense", "out_proj", "wo"), ("o_proj",)),
    **dict.fromkeys(("c_fc", "dense_h_to_4h", "fc1", "fc_in"), ("up_proj",)),
    **dict.fromkeys(("dense_4h_to_h", "fc2", "fc_out", "w2"), ("down_proj",)),
    "w1": ("gate_proj",),
    "w3": ("up_proj",),
    "wqkv": ("query_key_value",),
    # Megatron-Core's latent attention without a rank of queries
    "linear_q_proj": ("q_proj",),
}
# experts of modelling code, as adapters' libraries name their modules or parameters (peft target_parameters)
_EXPERTS = {
    **dict.fromkeys(("experts.gate_up_proj", "experts.up_proj", "experts.gate_proj", "experts.w1", "experts.w3"), "moe.experts.fc1"),
    **dict.fromkeys(("experts.down_proj", "experts.w2"), "moe.experts.fc2"),
}
_ALTERNATIVES = re.compile(r"\(([\w|]{1,200})\)(\w{0,40})")
_MOST_ENTRIES = 64
# a layer's number in a name, and what stands for any part of one (Automodel, Megatron-Bridge)
_NUMBER = re.compile(r"(?:^|\.)(\d{1,6})\.")
_WILD = "*"
_MARKS = frozenset("()[]*\\|^$")  # of patterns, which a list of names has not


def is_pattern(keys: Keys, key: str) -> bool:
    value = keys.given[key].value if keys.has(key) else None
    return isinstance(value, str) and not _MARKS.isdisjoint(value)


def without(lost: Iterable[str], found: Iterable[str]) -> str:
    """What a row says of names that mean no linear map, beside what is adapted."""
    why = "all linear maps have adapters in their place" if EVERY[-1] in found else "no adapters beside them"
    return f"no linear map here is called {', '.join(lost)}: {why}"


def targets(
    asked: Iterable[str], strategy: dict[str, Any], architecture: Architecture | None, of_parameters: bool = False, own_names: bool = False
) -> tuple[list[str], list[str]]:
    """The linear maps that names mean here, and the names that mean none; all where nothing is left. of_parameters: the names are parameters'.
    own_names: names mean modules that are called so, where it is known what the model's are called."""
    found, own, lost = list[str](), Places(), list[str]()
    maps = Maps(architecture, strategy, own_names)
    for text in asked:
        several = words(text)
        placed = [maps.called(word, of_parameters) for word in several]
        # parameters are called as transformers does
        named_so = of_parameters and architecture is not None and not maps.te
        loose = [() if places or named_so else maps.meant(word) for word, places in zip(several, placed)]
        if not any(loose) and not any(placed):
            lost.append(text)
        found += [name for names in loose for name in names]
        for places in placed:
            merge(own, places)
        if not _ALTERNATIVES.search(text) and (any(loose) or any(placed)):
            lost += [word for word, names, places in zip(several, loose, placed) if not names and not places]
    entries, everywhere = maps.entries(own)
    made = list(dict.fromkeys([*entries, *found]))
    # of too many ranges of layers to be told, all layers
    return (made if len(made) <= _MOST_ENTRIES else list(dict.fromkeys([*everywhere, *found]))) or ["all_linear"], lost


def merge(into: Places, more: Places) -> None:
    for weight, layers in more.items():
        into.setdefault(weight, set()).update(layers)


def as_one_product(strategy: Mapping[str, Any], architecture: Architecture) -> dict[str, list[str]]:
    """What entries of adapters are called where a framework with joint products, which is known after them, takes the place of one without: those of
    which a part is named. Left out are parts that have none, where the product has."""
    from symsim.ir.operations import LINEAR
    from symsim.lowering.adapt import is_joint, map_names
    from symsim.lowering.lower import declared_alone

    linear = [op for block in declared_alone(architecture).values() for op in block.ops if op.kind in LINEAR]
    several = [op for op in linear if len(map_names(op)) > 1 and is_joint(op, "te", architecture)]
    joint = {name: op.name for op in several for name in map_names(op).values() if name != op.name}
    joint |= {name: _JOINT[name] for name in _PARTS if any(name in map_names(op) for op in several)}
    found = {}
    for field in ("target_modules", "exclude_modules"):
        entries = list(map(named, strategy.get(field) or ()))
        if joint.keys().isdisjoint(one.name for one in entries):
            continue
        kept = [one._replace(name=joint.get(one.name, one.name)) for one in entries if field == "target_modules" or one.name not in joint]
        made = [one.name if one.first is None else f"layers.{one.first}-{one.last}.{one.name}" for one in kept]
        found[field] = list(dict.fromkeys(made))
    return found


class Maps:
    """The linear maps of a model as modelling code calls them, and what an entry of target_modules calls them."""

    def __init__(self, architecture: Architecture | None, strategy: Mapping[str, Any], own_names: bool = False):
        self.architecture, self.known = architecture, known_maps(architecture)
        self.fusion = str(strategy.get("fusion", "te"))
        self.te = self.fusion == "te"
        self.own_names = own_names and architecture is not None and not self.te

    @cached_property
    def weights(self) -> tuple[dict[str, str], dict[str, str]]:
        assert self.architecture is not None
        return _weights(self.architecture, self.fusion)

    @cached_property
    def names(self) -> Called:
        assert self.architecture is not None
        return parameters(self.architecture)

    @cached_property
    def of_others(self) -> frozenset[str]:
        assert self.architecture is not None
        return _names_of_others(self.architecture, self.fusion)

    @cached_property
    def last_words(self) -> frozenset[str]:
        """The last words of linear modules' names, here and in the modelling code: a name that ends so, and is none's, means nothing."""
        linear, _ = self.weights
        return frozenset(map(_leaf, linear)) | {_leaf(name) for p in self.names[0] if p.own in linear for name in p.called}

    def called(self, text: str, of_parameters: bool = False) -> Places:
        """The weights of linear modules of this name, by layers, where their names are the modelling code's, or tell layers apart."""
        if self.architecture is None or text in EVERY or (self.te and _WILD not in text and not _NUMBER.search(text)):
            return {}
        meant, others = self.weights
        if of_parameters:
            return ended_parameters(text, {**meant, **others}, self.names)
        if _WILD in text:
            return whole_modules(text.replace(".", r"\.").replace(_WILD, ".*"), meant, self.names)
        return ended_modules(text, meant, self.names)

    def entries(self, places: Places) -> tuple[list[str], list[str]]:
        """Entries that mean these weights in these layers, and their names alone."""
        if not places:
            return [], []
        meant, others = self.weights
        every = all_layers({**others, **meant}, self.names)
        apart = {_leaf(weight) for weight in every.keys() - places.keys()}
        held, whole = Places(), Places()
        for weight, layers in places.items():
            names = [{**others, **meant}[weight]] if weight in others or _leaf(weight) in apart else _meant(_leaf(weight), self.known, self.te)
            for name in names:
                merge(held, {name: layers})
                merge(whole, {name: every[weight]})
        return [e for name, at in held.items() for e in ([name] if at == whole[name] else in_layers([name], at))], list(held)

    def meant(self, text: str) -> tuple[str, ...]:
        """What a name means that is no module's of this modelling code: by its last part, in the layer whose number is in it."""
        number = _NUMBER.search(text)
        if self.own_names and (number is not None or _leaf(text) in self.last_words):
            return ()
        if number is None:
            found = _meant(text, self.known, self.te)
            return tuple(name for name in found if not self.own_names or name not in self.of_others)
        rest = text[number.end() :]
        inside = self.architecture is None or int(number[1]) < self.architecture.num_layers
        return tuple(in_layers(_meant(rest, self.known, self.te), [int(number[1])])) if inside and not _NUMBER.search(rest) else ()


def pattern_targets(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None, own_names: bool = False) -> None:
    """Adapters beside the linear maps whose whole names a pattern matches (peft tuners/tuners_utils.py check_target_module_exists). own_names: none
    where it matches no module of the model's modelling code."""
    text = str(keys.given[key].value)
    if architecture is None:
        strategy["target_modules"], lost = targets([text], strategy, architecture)
        why = "of an unknown model the names in the pattern"
        keys.note(key, "not_modelled" if lost else "mapped", "target_modules", f"no linear map here is called {', '.join(lost)}" if lost else why)
        return
    maps = Maps(architecture, strategy)
    weights, _ = maps.weights
    names, everywhere = maps.entries(whole_modules(text, weights, maps.names))
    if names or (own_names and runs(text)):
        _some_layers(keys, key, strategy, names, everywhere)
        return
    # of modelling code with names of its own (_OF_OTHERS)
    strategy["target_modules"], lost = (["all_linear"], [text]) if any(_leaf(w) in text for w in weights) else targets([text], strategy, architecture)
    why = f"no linear map here is called {cut(text)}: all have adapters in their place" if lost else "the names in the pattern, in all layers"
    keys.note(key, "not_modelled" if lost else "mapped", "target_modules", why)


def of_parameters(
    keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None, beside: bool, why: str = "", more: Iterable[str] = ()
) -> None:
    """Adapters of parameters, which experts' weights are in transformers 5 (peft target_parameters). beside: linear modules are named too. more:
    names that are told elsewhere."""
    asked = [*(keys.texts(key, None, to="target_modules", why=why) or ()), *more]
    if not asked:
        return
    found, lost = targets(asked, strategy, architecture, of_parameters=True)
    if lost:
        keys.note(key, "not_modelled", "target_modules", f"no adapters beside {', '.join(lost)}: no linear map here is called so")
    if len(lost) < len(asked):
        strategy["target_modules"] = list(dict.fromkeys([*(strategy["target_modules"] if beside else ()), *found]))


def some_layers(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Adapters in the layers of these numbers alone (peft layers_to_transform)."""
    value = keys.given[key].value if keys.has(key) else None
    if value is None or value == "":
        return
    layers = [one for one in (value if isinstance(value, (list, tuple)) else [value]) if type(one) is int and one >= 0]
    if not layers or (isinstance(value, (list, tuple)) and len(layers) < len(value)):
        raise keys.wrong(key, "a layer's number, or a list of them")
    if architecture is None:
        keys.note(key, "not_modelled", "target_modules", "of a known model alone: all layers have adapters here")
        return
    inside = [one for one in layers if one < architecture.num_layers]
    if not inside:
        keys.refuse(key, f"there are layers 0 to {architecture.num_layers - 1}, and so no adapters")
        return
    names = [text for text in strategy["target_modules"] if _cut_to([text], inside)]
    if not names:
        keys.refuse(key, f"none of them has a linear map of {', '.join(strategy['target_modules'])}, and so no adapters")
        return
    _some_layers(keys, key, strategy, _cut_to(names, inside) if len({*inside}) < architecture.num_layers else names, names)


def _some_layers(keys: Keys, key: str, strategy: dict[str, Any], names: list[str], everywhere: list[str]) -> None:
    strategy["target_modules"] = names if len(names) <= _MOST_ENTRIES else everywhere
    if len(names) > _MOST_ENTRIES:
        keys.note(key, "not_modelled", "target_modules", "adapters in some layers, of too many ranges to be told: all have them here")
    else:
        keys.note(key, to="target_modules")


def in_layers(names: Iterable[str], layers: Iterable[int | None]) -> list[str]:
    """Entries of target_modules."""
    runs = consecutive(sorted({one for one in layers if one is not None}))
    return [f"layers.{a}-{b}" + ("" if name == EVERY[-1] else f".{name}") for name in names for a, b in runs]


def _cut_to(entries: Iterable[str], layers: Iterable[int]) -> list[str]:
    """Entries of target_modules that mean the same in these layers alone."""
    made = list[str]()
    for one in map(named, entries):
        inside = [at for at in layers if one.first is None or one.first <= at <= (one.last or 0)]
        made += in_layers([EVERY[-1] if one.name == "layers" else one.name], inside)
    return made


def _leaf(weight: str) -> str:
    return weight.removesuffix(".weight").rsplit(".", 1)[-1]


def _linear(architecture: Architecture, fusion: str) -> Iterator[tuple["Block", "Op", bool]]:
    """The linear maps, and whether all_linear means them."""
    from symsim.frameworks.choices import FRAMEWORKS
    from symsim.inputs.strategy import Strategy
    from symsim.ir.operations import LINEAR
    from symsim.lowering.adapt import is_target
    from symsim.lowering.lower import declared_alone

    for block in declared_alone(architecture).values():
        for op in (op for op in block.ops if op.kind in LINEAR):
            yield block, op, is_target(op, Strategy(tuner_type="lora"), FRAMEWORKS[fusion], architecture, None)


def _weights(architecture: Architecture, fusion: str) -> tuple[dict[str, str], dict[str, str]]:
    """The weights of the linear maps that all_linear means, and what they are called as targets: their own names, or the one of the operation that
    they are in with others; the same of other linear maps."""
    from symsim.lowering.adapt import is_joint

    meant, others = dict[str, str](), dict[str, str]()
    for block, op, by_all in _linear(architecture, fusion):
        joint = is_joint(op, fusion, architecture)
        weights = (t.name for t in block.parameters() if t.name in op.inputs and t.role != "bias")
        own = {weight: op.name if joint else weight.removesuffix(".weight") for weight in weights}
        (meant if by_all else others).update(own)
    return meant, others


def _names_of_others(architecture: Architecture, fusion: str) -> frozenset[str]:
    """Names that mean none of the linear maps that all_linear means."""
    from symsim.lowering.adapt import map_names, module_names

    meant, others = set[str](), set[str]()
    for _, op, by_all in _linear(architecture, fusion):
        (meant if by_all else others).update((*map_names(op), *map_names(op).values(), *module_names(op)))
    return frozenset(others - meant)


def excluded(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None, own_names: bool = False) -> None:
    """Linear maps that patterns of names take out of those with adapters. own_names: of the model's modelling code alone."""
    asked = keys.texts(key, [], to="exclude_modules")
    if not asked:
        return
    if architecture is None:
        keys.note(key, "not_modelled", "exclude_modules", "of a known model alone: all that target_modules names have adapters")
        return
    maps = Maps(architecture, strategy, own_names)
    own, lost = Places(), list[str]()
    pattern = is_pattern(keys, key)
    for text in asked:
        places = whole_modules(text, maps.weights[0], maps.names) if pattern else {}
        for word in [text] if pattern else words(text):
            places = places or maps.called(word)
        merge(own, places)
        lost += [] if places else [text]
    names = [(word if _NUMBER.search(word) else word.strip(".*$^()").rsplit(".", 1)[-1]) for text in lost for word in words(text)]
    parts = [name for name in names if maps.te and name in _PARTS and _JOINT[name] in maps.known]
    known = {} if maps.own_names else maps.known
    found = [one for name in names if name not in parts for one in known.get(name) or maps.meant(name)]
    if own or found:
        strategy["exclude_modules"] = list(dict.fromkeys([*maps.entries(own)[0], *found]))
    if parts:
        keys.note(key, "not_modelled", "exclude_modules", f"{', '.join(parts)}: part of one product, which has one adapter")
    elif not own and not found:
        keys.note(key, "no_cost_effect", why="no linear map of the decoder's is called so")


def words(text: str) -> list[str]:
    """The names in a list of them, or in a pattern, which is not run: `(mlp|self_attn).(up|down)_proj` is up_proj and down_proj."""
    if not _ALTERNATIVES.search(text):
        return text.replace(",", " ").split()
    made = [word + suffix for group, suffix in _ALTERNATIVES.findall(text) if suffix for word in group.split("|") if word]
    rest = _ALTERNATIVES.sub(" ", text)
    return made + [word for word in re.findall(r"\w+", rest) if word.endswith("_proj")] or text.rsplit("(", 1)[-1].rstrip(")$").split("|")


def _meant(text: str, known: Mapping[str, tuple[str, ...]], te: bool) -> tuple[str, ...]:
    """The linear maps that a name means."""
    if text in EVERY:
        return ("all_linear",)
    cleaned = text.strip(".*$^()")
    of_experts = next((known[to] for name, to in _EXPERTS.items() if cleaned.endswith(name) and to in known), None)
    if of_experts is not None and "shared" not in cleaned:
        return of_experts
    name = cleaned.rsplit(".", 1)[-1]
    joint = _JOINT.get(name, name)
    if te and joint in known:
        return (joint,)
    found = known.get(name) or known.get(joint) or ()
    return found or tuple(dict.fromkeys(one for other in _OF_OTHERS.get(name, ()) for one in _meant(other, known, te)))


def known_maps(architecture: Architecture | None) -> dict[str, tuple[str, ...]]:
    """By names of the linear maps of a model, what they are called here: a part of what is one product in some layers by all the products
    that it is in. Those that most models have where none is known."""
    if architecture is None:
        names = "linear_qkv linear_proj linear_fc1 linear_fc2 q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"
        return {name: (name,) for name in names.split()}
    from symsim.ir.operations import LINEAR, Projection
    from symsim.lowering.adapt import module_names
    from symsim.lowering.lower import declared_alone

    linear = [op for block in declared_alone(architecture).values() for op in block.ops if op.kind in LINEAR]
    named = (name for op in linear for name in (*op.of(Projection).labels, *module_names(op)) if name != "lm_head")
    known: dict[str, tuple[str, ...]] = {name: (name,) for name in named}
    for label in {label for op in linear for label in op.of(Projection).labels}:
        own = [op for op in linear if label in op.of(Projection).labels]
        if any(len(op.of(Projection).labels) > 1 and (op.of(Projection).fused or op.einsums[0].chosen) for op in own):
            known[label] = tuple(dict.fromkeys(op.name for op in own))
    return known
