"""Adapters and frozen parameters, as other systems name them: ranks, linear maps, and modules by the paths of modelling code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symsim.errors import near, nearest
from symsim.importers.keys import Entry, Keys
from symsim.importers.parameters import Places, modules, of_beginnings, of_modules, of_parts, of_patterns
from symsim.importers.targets import EVERY, in_layers, is_pattern, known_maps, merge, pattern_targets, targets, without, words
from symsim.inputs.architecture import Architecture
from symsim.inputs.trained import respelt
from symsim.inputs.tuning import named

if TYPE_CHECKING:
    from symsim.ir.block import Block

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
_WHOLE = ("embedding", "lm_head", "router")
# what peft adapts where a config names nothing (utils/constants.py TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING): queries and values, as one
# product or two, or these; of other types nothing
_QUERIES_AND_VALUES = ("q_proj", "v_proj")
_BY_DEFAULT = {"phi": (*_QUERIES_AND_VALUES, "fc1", "fc2"), "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj")}
_WITH_DEFAULT = frozenset(
    "bart opt gptj gpt_neo llama llama4_text mistral mixtral stablelm gemma gemma2 gemma3_text qwen2 qwen3 gpt2 gpt-sw3 bloom gpt_neox falcon bert "
    "roberta xlm-roberta electra mpt codegen gemma4_text".split()
)
# parts of every layer, as they are called here too
_OF_LAYERS = {"self_attn": "attention", "self_attention": "attention"}


@dataclass(frozen=True)
class Names:
    """What a system calls the rank, the dropout, the linear maps and the modules trained whole; with the defaults of the first three. position: where
    dropout is, if that can be said, and where it is by default."""

    rank: str
    dropout: str
    targets: str
    saved: str
    default_rank: int = 8
    default_dropout: float = 0.0
    default_targets: tuple[str, ...] | None = ("all_linear",)
    """None: those of peft, by the type of the model."""
    position: str = ""
    default_position: str = "pre"
    own_names: bool = False
    """Whether linear maps have the names of the model's modules alone, and none of other modelling code."""


def adapters(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None, names: Names, told: Iterable[str] = ()) -> None:
    """Adapters of a job. What no linear map of the model is called has none, and its row says so. told: what the names of linear maps mean
    where a system has its own."""
    strategy["tuner_type"] = "lora"
    strategy["lora_rank"] = keys.integer(names.rank, names.default_rank, to="lora_rank", least=1)
    dropout = keys.number(names.dropout, names.default_dropout, to="lora_dropout", why="a mask of bytes, at any rate above 0")
    if not 0 <= dropout < 1:
        raise keys.wrong(names.dropout, "from 0 to below 1")
    strategy["lora_dropout"] = dropout
    if names.position:
        dropout_position(keys, names.position, names.default_position, strategy)
    if not told and architecture is not None and is_pattern(keys, names.targets):
        pattern_targets(keys, names.targets, strategy, architecture, names.own_names)
    else:
        _named_targets(keys, names, strategy, architecture, told)
    saved = [word for text in keys.texts(names.saved, None, to="modules_to_save") or [] for word in words(text)]
    known, lost = _saved(saved, architecture)
    if known:
        strategy["modules_to_save"] = known
    if lost:
        keys.note(names.saved, "not_modelled", "modules_to_save", "of these, embeddings, norms and the output layer alone are trained whole here")


def _named_targets(keys: Keys, names: Names, strategy: dict[str, Any], architecture: Architecture | None, told: Iterable[str]) -> None:
    asked = keys.texts(names.targets, None, to="target_modules")
    if isinstance(asked, list) and keys.has(names.targets) and isinstance(keys.given[names.targets].value, str):
        asked = [keys.given[names.targets].value]
    default = names.default_targets or _of_peft(keys, names.targets, architecture, bool(asked))
    own_names = names.own_names and bool(asked)
    strategy["target_modules"], lost = targets([*told] or asked or default, strategy, architecture, own_names=own_names)
    own = list(known_maps(architecture)) if architecture is not None else []
    none = EVERY[-1] in strategy["target_modules"] and not {*EVERY} & {*(asked or EVERY)}
    if lost and own_names and architecture is not None:
        strategy["target_modules"] = [] if none else strategy["target_modules"]
        keys.note(names.targets, "mapped", "target_modules", without(lost, strategy["target_modules"]))
    elif lost and none and all(near(name, own) for name in lost):
        # peft tuners/tuners_utils.py inject_adapter: none of them is found in the base model
        keys.refuse(names.targets, f"no linear map of the model is called {lost[0]} ({nearest(lost[0], own)})")
    elif lost:
        keys.note(names.targets, "not_modelled", "target_modules", without(lost, strategy["target_modules"]))


def _of_peft(keys: Keys, key: str, architecture: Architecture | None, asked: bool) -> tuple[str, ...]:
    """What peft adapts of a model where it is told nothing, with a row where that is nothing."""
    kind = architecture.modelling if architecture is not None else ""
    if not asked and kind and kind not in _WITH_DEFAULT and kind not in _BY_DEFAULT:
        why = f"peft 0.21 has no linear maps of its own for {kind}, and stops without some: queries and values have adapters here"
        keys.rows[key] = Entry(key, "(default)", "not_modelled", "target_modules", why)
    return _BY_DEFAULT.get(kind, _QUERIES_AND_VALUES)


