"""Merak's pipeline: schedule, partition into stages, and what of every stage runs again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from symsim.importers.keys import Entry, Keys
from symsim.importers.merak.shards import (
    LAYER_POINTS,
    Sizes,
    balanced,
    by_layers,
    by_parameters,
    by_points,
    cut_at,
    in_halves,
    layers_of,
    layout,
    run_again,
    run_again_in_part,
    stage_ratios,
    uniform,
    weights,
)
from symsim.inputs.architecture import Architecture

SCHEDULES = {
    "1f1b": "merak_1f1b",
    "ds_default": "ds_default",
    "pre_recompute_1f1b": "pre_recompute_1f1b",
    "last_no_recompute_1f1b": "last_no_recompute_1f1b",
    "shifted_critical_path": "shifted_critical_path",
    "full_critical_path_1f1b": "shifted_critical_path",
}
PARTITIONS = ("uniform", "uniform_floor", "parameters", "custom", "autopipe")
SPLITS = ("farthest_min_deps", "layer_split", "nearest_min_deps")
_LAST_KEEPS = ("last_no_recompute_1f1b", "shifted_critical_path")
_APPROXIMATE = "taken as whole layers, an equal share for every stage: a stage may hold up to a layer more or less"


def pipeline(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], model: Architecture | None, faithful: bool) -> Architecture | None:
    """schedule, pipeline_model_parallel_layout, recompute and its layers by stage, deallocate_pipeline_outputs; the model, in halves of
    layers where stages end inside one."""
    freed = keys.flag("dealloc_pipeoutput", False, to="deallocate_pipeline_outputs")
    if "dealloc_pipeoutput" not in keys.given:
        keys.note("dealloc_pipeoutput", "derived", "deallocate_pipeline_outputs", "false by default: a stage's output stays until its backward")
    strategy["deallocate_pipeline_outputs"] = freed
    schedule = _schedule(keys, strategy)
    ratios = _ratios(keys, strategy["pp"], schedule)
    model, stages = _stages(keys, strategy, model, faithful)
    _recomputation(keys, strategy, assumptions, model, schedule, ratios, stages, faithful)
    return model


def _schedule(keys: Keys, strategy: dict[str, Any]) -> str:
    schedule: str = keys.choice("train_schedule", SCHEDULES, "merak_1f1b", to="schedule")
    if "train_schedule" not in keys.given:
        keys.note("train_schedule", "derived", "schedule", "1f1b by default")
    if strategy["pp"] > 1:
        strategy["schedule"] = schedule
    elif "train_schedule" in keys.given:
        keys.note("train_schedule", "no_cost_effect", why="at pp=1 there is no pipeline")
    if schedule == "shifted_critical_path" and strategy["pp"] > 1 and not keys.has("activation_checkpoint_ratio"):
        keys.refuse("train_schedule", "Merak runs it with shares of checkpoints; give activation_checkpoint_ratio, such as [0.8]")
    return schedule if strategy["pp"] > 1 else ""


def _numbers(keys: Keys, key: str) -> list[float] | None:
    """Numbers from one, from a list, or from text with commas."""
    if not keys.has(key):
        return None
    value = keys.given[key].value
    parts = value if isinstance(value, (list, tuple)) else [value]
    texts = [text for part in parts for text in str(part).replace(",", " ").strip(" []()").split()]
    try:
        found = [float(text) for text in texts]
    except ValueError:
        raise keys.wrong(key, "a list of numbers, such as [0.8, 0.5]") from None
    if not found or not all(math.isfinite(n) and abs(n) < 10**9 for n in found) or len(found) > 10_000:
        raise keys.wrong(key, "a list of numbers, such as [0.8, 0.5]")
    return found


def _ratios(keys: Keys, stages: int, schedule: str) -> list[float] | None:
    given = _numbers(keys, "activation_checkpoint_ratio")
    if given is None:
        return None
    if any(ratio > 1 for ratio in given):
        raise keys.wrong("activation_checkpoint_ratio", "shares from 0 to 1")
    ratios = stage_ratios(given, stages)
    if schedule == "shifted_critical_path" and stages > 2:
        ratios[-2] = ratios[-3]
    shown = ", ".join(f"{max(ratio, 0):.3g}" for ratio in ratios[:8])
    keys.note("activation_checkpoint_ratio", "mapped", "recompute_layers_per_stage", f"of the stages' shards: {shown}")
    return ratios


# Stages


def _stages(keys: Keys, strategy: dict[str, Any], model: Architecture | None, faithful: bool) -> tuple[Architecture | None, list[list[str]] | None]:
    """The model, and the shards of every stage; None for what is not known."""
    method = keys.choice("partition_method", dict.fromkeys(PARTITIONS), to="pipeline_model_parallel_layout")
    method = str(keys.given["partition_method"].value).strip() if keys.has("partition_method") else "uniform_floor"
    split = str(keys.given["split_method"].value).strip() if keys.has("split_method") else "nearest_min_deps"
    keys.choice("split_method", dict.fromkeys(SPLITS), to="pipeline_model_parallel_layout")
    for key, value, document in (("partition_method", method, "uniform"), ("split_method", split, "farthest_min_deps")):
        if key not in keys.given:
            keys.note(key, "derived", "pipeline_model_parallel_layout", f"{value} in the code, where the document says {document}")
    boundaries = _numbers(keys, "custom_partition")
    points = keys.texts("custom_split_points")
    count = keys.integer("shard_count", least=1)
    if "custom_partition" in keys.given and method != "custom":
        keys.note("custom_partition", "no_cost_effect", why="read with partition_method=custom alone")
    elif method == "custom" and boundaries is None:
        keys.refuse("partition_method", "custom takes the boundaries of stages; give custom_partition")
    for key, reads in (("custom_split_points", "layer_split"), ("shard_count", "farthest_min_deps")):
        if key in keys.given and split != reads:
            keys.note(key, "no_cost_effect", why=f"not read with split_method={split}")
    if model is None:
        for key in ("partition_method", "split_method", "custom_partition", "custom_split_points", "shard_count"):
            if key in keys.given:
                keys.note(key, "not_modelled", why="the stages follow from the model; --of names it")
        return None, None
    if split == "nearest_min_deps":
        keys.note("split_method", _fate(keys, "split_method"), "pipeline_model_parallel_layout", _of_operations(strategy, model))
        return model, None
    shards = _shards(keys, split, model, points, count)
    if any("f" in shard for shard in shards):
        model, shards = in_halves(model), [shard.replace("a", "t").replace("f", "t") for shard in shards]
    made = _cut(keys, method, shards, strategy["pp"], model, boundaries, faithful)
    if made is not None and strategy["pp"] > 1:
        strategy["pipeline_model_parallel_layout"] = layout(made)
    return model, made


def _shards(keys: Keys, split: str, model: Architecture, points: Sequence[str] | None, count: int | None) -> list[str]:
    if split == "layer_split":
        if points is not None:
            keys.note("custom_split_points", "mapped", "pipeline_model_parallel_layout", "a shard begins at every layer that is named")
            return by_points(model, points)
        if model.modelling and not any(name in model.modelling for name in LAYER_POINTS):
            keys.note("split_method", "derived", "pipeline_model_parallel_layout", "Merak has no table of cuts for the model: before every layer")
        return by_layers(model)
    named = "shard_count" if count is not None else "split_method"
    shards = by_parameters(model, _sizes(model), count or 2 * model.num_layers + 4)
    if any("f" in shard for shard in shards):
        why = f"{len(shards)} shards, some of half a layer: a layer is two, attention and feed-forward network"
        keys.note(named, "mapped" if named in keys.given else "derived", "layer_kinds, pipeline_model_parallel_layout", why)
    elif count is not None:
        keys.note("shard_count", "mapped", "pipeline_model_parallel_layout", f"{len(shards)} shards, which end where the residual stream is alone")
    return shards


def _of_operations(strategy: dict[str, Any], model: Architecture) -> str:
    """What nearest_min_deps changes at most. Where it cuts follows from the graph that torch.fx makes of the modelling code of the installed
    transformers: Merak's own search over GPT-2 of 12, 24 and 48 layers (transformers 4.36.2) ends shards at the scores of attention, between norm
    and feed-forward network, and in the middle of that; of 2, 4 and 8 stages the longest has 0.33 to 0.67 of a layer's parameters above the mean."""
    layers, hidden = model.num_layers / strategy["pp"], model.hidden_size
    inside = max([model.attention.num_attention_heads * strategy.get("seq_length", 0), *([2 * model.mlp.ffn_hidden_size] if model.mlp else [])])
    most = f"{2 / 3 / layers:.0%} of its {layers:.3g} layers, and a boundary inside a layer sends up to {2 + inside / hidden:.3g} times the stream"
    return (
        "shards of a third of a layer or so, which follow from the torch.fx graph of the installed modelling code that no job has, are taken as "
        f"whole layers, an equal share for every stage: the longest may have 2/3 of one more, {most}"
    )


