"""Parameters by the beginnings of their names, or by patterns of them, as modelling code calls them: what symsim calls these."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import process_time

from symsim.inputs.architecture import Architecture
from symsim.inputs.trained import respelt

# what of a layer's parameters is called otherwise: by transformers (models/*/modeling_*.py) and by Megatron-Core (core/transformer)
_OF_TRANSFORMERS = {
    "pre_attention_norm": ("input_layernorm",),
    "pre_mlp_norm": ("post_attention_layernorm",),
    "attention": ("self_attn",),
    "moe.gate.router": ("mlp.gate", "mlp.router", "block_sparse_moe.gate"),
    "moe.experts": ("mlp.experts", "block_sparse_moe.experts"),
    "moe.shared_experts": ("mlp.shared_experts", "mlp.shared_expert"),
    "moe": ("mlp",),
}
_OF_MEGATRON = {
    "pre_attention_norm.weight": ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
    "pre_mlp_norm.weight": ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
    **dict.fromkeys(("attention.q_proj", "attention.k_proj", "attention.v_proj"), ("self_attention.linear_qkv",)),
    "attention.o_proj": ("self_attention.linear_proj",),
    "attention.q_norm": ("self_attention.q_layernorm",),
    "attention.k_norm": ("self_attention.k_layernorm",),
    "attention": ("self_attention",),
    **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), ("mlp.linear_fc1",)),
    "mlp.down_proj": ("mlp.linear_fc2",),
    "moe.gate.router": ("mlp.router",),
    **dict.fromkeys(("moe.experts.gate_proj", "moe.experts.up_proj"), ("mlp.experts.linear_fc1",)),
    "moe.experts.down_proj": ("mlp.experts.linear_fc2",),
    **dict.fromkeys(("moe.shared_experts.gate_proj", "moe.shared_experts.up_proj"), ("mlp.shared_experts.linear_fc1",)),
    "moe.shared_experts.down_proj": ("mlp.shared_experts.linear_fc2",),
    "moe": ("mlp",),
}
_ENDS = {
    "embedding.word_embeddings": ("model.embed_tokens", "embedding.word_embeddings"),
    "final_norm": ("model.norm", "decoder.final_layernorm"),
    "lm_head.lm_head": ("lm_head", "output_layer"),
}
_LANGUAGES = ((_OF_TRANSFORMERS, "model.layers", 0), (_OF_MEGATRON, "decoder.layers", 1))
# beside towers the decoder is called so: by Megatron-Core and transformers 4, and by transformers 5
_BESIDE_TOWERS = (("", ""), ("", "language_model."), ("model.", "model.language_model."))
_LAYER = re.compile(r"model\.layers\.\d+\.")
# what is run of a pattern: characters and classes of them, repeated or not, and groups that are not
_ONE = r"(?:\\[.dw]|\[\^?(?:\\[.dw]|[\w.\-])+\]|[\w.\-/])"
_PATTERN = re.compile(rf"(?:{_ONE}[*+?]?|\(\?[:!]|[()|^$])*")
_STEP = re.compile(rf"(?P<one>{_ONE})(?P<often>[*+?]?)|(?P<opens>\((?:\?[:!])?)|(?P<closes>\))|(?P<or>\|)|[\^$]")
_DIGITS = ("\\d", "[\\d]", "[0-9]")
# what is tried with a pattern: so many ways through a name, and so many seconds for all names together
_NAME, _NUMBER, _MOST_WAYS, _SECONDS = 60, 3, 4 * 60**3, 2.0
_LONGEST = 400


class _Slow(Exception):
    """A pattern that takes too long."""


@dataclass(frozen=True)
class _Parameter:
    """at: its layer, None at the ends. means: names that symsim has for it."""

    at: int | None
    own: str
    means: frozenset[str]


def of_beginnings(asked: Iterable[str], architecture: Architecture) -> tuple[list[str], list[str]]:
    """What begins so (`model.layers.1` is layers 10 to 19 too), as entries of freeze_parameters, and what is the beginning of nothing."""
    return _named(architecture, [(text, partial(_begins, text)) for text in asked])


def of_patterns(asked: Iterable[str], architecture: Architecture, at_start: bool = False) -> tuple[list[str], list[str]]:
    """What a pattern finds in names, at_start: from their first letters on; and the patterns that find nothing, or that are not run here, as
    they take too long or are no patterns."""
    compiled = [(text, _compiled(text)) for text in asked]
    finds = [(text, (lambda _: False) if p is None else _finds(p.match if at_start else p.search)) for text, p in compiled]
    return _named(architecture, finds)


def of_parts(asked: Iterable[str], architecture: Architecture) -> tuple[list[str], list[str]]:
    """What has a text in its name, and the texts that none has."""
    return _named(architecture, [(text, partial(_has, text)) for text in asked])


def of_modules(asked: Iterable[str], architecture: Architecture) -> tuple[list[str], list[str]]:
    """What is in a module whose name ends so, and the ends that none has."""
    return _named(architecture, [(text, partial(_in_module, text)) for text in asked])


def whole_modules(pattern: str, weights: Container[str], architecture: Architecture) -> dict[str, set[int | None]]:
    """Of these weights, by symsim's names, those of modules whose whole name the pattern matches, with their layers; none where it is not run."""
    compiled = _compiled(pattern)
    if compiled is None:
        return {}
    holds = _finds(compiled.fullmatch)
    try:
        for names in _every(respelt(architecture)):
            held = [p for name, of in names.items() if holds(name.rpartition(".")[0]) for p in of if p.own in weights]
            if held:
                return {own: {p.at for p in held if p.own == own} for own in dict.fromkeys(p.own for p in held)}
    except _Slow:
        pass
    return {}


