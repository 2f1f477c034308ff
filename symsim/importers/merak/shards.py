"""Merak's shards and stages: how a traced model is cut into pieces, how pieces become stages, and which of them run again.

A shard is a text of what it holds, as in pipeline_model_parallel_layout: E embedding, p learned positions, t layer (or a and f, its
halves), L head and loss.
Merak core/fx/graph_shard (layer_config.py, farthest_deps.py), core/pipeline/module_utils.py and module.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from symsim.inputs.architecture import Architecture
from symsim.pipeline.layout import pipeline_layout

# whose table of cuts has one before the final norm or the head (layer_config.py get_split_points)
HEAD_APART = ("gpt2", "gptj", "qwen")
LAYER_POINTS = HEAD_APART + ("llama", "opt")


class Sizes(NamedTuple):
    """Parameters of the embedding, of the positions' table, of every layer's two halves, and of the head."""

    embedding: int
    positions: int
    layers: tuple[tuple[int, int], ...]
    head: int


def by_layers(model: Architecture) -> list[str]:
    """split_method=layer_split: a shard before the first layer, one a layer, and for some models one for the head."""
    apart = any(name in model.modelling for name in HEAD_APART)
    layers = ["t"] * model.num_layers
    return ["Ep", *layers, "L"] if apart else ["Ep", *layers[:-1], "tL"]


def by_points(model: Architecture, points: Sequence[str]) -> list[str]:
    """layer_split at given nodes: a cut before every layer that one names by its number, and before the head where one is named without."""
    numbers = (re.search(r"\.(\d+)$", point) for point in points)
    starts = {int(found[1]) for found in numbers if found is not None}
    shards = ["Ep"]
    for layer in range(model.num_layers):
        if layer in starts:
            shards.append("t")
        else:
            shards[-1] += "t"
    if any(not re.search(r"\d", point) for point in points):
        return [*shards, "L"]
    return [*shards[:-1], shards[-1] + "L"]


def by_parameters(model: Architecture, sizes: Sizes, count: int) -> list[str]:
    """split_method=farthest_min_deps: shards of at least the parameters of one of `count` equal ones, each ending where the residual
    stream is alone. Where some end inside a layer, all are of halves: a attention, f feed-forward network."""
    share = (sum(map(sum, sizes.layers)) + (0 if model.tie_word_embeddings else sizes.head)) // max(count, 1)
    shards = ["E", *(["p"] if sizes.positions else []), ""]
    held = 0
    for half, parameters in (one for layer in sizes.layers for one in zip("af", layer)):
        shards[-1] += half
        held += parameters
        if held > share:
            shards.append("")
            held = 0
    shards[-1] += "L"
    whole = [shard.replace("af", "t") for shard in shards]
    return shards if any(set(shard) & set("af") for shard in whole) else whole


def in_halves(model: Architecture) -> Architecture:
    """The model with every layer as two, of attention and of the feed-forward network alone."""
    data = model.model_dump()
    halves = {"a": ("attention", "ffn"), "f": ("ffn", "mixer")}
    kinds = {f"{k}_{word}": {**spec, other: "none"} for k, spec in data["layer_kinds"].items() for word, other in halves.values()}
    layers = [{"repeat": s.repeat, "kinds": [f"{k}_{word}" for k in s.kinds for word, _ in halves.values()]} for s in model.layers]
    return Architecture.model_validate({**data, "layer_kinds": kinds, "layers": layers})


def uniform(items: int, parts: int, *, ceil: bool) -> list[int]:
    """Boundaries of partition_method=uniform (ceil) and uniform_floor. With ceil and a remainder they may run past the last item."""
    if items <= parts:
        return [min(part, items) for part in range(parts + 1)]
    chunk = -(-items // parts) if ceil else items // parts
    return [min(chunk * part, items) + min(items % parts, max(0, part - 1)) for part in range(parts)] + [items]


def balanced(weights: Sequence[int], parts: int) -> list[int]:
    """Boundaries of partition_method=parameters: the heaviest part as light as can be, and the first parts as full as that allows."""
    if len(weights) <= parts:
        return uniform(len(weights), parts, ceil=True)
    low, high = max(max(weights), -(-sum(weights) // parts)), sum(weights)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_filled(weights, middle)) <= parts else (middle + 1, high)
    ends = list(accumulate(_filled(weights, high)))
    return [0, *ends, *[len(weights)] * (parts - len(ends))]


def _filled(weights: Sequence[int], most: int) -> list[int]:
    """How many items each part takes, in order, when none is to weigh more."""
    counts, held = [0], 0
    for weight in weights:
        if held + weight > most and counts[-1]:
            counts.append(0)
            held = 0
        counts[-1] += 1
        held += weight
    return counts


def weights(shards: Sequence[str], sizes: Sizes) -> list[int]:
    """Parameters of each shard."""
    layers = iter(sizes.layers)
    one = {"E": sizes.embedding, "p": sizes.positions, "L": sizes.head}
    return [sum(sum(next(layers)) if part == "t" else one[part] for part in shard) for shard in shards]


def cut_at(shards: Sequence[str], boundaries: Sequence[int]) -> list[list[str]] | None:
    """The shards of every stage; None where one is left without any."""
    stages = [list(shards[first:last]) for first, last in pairwise(boundaries)]
    return stages if all(stages) and all(first <= last for first, last in pairwise(boundaries)) else None


def layout(stages: Sequence[Sequence[str]]) -> str:
    """The stages as a pipeline_model_parallel_layout: Et*5|t*7|t*6L."""
    texts = []
    for stage in stages:
        text = "".join(stage).replace("p", "")
        texts.append(re.sub(r"t{2,}", lambda run: f"t*{len(run[0])}", text))
    return "|".join(texts)


def layers_of(text: str) -> list[int]:
    """Layers of every stage of a layout."""
    return [stage.count("t") for stage in pipeline_layout(text)]


def run_again(stages: Sequence[Sequence[str]], interval: int) -> list[int]:
    """Layers of every stage inside its checkpoints of `interval` shards: none with the embedding, nor the last of the last stage."""
    found = []
    for index, stage in enumerate(stages):
        chunks = [stage[at : at + interval] for at in range(0, len(stage), interval)]
        taken = chunks[:-1] if index == len(stages) - 1 else chunks
        found.append(sum("".join(chunk).count("t") for chunk in taken if not set("".join(chunk)) & set("Ep")))
    return found


def run_again_in_part(stages: Sequence[Sequence[str]], ratios: Sequence[float]) -> list[int]:
    """Layers of every stage in its one checkpoint: of the shards without embedding and head the first ones, int(ratio * shards) of them."""
    found = []
    for stage, ratio in zip(stages, ratios):
        able = [shard for shard in stage if not set(shard) & set("EpL")]
        found.append(sum(shard.count("t") for shard in able[: max(0, int(len(stage) * ratio))]))
    return found


def stage_ratios(given: Sequence[float], stages: int) -> list[float]:
    """activation_checkpoint_ratio of every stage: one number is the first stage's, of which later ones recompute less and the last
    nothing; of several the last holds for the rest."""
    if len(given) == 1:
        return [1 - (1 - given[0]) * (stages - 1) / (stages - 1 - stage) for stage in range(stages - 1)] + [0.0]
    return [*given, *[given[-1]] * (stages - len(given))][:stages]