def _fate(keys: Keys, key: str) -> Any:
    return "not_modelled" if key in keys.given else "derived"


def _cut(
    keys: Keys, method: str, shards: Sequence[str], pp: int, model: Architecture, given: Sequence[float] | None, faithful: bool
) -> list[list[str]] | None:
    n = len(shards)
    if method == "autopipe":
        keys.note("partition_method", "not_modelled", why=f"a heuristic over profiled FLOPs; {_APPROXIMATE}")
        return None
    if method == "custom":
        ends = [int(one) for one in given or ()]
        if len(ends) != pp + 1 or ends != sorted(set(ends)) or ends[0] != 0 or ends[-1] != n or any(one != int(one) for one in given or ()):
            key = "custom_partition" if "custom_partition" in keys.given else "partition_method"
            raise keys.wrong(key, f"{pp + 1} boundaries from 0 to {n}, the number of shards, each above the one before")
        keys.note("custom_partition", "mapped", "pipeline_model_parallel_layout", f"of {n} shards")
        return cut_at(shards, ends)
    ends = balanced(weights(shards, _sizes(model)), pp) if method == "parameters" else uniform(n, pp, ceil=method == "uniform")
    made = cut_at(shards, ends)
    if made is not None:
        return made
    told = f"{method} leaves a stage of {pp} without any of the {n} shards"
    if faithful or n < pp:
        key = "partition_method" if "partition_method" in keys.given else "pp"
        raise keys.wrong(key, f"another, since {told}")
    keys.note("partition_method", "derived", "pipeline_model_parallel_layout", f"{told}: taken as uniform_floor")
    return cut_at(shards, uniform(n, pp, ceil=False))