def modules(architecture: Architecture) -> tuple[list[str], list[str]]:
    """The modules of a layer as transformers calls them, and those before and after the layers."""
    names = [(name, of[0].at) for name, of in _called(respelt(architecture), *_LANGUAGES[0]).items()]
    inner = (_LAYER.sub("", name).partition(".")[0] for name, at in names if at is not None)
    return list(dict.fromkeys(inner)), list(dict.fromkeys(name.rpartition(".")[0].rpartition(".")[2] for name, at in names if at is None))


def _begins(text: str, name: str) -> bool:
    return name.startswith(text)


def _has(text: str, name: str) -> bool:
    return text in name


def _in_module(text: str, name: str) -> bool:
    return name.rpartition(".")[0].endswith(text)


def _finds(look: Callable[[str], object]) -> Callable[[str], bool]:
    end = process_time() + _SECONDS

    def holds(name: str) -> bool:
        if process_time() > end:
            raise _Slow
        return look(name) is not None

    return holds


def _compiled(text: str) -> re.Pattern[str] | None:
    """A pattern that ends in time."""
    if len(text) > _LONGEST or not _PATTERN.fullmatch(text) or _ways(text) > _MOST_WAYS:
        return None
    try:
        return re.compile(text)
    except re.error:
        return None


def _ways(text: str) -> int:
    """How many ways through a name a pattern may try before it gives up, about: what repeats may end anywhere, and alternatives add up."""
    started = text.startswith(("^", ".*", ".+"))
    open_groups = [(0, 1)]  # of each its alternatives so far, and the present one
    for step in _STEP.finditer(text):
        before, now = open_groups[-1]
        if step["opens"]:
            open_groups.append((0, 1))
        elif step["closes"] and len(open_groups) > 1:
            open_groups.pop()
            open_groups[-1] = (open_groups[-1][0], open_groups[-1][1] * (before + now))
        elif step["or"]:
            open_groups[-1] = (before + now, 1)
        elif step["often"]:
            open_groups[-1] = (before, now * (2 if step["often"] == "?" else _NUMBER if step["one"] in _DIGITS else _NAME))
    return sum(sum(group) for group in open_groups) * (1 if started else _NAME)


