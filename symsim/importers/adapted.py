"""Adapters and frozen parameters, as other systems name them: ranks, linear maps, and modules by the paths of modelling code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symsim.errors import cut, near, nearest
from symsim.importers.keys import Keys
from symsim.importers.parameters import modules, of_beginnings, of_modules, of_parts, of_patterns, whole_modules
from symsim.inputs.architecture import Architecture
from symsim.inputs.trained import respelt
from symsim.inputs.tuning import named

EVERY = ("all", "all-linear", "all_linear")
# one product here, which has one adapter, under the names of its parts and of modelling code that joins them
_JOINT = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "Wqkv", "c_attn", "linear_qkv"), "linear_qkv"),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "linear_fc1"), "linear_fc1"),
}
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
QUANTISED = "base weights in another few bits: 1/4 to 1 byte a parameter and a pass to unpack them before each product; 2 bytes here"
# peft tuners/boft/layer.py: N butterfly factors of blocks of b
BOFT = "timed as LoRA; N factors of blocks of b have N h b + n parameters of a map of h to n, whose input goes through a whole h x h matrix "
BOFT += "(2 h^2 FLOPs a token), which 6 N h^3 FLOPs make anew in each forward from 4 N h^2 bytes of permutations"
_WHOLE_HERE = "which symsim has for tp=1 alone, and in 8 bits without shards of parameters: base weights are timed in 2 bytes"
_MODULES = {
    **dict.fromkeys(("embed_tokens", "embedding", "word_embeddings", "wte", "embed_in", "all-embedding"), "embedding"),
    **dict.fromkeys(("lm_head", "output_layer", "embed_out"), "lm_head"),
    **dict.fromkeys(("norm", "final_layernorm", "ln_f", "final_layer_norm"), "final_norm"),
    "all-norm": "norm",
}
_MARKS = frozenset("()[]*\\|^$")  # of patterns, which a list of names has not
_WHOLE = ("embedding", "lm_head", "router")
# parts of every layer, as they are called here too
_OF_LAYERS = {"self_attn": "attention", "self_attention": "attention"}


@dataclass(frozen=True)
class Names:
    """What a system calls the rank, the dropout, the linear maps and the modules trained whole; with the defaults of the first three."""

    rank: str
    dropout: str
    targets: str
    saved: str
    default_rank: int = 8
    default_dropout: float = 0.0
    default_targets: tuple[str, ...] = ("all_linear",)


def adapters(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None, names: Names, told: Iterable[str] = ()) -> None:
    """Adapters of a job. What no linear map of the model is called has none, and its row says so. told: what the names of linear maps mean
    where a system has its own."""
    strategy["tuner_type"] = "lora"
    strategy["lora_rank"] = keys.integer(names.rank, names.default_rank, to="lora_rank", least=1)
    dropout = keys.number(names.dropout, names.default_dropout, to="lora_dropout", why="a mask of bytes, at any rate above 0")
    if not 0 <= dropout < 1:
        raise keys.wrong(names.dropout, "from 0 to below 1")
    strategy["lora_dropout"] = dropout
    if not told and architecture is not None and _is_pattern(keys, names.targets):
        pattern_targets(keys, names.targets, strategy, architecture)
    else:
        _named_targets(keys, names, strategy, architecture, told)
    saved = [word for text in keys.texts(names.saved, None, to="modules_to_save") or [] for word in _words(text)]
    known, lost = _saved(saved, architecture)
    if known:
        strategy["modules_to_save"] = known
    if lost:
        keys.note(names.saved, "not_modelled", "modules_to_save", "of these, embeddings, norms and the output layer alone are trained whole here")


def _is_pattern(keys: Keys, key: str) -> bool:
    value = keys.given[key].value if keys.has(key) else None
    return isinstance(value, str) and not _MARKS.isdisjoint(value)


def _named_targets(keys: Keys, names: Names, strategy: dict[str, Any], architecture: Architecture | None, told: Iterable[str]) -> None:
    asked = keys.texts(names.targets, None, to="target_modules")
    if isinstance(asked, list) and keys.has(names.targets) and isinstance(keys.given[names.targets].value, str):
        asked = [keys.given[names.targets].value]
    strategy["target_modules"], lost = targets([*told] or asked or names.default_targets, strategy, architecture)
    own = list(_linear_maps(architecture)) if architecture is not None else []
    none = EVERY[-1] in strategy["target_modules"] and not {*EVERY} & {*(asked or EVERY)}
    if lost and none and all(near(name, own) for name in lost):
        # peft tuners/tuners_utils.py inject_adapter: none of them is found in the base model
        keys.refuse(names.targets, f"no linear map of the model is called {lost[0]} ({nearest(lost[0], own)})")
    elif lost:
        keys.note(names.targets, "not_modelled", "target_modules", without(lost, strategy["target_modules"]))


def _saved(asked: Iterable[str], architecture: Architecture | None) -> tuple[list[str], list[str]]:
    """Modules that are trained whole beside adapters, by the ends of their names (peft utils/other.py _set_trainable), and what is none here."""
    found, lost = list[str](), list[str]()
    for text in asked:
        ended = of_modules([text], architecture)[0] if architecture is not None else []
        named = _MODULES.get(text.rsplit(".", 1)[-1])
        ends = [name for name in ended if name in _WHOLE or name.endswith("norm")]
        found += ends if ends and len(ends) == len(ended) else [named] if named else []
        lost += [] if named or (ends and len(ends) == len(ended)) else [text]
    return list(dict.fromkeys(found)), lost


def rotated(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None, targets_key: str, dropout: str) -> None:
    """Rotations of what goes into linear maps (peft's OFT), by blocks of as many inputs as are told."""
    strategy["tuner_type"] = "oft"
    asked = keys.texts(targets_key, None, to="target_modules")
    strategy["target_modules"], lost = targets(asked or EVERY[-1:], strategy, architecture)
    if lost:
        keys.note(targets_key, "not_modelled", "target_modules", f"no rotations before {', '.join(lost)}: no linear map here is called so")
    size = keys.integer("oft_block_size", 32, to="oft_block_size", least=0)
    blocks = keys.integer("oft_rank", 0, to="oft_block_size", least=0)
    if blocks:
        said = f"{blocks} blocks for each map, of as many inputs as that leaves: blocks of {size or 32} are taken for all of them"
        keys.note("oft_rank", "not_modelled", "oft_block_size", said)
    strategy["oft_block_size"] = max(size or 32, 2)
    if keys.number(dropout, 0.0):
        keys.note(dropout, "not_modelled", why="blocks at random are left as they are: two passes over the rotations of each map, o numbers an input")


def biases(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Biases that are trained beside adapters: none, those of the adapted maps, or all (peft tuners/tuners_utils.py)."""
    which = keys.choice(key, {"none": "none", "all": "all", "lora_only": "lora_only"}, "none", to="modules_to_save")
    if which == "none":
        return
    if architecture is None:
        keys.note(key, "not_modelled", "modules_to_save", "of a known model alone: biases rest")
        return
    found = ["bias"] if which == "all" and _biased(architecture, EVERY[-1:]) else _biased(architecture, strategy["target_modules"])
    if not found:
        keys.note(key, "no_cost_effect", why="these linear maps have no bias")
        return
    strategy["modules_to_save"] = [*strategy.get("modules_to_save", ()), *found]


def _biased(architecture: Architecture, chosen: Iterable[str]) -> list[str]:
    """The biases of linear maps, or of some of them."""
    from symsim.ir.operations import LINEAR
    from symsim.lowering.adapt import module_names
    from symsim.lowering.lower import declared_alone

    names, every = set(chosen), EVERY[-1] in chosen
    return [
        t
        for block in declared_alone(architecture).values()
        for op in block.ops
        if op.kind in LINEAR and (every or not module_names(op).isdisjoint(names))
        for t in op.inputs
        if block.tensors[t].role == "bias"
    ]


def without(lost: Iterable[str], found: Iterable[str]) -> str:
    """What a row says of names that mean no linear map, beside what is adapted."""
    why = "all linear maps have adapters in their place" if EVERY[-1] in found else "no adapters beside them"
    return f"no linear map here is called {', '.join(lost)}: {why}"


def targets(asked: Iterable[str], strategy: dict[str, Any], architecture: Architecture | None) -> tuple[list[str], list[str]]:
    """The linear maps that names mean here, and the names that mean none; all where nothing is left."""
    found: list[str] = []
    lost: list[str] = []
    known = _linear_maps(architecture)
    te = strategy.get("fusion", "te") == "te"
    for text in asked:
        named = [_meant(word, known, te) for word in _words(text)]
        if not any(named):
            lost.append(text)
        found += [name for names in named for name in names]
        if not _ALTERNATIVES.search(text):
            lost += [word for word, names in zip(_words(text), named) if not names and any(named)]
    return list(dict.fromkeys(found)) or ["all_linear"], lost


def pattern_targets(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Adapters beside the linear maps whose whole names a pattern matches (peft tuners/tuners_utils.py check_target_module_exists)."""
    text = str(keys.given[key].value)
    if architecture is None:
        strategy["target_modules"], lost = targets([text], strategy, architecture)
        why = "of an unknown model the names in the pattern"
        keys.note(key, "not_modelled" if lost else "mapped", "target_modules", f"no linear map here is called {', '.join(lost)}" if lost else why)
        return
    weights, others = _weights(architecture, str(strategy.get("fusion", "te")))
    found, every = (whole_modules(pattern, weights, architecture) for pattern in (text, ".*"))
    known, te = _linear_maps(architecture), strategy.get("fusion", "te") == "te"
    apart = {_leaf(weight) for weight in {*others, *every} - found.keys()}
    names = [name for weight in found for name in ([weights[weight]] if _leaf(weight) in apart else _meant(_leaf(weight), known, te))]
    strategy["target_modules"] = list(dict.fromkeys(names)) or ["all_linear"]
    some = [weight for weight, layers in found.items() if layers != every[weight]]
    if not names:
        keys.note(key, "not_modelled", "target_modules", f"no linear map here is called {cut(text)}: all have adapters in their place")
    elif some:
        held, of = len(found[some[0]]), len(every[some[0]])
        keys.note(key, "not_modelled", "target_modules", f"adapters in {held} of {of} layers: all have them here")
    else:
        keys.note(key, to="target_modules")


def _leaf(weight: str) -> str:
    return weight.removesuffix(".weight").rsplit(".", 1)[-1]


def _weights(architecture: Architecture, fusion: str) -> tuple[dict[str, str], dict[str, str]]:
    """The weights of the linear maps that all_linear means, and the operations that they are in; the same of other linear maps."""
    from symsim.frameworks.choices import FRAMEWORKS
    from symsim.inputs.strategy import Strategy
    from symsim.ir.operations import LINEAR
    from symsim.lowering.adapt import is_target
    from symsim.lowering.lower import declared_alone

    framework, strategy = FRAMEWORKS[fusion], Strategy(tuner_type="lora")
    meant, others = dict[str, str](), dict[str, str]()
    for block in declared_alone(architecture).values():
        for op in (op for op in block.ops if op.kind in LINEAR):
            own = {t.name: op.name for t in block.parameters() if t.name in op.inputs and t.role != "bias"}
            (meant if is_target(op, strategy, framework, architecture) else others).update(own)
    return meant, others


def excluded(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """Linear maps that patterns of names take out of those with adapters."""
    asked = keys.texts(key, [], to="exclude_modules")
    if not asked:
        return
    if architecture is None:
        keys.note(key, "not_modelled", "exclude_modules", "of a known model alone: all that target_modules names have adapters")
        return
    known = _linear_maps(architecture)
    names = [word.strip(".*$^()").rsplit(".", 1)[-1] for text in asked for word in _words(text)]
    parts = [name for name in names if strategy.get("fusion", "te") == "te" and _JOINT.get(name, name) != name and _JOINT[name] in known]
    found = [one for name in names if name not in parts for one in known.get(name, ())]
    if found:
        strategy["exclude_modules"] = list(dict.fromkeys(found))
    if parts:
        keys.note(key, "not_modelled", "exclude_modules", f"{', '.join(parts)}: part of one product, which has one adapter")
    elif not found:
        keys.note(key, "no_cost_effect", why="no linear map of the decoder's is called so")


def _words(text: str) -> list[str]:
    """The names in a list of them, or in a pattern, which is not run: `(mlp|self_attn).(up|down)_proj` is up_proj and down_proj."""
    if not _ALTERNATIVES.search(text):
        return text.replace(",", " ").split()
    made = [word + suffix for group, suffix in _ALTERNATIVES.findall(text) if suffix for word in group.split("|") if word]
    rest = _ALTERNATIVES.sub(" ", text)
    return made + [word for word in re.findall(r"\w+", rest) if word.endswith("_proj")] or [text.rsplit("(", 1)[-1].rstrip(")$").split("|")[0]]


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


def _linear_maps(architecture: Architecture | None) -> dict[str, tuple[str, ...]]:
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


def trained_ends(strategy: dict[str, Any], architecture: Architecture, count: int) -> None:
    """The last `count` layers alone are trained, or the first where it is negative."""
    trained = min(abs(count), architecture.num_layers)
    first = 0 if count < 0 else architecture.num_layers - trained
    strategy["freeze_parameters"] = ["embedding", "lm_head", "final_norm", "layers"]
    strategy["trainable_parameters"] = [f"layers.{first}-{first + trained - 1}"]


def trained_modules(keys: Keys, strategy: dict[str, Any], architecture: Architecture, inner: str, outer: str) -> None:
    """Of the layers that are trained these modules alone, and others besides: whose names have such a text (LLaMA-Factory model/adapter.py
    _setup_freeze_tuning). inner, outer: keys that name them."""
    of_layers, of_ends = modules(architecture)
    chosen = {}
    for key, known in ((inner, ["all", *of_layers]), (outer, of_ends)):
        chosen[key] = [word for text in keys.texts(key, [], to="trainable_parameters") for word in _words(text)]
        wrong = next((word for word in chosen[key] if word not in known), None)
        if wrong is not None:
            raise keys.wrong(key, f"of {', '.join(known)}")
    if chosen[inner] and "all" not in chosen[inner]:
        (layers,) = map(named, strategy["trainable_parameters"])
        numbers = range(layers.first or 0, (layers.last or 0) + 1)
        strategy["trainable_parameters"], _ = of_parts([f".{i}.{word}" for i in numbers for word in chosen[inner]], architecture)
    strategy["trainable_parameters"] += of_parts(chosen[outer], architecture)[0]


def drawn_layers(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    """So many layers at random, beside the embedding, the last norm and the output layer (LISA, arXiv:2403.17919): gradients reach the embedding
    whichever they are, so that the first stand for all."""
    count = keys.integer(key, 0, to="freeze_parameters, trainable_parameters")
    if not count:
        return
    if architecture is None:
        keys.note(key, "not_modelled", why="of a known model alone: gradients and states of all layers are counted")
        return
    if count < architecture.num_layers:
        strategy |= {"freeze_parameters": ["layers"], "trainable_parameters": [f"layers.0-{count - 1}"]}
    drawn = f"{min(count, architecture.num_layers)} of {architecture.num_layers} layers"
    why = f"{drawn}; states of those that were trained before stay: 8 bytes a parameter"
    keys.note(key, to="freeze_parameters, trainable_parameters", why=why)


def one_layer(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None, start: int | None) -> None:
    """One layer at a time (BAdam, arXiv:2404.02827), whose backward ends there: the middle one stands for the mean of all, or the one that stays."""
    if architecture is None:
        keys.note(key, "not_modelled", why="of a known model alone: gradients and states of all layers are counted")
        return
    layer = (architecture.num_layers - 1) // 2 if start is None else min(start, architecture.num_layers - 1)
    strategy |= {"freeze_parameters": ["embedding", "lm_head", "final_norm", "layers"], "trainable_parameters": [f"layers.{layer}"]}
    said = "the one that stays" if start is not None else "the middle one, whose step is the mean; trainable_parameters=layers.0 has the peak of all"
    keys.note(key, to="freeze_parameters, trainable_parameters", why=f"one layer at a time, with fp32 copies: {said}")


def stored_base(keys: Keys, strategy: dict[str, Any], kind: str, key: str, fate_to: str = "quantize_base") -> None:
    """Base weights in few bits, of a known layout, where symsim has it; a row that says so where not."""
    if strategy.get("tuner_type", "full") == "full":
        keys.note(key, "not_modelled", why="base weights in few bits are read under adapters alone")
    elif strategy.get("tp", 1) > 1 or (kind == "int8" and strategy.get("zero") == 3) or strategy.get("fp8", "none") != "none":
        keys.note(key, "not_modelled", fate_to, f"weights in few bits, {_WHOLE_HERE}")
    else:
        strategy["quantize_base"] = kind
        keys.note(key, to=fate_to, why="frozen linear maps but the output layer, made anew for every product")


def four_bits(kind: str, double: bool) -> str:
    """bitsandbytes' layouts of 4 bits."""
    return f"{kind}_double" if double else kind


_OF_ADAPTERS = (
    *("tuner_type", "lora_rank", "lora_expert_rank", "oft_block_size", "lora_dropout", "target_modules", "exclude_modules", "fused_adapters"),
    *("use_dora", "quantize_base", "quantize_experts", "modules_to_save", "trainable_parameters"),
)
_BEHIND = "a tower or projector before it is trained, so that gradients go back through all layers; text alone would be trained as ever"


def frozen_decoder(keys: Keys, key: str, strategy: dict[str, Any]) -> None:
    """A decoder that rests behind what is trained of a model with towers, and has no adapters then."""
    if not keys.flag(key, False, to="freeze_parameters, trained_before", why=_BEHIND):
        return
    for option in _OF_ADAPTERS:
        strategy.pop(option, None)
    strategy |= {"freeze_parameters": ["embedding", "lm_head", "final_norm", "layers"], "trained_before": True}


def frozen(asked: Sequence[str], architecture: Architecture | None) -> tuple[list[str], list[str]]:
    """Parameters by the beginnings of their names as symsim names them, and what has no name here; of an unknown model those that all have."""
    return of_beginnings(asked, architecture) if architecture is not None else _of_any(asked)


def opened(asked: Sequence[str], architecture: Architecture | None, at_start: bool = False) -> tuple[list[str], list[str]]:
    """The same by patterns of their names. at_start: that are found where a name begins."""
    return of_patterns(asked, architecture, at_start) if architecture is not None else _of_any(asked)


def _of_any(asked: Iterable[str]) -> tuple[list[str], list[str]]:
    found, lost = list[str](), list[str]()
    for text in asked:
        name = text.removesuffix(".weight").rsplit(".", 1)[-1]
        meant = _MODULES.get(name) or _OF_LAYERS.get(name) or ("layers" if name in ("model", "layers", "decoder") else None)
        (lost if meant is None else found).append(meant or text)
    return list(dict.fromkeys(found)), lost


def leading_layers(architecture: Architecture, ratio: float) -> list[str]:
    """The embedding and whole leading layers that have at most this share of the parameters, in their order."""
    from symsim.inputs.strategy import Strategy
    from symsim.lowering.lower import declared_alone
    from symsim.placement.sizes import values

    model = respelt(architecture)
    sizes = values(model, Strategy())

    def held(block: str) -> int:
        made = declared[block]
        own = model.layer_kinds[block].own if block in model.layer_kinds else {}
        at = {**sizes, **{f"{dim}_{block}": size for dim, size in own.items()}}
        return sum(_product(int(made.dims[d].whole_model.evaluate(at)) for d in t.dims) for t in made.parameters())

    declared = declared_alone(architecture)
    order = ["embedding", *(k for s in model.layers for _ in range(s.repeat) for k in s.kinds)]
    each = {name: held(name) for name in {*order, "head"}}
    left = ratio * (sum(each[name] for name in order) + (0 if model.tie_word_embeddings else each["head"]))
    count = 0
    for name in order:
        left -= each[name]
        if left < 0:
            break
        count += 1
    return [] if not count else ["embedding"] if count == 1 else ["embedding", f"layers.0-{count - 2}"]


def _product(numbers: Iterable[int]) -> int:
    made = 1
    for n in numbers:
        made *= n
    return made