def _sizes(model: Architecture) -> Sizes:
    """Parameters of the model's pieces, counted from its blocks."""
    from symsim.inputs.strategy import Strategy
    from symsim.inputs.trained import respelt
    from symsim.lowering.lower import declared_alone
    from symsim.placement.sizes import values

    blocks = declared_alone(model)
    model = respelt(model)
    given = {**values(model, Strategy())}
    found: dict[str, tuple[int, int]] = {}
    tables = {"V": 0, "P": 0}
    for name, block in blocks.items():
        halves = [0, 0]
        for tensor in block.parameters():
            elements = math.prod(int(block.dims[d].size.evaluate(given | _width(model, name))) for d in tensor.dims)
            halves[not (tensor.module == "attention" or "attention" in tensor.name)] += elements
            if name == "embedding":
                tables["P" if "P" in tensor.dims else "V"] += elements
        found[name] = (halves[0], halves[1])
    layers = tuple(found[kind] for segment in model.layers for _ in range(segment.repeat) for kind in segment.kinds)
    return Sizes(tables["V"], tables["P"], layers, sum(found["head"]))


def _width(model: Architecture, name: str) -> dict[str, int]:
    kind = model.layer_kinds.get(name)
    return {f"{dim}_{name}": size for dim, size in kind.own.items()} if kind is not None else {}


# Recomputation