def _named(architecture: Architecture, asked: Iterable[tuple[str, Callable[[str], bool]]]) -> tuple[list[str], list[str]]:
    model = respelt(architecture)
    every = _every(model)
    found: set[_Parameter] = set()
    lost = []
    for text, holds in asked:
        try:
            own = next((f for names in every if (f := {p for name, of in names.items() if holds(name) for p in of})), None)
        except _Slow:
            own = None
        if own is None:
            lost.append(text)
        else:
            found |= own
    return _entries(found, {p for of in every[0].values() for p in of}), lost


def _every(model: Architecture) -> list[dict[str, list[_Parameter]]]:
    return [
        {other + name.removeprefix(own) if name.startswith(own) else name: of for name, of in _called(model, *language).items()}
        for language in _LANGUAGES
        for own, other in _BESIDE_TOWERS
    ]


def _called(model: Architecture, inside: Mapping[str, tuple[str, ...]], layers: str, language: int) -> dict[str, list[_Parameter]]:
    """Every name of modelling code, and the parameters here that it holds."""
    # most jobs name none
    from symsim.lowering.lower import declared_alone
    from symsim.lowering.marked import names_of

    declared = declared_alone(model)
    held = {b: [(t.name, names_of(block, t, model)) for t in block.parameters()] for b, block in declared.items()}
    kinds = [kind for segment in model.layers for _ in range(segment.repeat) for kind in segment.kinds]
    ends = ((None, name, means) for b in held if b not in model.layer_kinds for name, means in held[b])
    inner = ((at, name, means) for at, kind in enumerate(kinds) for name, means in held[kind])
    names: dict[str, list[_Parameter]] = {}
    for at, name, means in chain(ends, inner):
        for text in (_end(name, language),) if at is None else (f"{layers}.{at}.{rest}" for rest in _spellings(name, inside)):
            names.setdefault(text, []).append(_Parameter(at, name, means))
    return names


def _end(name: str, language: int) -> str:
    own = next((n for n in _ENDS if name.startswith(f"{n}.")), None)
    return name if own is None else _ENDS[own][language] + name.removeprefix(own)


def _spellings(name: str, inside: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A parameter of a layer by its other names, or its own."""
    own = next((n for n in inside if name == n or name.startswith(f"{n}.")), None)
    return [name] if own is None else [other + name.removeprefix(own) for other in inside[own]]


def _entries(found: set[_Parameter], every: set[_Parameter]) -> list[str]:
    """The fewest entries of freeze_parameters that mean these and no others: names of all layers, then those of runs of layers."""
    left, made = set(found), list[str]()
    for name, own in _by_name(every):
        if own <= found and own & left:
            made.append(name)
            left -= own
    runs: dict[str, list[int]] = {}
    for at in sorted({p.at for p in left if p.at is not None}):
        here, wanted = {p for p in every if p.at == at}, {p for p in found if p.at == at}
        for name, own in _by_name(here):
            if own <= wanted and own & left:
                runs.setdefault(name, []).append(at)
                left -= own
    for name, layers in runs.items():
        made += [f"layers.{a}-{b}" + (f".{name}" if name != "layers" else "") for a, b in consecutive(layers)]
    return made


def _by_name(parameters: Iterable[_Parameter]) -> list[tuple[str, set[_Parameter]]]:
    """Parameters under each name, those of most first, of the shortest names."""
    found: dict[str, set[_Parameter]] = {}
    for p in parameters:
        for name in p.means:
            found.setdefault(name, set()).add(p)
    return sorted(found.items(), key=lambda one: (-len(one[1]), len(one[0]), one[0]))


def consecutive(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of numbers, of each the first and the last."""
    made: list[tuple[int, int]] = []
    for i in indices:
        made = [*made[:-1], (made[-1][0], i)] if made and made[-1][1] == i - 1 else [*made, (i, i)]
    return made
