"""Adapters and frozen parameters, as other systems name them: ranks, linear maps, and modules by the paths of modelling code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symsim.importers.keys import Keys
from symsim.inputs.architecture import Architecture
from symsim.inputs.trained import respelt

EVERY = ("all", "all-linear", "all_linear")
# one product here, which has one adapter, under the names of its parts and of modelling code that joins them
_JOINT = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "Wqkv", "c_attn", "linear_qkv"), "linear_qkv"),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "linear_fc1"), "linear_fc1"),
}
_MODULES = {
    **dict.fromkeys(("embed_tokens", "embedding", "word_embeddings", "wte", "all-embedding"), "embedding"),
    **dict.fromkeys(("lm_head", "output_layer"), "lm_head"),
    **dict.fromkeys(("norm", "final_layernorm", "ln_f"), "final_norm"),
    "all-norm": "norm",
}
_INSIDE = {"self_attn": "attention", "self_attention": "attention", "mlp": "mlp", "input_layernorm": "pre_attention_norm"}
_INSIDE |= {"post_attention_layernorm": "pre_mlp_norm", "pre_mlp_layernorm": "pre_mlp_norm", "block_sparse_moe": "moe", "experts": "experts"}
_LAYER = re.compile(r"(?:\w+\.)*?(?:layers|h)\.(\d{1,6})(?:\.(.*))?")


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


def adapters(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None, names: Names) -> None:
    """Adapters of a job. What no linear map of the model is called has none, and its row says so."""
    strategy["tuner_type"] = "lora"
    strategy["lora_rank"] = keys.integer(names.rank, names.default_rank, to="lora_rank", least=1)
    dropout = keys.number(names.dropout, names.default_dropout, to="lora_dropout", why="a mask of bytes, at any rate above 0")
    if not 0 <= dropout < 1:
        raise keys.wrong(names.dropout, "from 0 to below 1")
    strategy["lora_dropout"] = dropout
    asked = keys.texts(names.targets, None, to="target_modules")
    strategy["target_modules"], lost = targets(asked or names.default_targets, strategy, architecture)
    if lost:
        keys.note(names.targets, "not_modelled", "target_modules", f"no adapters beside {', '.join(lost)}: no linear map here is called so")
    saved = keys.texts(names.saved, None, to="modules_to_save") or []
    known = [_MODULES[name.rsplit(".", 1)[-1]] for name in saved if name.rsplit(".", 1)[-1] in _MODULES]
    if known:
        strategy["modules_to_save"] = list(dict.fromkeys(known))
    if len(known) < len(saved):
        keys.note(names.saved, "not_modelled", "modules_to_save", "of these, embeddings, norms and the output layer alone are trained whole here")


def targets(asked: Iterable[str], strategy: dict[str, Any], architecture: Architecture | None) -> tuple[list[str], list[str]]:
    """The linear maps that names mean here, and the names that mean none; all where nothing is left."""
    found, lost = [], []
    known = _linear_maps(architecture)
    for text in (word for one in asked for word in one.replace(",", " ").split()):
        name = text.strip(".*$^()").rsplit(".", 1)[-1]
        joint = _JOINT.get(name, name)
        if text in EVERY:
            found.append("all_linear")
        elif strategy.get("fusion", "te") == "te" and joint in known:
            found.append(joint)
        elif name in known:
            found.append(name)
        elif joint in known:
            found.append(joint)
        else:
            lost.append(text)
    return list(dict.fromkeys(found)) or ["all_linear"], lost


def _linear_maps(architecture: Architecture | None) -> frozenset[str]:
    """Names of the linear maps of a model; those that most models have where none is known."""
    if architecture is None:
        return frozenset("linear_qkv linear_proj linear_fc1 linear_fc2 q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split())
    from symsim.ir.operations import LINEAR, Projection
    from symsim.lowering.adapt import module_names
    from symsim.lowering.lower import declared_alone

    linear = [op for block in declared_alone(architecture).values() for op in block.ops if op.kind in LINEAR]
    return frozenset(name for op in linear for name in (*op.of(Projection).labels, *module_names(op))) - {"lm_head"}


def frozen(asked: Iterable[str], architecture: Architecture | None) -> tuple[list[str], list[str]]:
    """Parameters by the beginnings of their names (`model.layers.1` is 10 to 19 too) as symsim names them, and what has no name here."""
    found, lost = [], []
    for text in asked:
        path = _LAYER.match(text)
        name = text.rsplit(".", 1)[-1] if "." in text else text
        if path is not None and architecture is not None:
            first = path[2].split(".")[0] if path[2] else ""
            if first and first not in _INSIDE:
                lost.append(text)
                continue
            exact = path[2] is not None
            chosen = [i for i in range(architecture.num_layers) if (str(i) == path[1] if exact else str(i).startswith(path[1]))]
            rest = f".{_INSIDE[first]}" if first else ""
            found += [f"layers.{a}-{b}{rest}" for a, b in _runs(chosen)]
        elif name in _MODULES:
            found.append(_MODULES[name])
        elif name in ("model", "layers", "decoder"):
            found.append("layers")
        else:
            lost.append(text)
    return list(dict.fromkeys(found)), lost


def _runs(indices: list[int]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for i in indices:
        made = [*made[:-1], (made[-1][0], i)] if made and made[-1][1] == i - 1 else [*made, (i, i)]
    return made


def leading_layers(architecture: Architecture, ratio: float) -> list[str]:
    """The embedding and whole leading layers that have at most this share of the parameters, in their order."""
    from symsim.inputs.strategy import Strategy
    from symsim.lowering.lower import declared_alone
    from symsim.placement.sizes import values

    model = respelt(architecture)
    sizes = values(model, Strategy())

    def held(block: str) -> int:
        made = declared[block]
        at = {**sizes, f"f_{block}": (model.layer_kinds[block].ffn_hidden_size or 0) if block in model.layer_kinds else 0}
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