def _recomputation(
    keys: Keys,
    strategy: dict[str, Any],
    assumptions: dict[str, str],
    model: Architecture | None,
    schedule: str,
    ratios: Sequence[float] | None,
    stages: list[list[str]] | None,
    faithful: bool,
) -> None:
    on = keys.flag("activation_checkpointing", True, to="recompute")
    interval = keys.integer("checkpoint_num_layers", 1, to="recompute_num_layers", why="shards a checkpoint")
    if "activation_checkpointing" not in keys.given:
        keys.note("activation_checkpointing", "derived", "recompute", "true by default")
    if not (on and interval):
        for key in ("checkpoint_num_layers", "activation_checkpoint_ratio"):
            if key in keys.given and not on:
                keys.note(key, "no_cost_effect", why="activation_checkpointing is off")
        return
    traced = keys.has("split_method") and str(keys.given["split_method"].value) != "nearest_min_deps"
    if not traced:
        interval = _layers_a_checkpoint(strategy["pp"], model)
        why = f"nearest_min_deps makes checkpoints of its own (core/pipeline/module.py), of {interval} layers or so"
        if "checkpoint_num_layers" in keys.given:
            keys.note("checkpoint_num_layers", "no_cost_effect", "recompute_num_layers", why)
        elif interval > 1:
            keys.note("checkpoint_num_layers", "derived", "recompute_num_layers", why)
    strategy["recompute"] = "full"
    assumptions["recompute_early_stop"] = "false"
    keys.rows["whole checkpoints"] = Entry(
        "whole checkpoints", "(default)", "derived", "assume.recompute_early_stop", "a checkpoint runs again to its end (core/recompute)"
    )
    if interval > 1:
        strategy["recompute_num_layers"] = interval
    if model is None:
        if ratios is not None:
            keys.note("activation_checkpoint_ratio", "not_modelled", why="the layers of every stage follow from the model; --of names it")
        return
    held = stages if stages is not None else _even(model, strategy["pp"])
    layers = [sum(shard.count("t") for shard in stage) for stage in held]
    counts = run_again(held, interval) if stages is not None else list(layers)
    if ratios is not None:
        parts = run_again_in_part(held, ratios)
        counts = [count if ratio == 1 else part for count, part, ratio in zip(counts, parts, ratios)]
        _one_checkpoint(keys, strategy, parts, faithful)
    if schedule in _LAST_KEEPS:
        counts[-1] = 0
    if not any(counts):
        strategy.pop("recompute_num_layers", None)
        del strategy["recompute"]
    elif counts != layers:
        strategy["recompute_layers_per_stage"] = counts
        why = "the chunk with the embedding, and the last one of the last stage, do not run again"
        if "recompute_layers_per_stage" not in {row.to for row in keys.rows.values()}:
            keys.rows["checkpoints"] = Entry("checkpoints", "(default)", "derived", "recompute_layers_per_stage", why)


def _layers_a_checkpoint(pp: int, model: Architecture | None) -> int:
    """Whole layers of a checkpoint under nearest_min_deps: partition_balanced cuts the shards of all stages into parts of as many parameters, so
    many that one has pp shards (thirds of a layer), and fills each up to the largest, which is one shard at least: that of the table of words.
    A stage reads the ends of parts as numbers of its own shards, from the first part on."""
    if pp == 1 or model is None:
        return 1
    sizes = _sizes(model)
    layer = sum(map(sum, sizes.layers)) / len(sizes.layers)
    return max(1, round(max(pp / 3, (sizes.embedding + sizes.positions) / layer, sizes.head / layer)))


def _even(model: Architecture, pp: int) -> list[list[str]]:
    ends = [stage * model.num_layers // pp for stage in range(pp + 1)]
    return [["t"] * (last - first) for first, last in zip(ends, ends[1:])]


def _one_checkpoint(keys: Keys, strategy: dict[str, Any], parts: Sequence[int], faithful: bool) -> None:
    """With a ratio all shards that run again are one checkpoint: one input is kept, and all are rebuilt together."""
    if max(parts) > 1:
        strategy["recompute_num_layers"] = max(parts)
    if faithful:
        why = "a stage with a ratio between 0 and 1 runs its forward twice (core/pipeline/module.py): one forward more of every micro-batch on it"
        keys.rows["double forward"] = Entry("double forward", "(defect)", "not_modelled", why=f"{why}, up to a quarter of a step")


__all__ = ["PARTITIONS", "SCHEDULES", "SPLITS", "layers_of", "pipeline"]