def _saved(asked: Iterable[str], architecture: Architecture | None) -> tuple[list[str], list[str]]:
    """Modules that are trained whole beside adapters, by the ends of their names (peft utils/other.py _set_trainable), and what is none here."""
    found, lost = list[str](), list[str]()
    # positions and norms beside the table of words are modules of their own
    table = of_modules(["embed_tokens"], architecture)[0] if architecture is not None else [_WHOLE[0]]
    for text in asked:
        ended = of_modules([text], architecture)[0] if architecture is not None else []
        meant = _MODULES.get(text.rsplit(".", 1)[-1])
        ends = [name for name in ended if name in _WHOLE or name.endswith("norm")]
        if not ends or len(ends) < len(ended):
            ends = table if meant == _WHOLE[0] else [meant] if meant else []
        found += ends
        lost += [] if ends else [text]
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
    found = _all_biases(strategy, architecture) if which == "all" else _biases_of_adapted(strategy, architecture)
    if not found:
        keys.note(key, "no_cost_effect", why="there are none" if which == "all" else "these linear maps have no bias")
        return
    strategy["modules_to_save"] = [*strategy.get("modules_to_save", ()), *found]


def _all_biases(strategy: dict[str, Any], architecture: Architecture) -> list[str]:
    """Those of linear maps, norms and convolutions."""
    from symsim.lowering.lower import declared_alone

    every = {t.name for block in declared_alone(architecture).values() for t in block.parameters() if t.role == "bias"}
    of_experts = _of_experts(strategy, architecture) & every
    return sorted(every - of_experts) if of_experts else ["bias"] if every else []


def _of_experts(strategy: Mapping[str, Any], architecture: Architecture) -> set[str]:
    """Experts' parameters, whose biases are of another name in transformers 5 (gate_up_proj_bias); none under te."""
    from symsim.lowering.lower import declared_alone

    blocks = declared_alone(architecture).values() if strategy.get("fusion", "te") != "te" else ()
    return {t for block in blocks for op in block.ops if op.einsums and op.einsums[0].chosen for t in op.inputs}


def _biases_of_adapted(strategy: dict[str, Any], architecture: Architecture) -> list[str]:
    """Those of the linear maps that have adapters, where they have them; experts' are of another name here too."""
    found, every, adapted = Places(), Places(), adapted_places(strategy, architecture)
    rest = _of_experts(strategy, architecture)
    for block, at in _layers(architecture):
        for bias in (t for t in block.parameters() if t.role == "bias"):
            merge(every, {bias.name: {at}})
            if at in adapted.get(f"{bias.owner}.weight", ()) and bias.name not in rest:
                merge(found, {bias.name: {at}})
    return [entry for name, layers in found.items() for entry in ([name] if layers == every[name] else in_layers([name], layers))]


def adapted_places(strategy: Mapping[str, Any], architecture: Architecture) -> Places:
    """The layers in which weights of linear maps have adapters."""
    from symsim.inputs.strategy import Strategy
    from symsim.lowering.tuned import adapted_weights

    names = {name: tuple(strategy[name]) for name in ("target_modules", "exclude_modules") if name in strategy}
    chosen, found = Strategy(tuner_type="lora", fusion=strategy.get("fusion", "te"), **names), Places()
    for block, at in _layers(architecture):
        merge(found, {weight: {at} for weight in adapted_weights(chosen, block, at, architecture)})
    return found


def _layers(architecture: Architecture) -> list[tuple["Block", int]]:
    from symsim.lowering.lower import declared_alone

    blocks = declared_alone(architecture)
    kinds = [kind for segment in respelt(architecture).layers for _ in range(segment.repeat) for kind in segment.kinds]
    return [(blocks[kind], at) for at, kind in enumerate(kinds)]


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
        chosen[key] = [word for text in keys.texts(key, [], to="trainable_parameters") for word in words(text)]
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


def dropout_position(keys: Keys, key: str, default: str, strategy: dict[str, Any]) -> None:
    """Whether dropout is of what goes into adapters, or of what they make."""
    position = keys.choice(key, {"pre": "pre", "post": "post"}, default, to="lora_dropout_position")
    if strategy["lora_dropout"] and position == "post":
        strategy["lora_dropout_position"] = "post"
    elif not strategy["lora_dropout"] and key in keys.given:
        keys.note(key, "no_cost_effect", why="nothing is dropped")


def four_bits(kind: str, double: bool) -> str:
    """bitsandbytes' layouts of 4 bits."""
    return f"{kind}_double" if double else kind


_OF_ADAPTERS = (
    *("tuner_type", "lora_rank", "lora_expert_rank", "rank_pattern", "oft_block_size", "lora_dropout", "lora_dropout_position", "target_modules"),
    *("exclude_modules", "fused_adapters", "use_dora", "quantize_base", "quantize_experts", "modules_to_save", "trainable_parameters"),
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
