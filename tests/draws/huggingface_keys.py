"""Random Hugging Face configs in which keys that a config class of transformers declares are set to other values, counted as by `huggingface.py`.

    python tests/draws/huggingface_keys.py --count 5000 --seed 1

A config of `huggingface.py` is drawn, and one to three keys are given, changed or left out: the fields of the class, the names that its
`attribute_map` has for them (alone, or beside them), what it makes of them and takes from a file in their place, and keys that module code
reads of configs that do not declare them. What transformers
refuses and symsim counts is listed too (`--counted`), by the words of the refusal. Exit code 1 when a count differs and no key is said to be unread.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import time
import typing
from collections import Counter
from dataclasses import fields
from functools import cache
from typing import Any

from huggingface import FAMILY, FLAG, KEYS, ROPE, SAME_CLASS, SIZES, Draw, Drawn, Outcome, build, compare, draw_text, table

from symsim.errors import InputError
from symsim.inputs.hf import SUPPORTED, read_config
from symsim.inputs.hf.config import ACTIVATIONS, NO_EFFECT

Json = dict[str, Any]

# read with getattr by module code whose config class may not declare them
ANYWHERE: dict[str, Drawn] = {
    "head_dim": lambda d: d.rng.choice([None, 7, 8, 10, 16]),
    "attention_head_dim": lambda d: d.rng.choice([None, 8, 10]),
    "attention_bias": FLAG,
    "mlp_bias": FLAG,
    "qkv_bias": FLAG,
    "use_bias": FLAG,
    "use_qk_norm": FLAG,
    "qk_layernorm": FLAG,
    "tie_word_embeddings": FLAG,
    "num_key_value_heads": lambda d: d.maybe(d.groups, 0.8),
    "sliding_window": lambda d: d.maybe(d.rng.randint(1, 40), 0.8),
    "use_sliding_window": FLAG,
    "partial_rotary_factor": lambda d: d.rng.choice([0.25, 0.3, 0.5, 1.0]),
    "first_k_dense_replace": lambda d: d.rng.randint(0, d.layers + 1),
    "num_shared_experts": lambda d: d.rng.randint(0, 2),
    "n_shared_experts": lambda d: d.rng.randint(0, 2),
    "rope_parameters": lambda d: d.rng.choice([None, ROPE, ROPE | {"partial_rotary_factor": 0.5}]),
}
LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv", "mamba", "attention", "hybrid", "moe", "mlp")
# of no cost, or what a model is; or (per_layer_config) not drawn here
LEFT = NO_EFFECT.keys() - {
    "rope_parameters",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "is_decoder",
    "time_step_rank",
    "original_max_position_embeddings",
    "word_embed_proj_bias",
} | {"model_type", "per_layer_config"}


@cache
def made_of(cls: Any) -> dict[str, Any]:
    """What a config class makes of its fields, under names that are none of them."""
    try:
        made = vars(cls())
    except Exception:  # noqa: BLE001 (some have no usable defaults)
        return {}
    names = {f.name for f in fields(cls)} | LEFT
    return {key: value for key, value in made.items() if key not in names and not key.startswith("_") and isinstance(value, bool | int | list)}


def kinds_of(annotation: Any) -> set[Any]:
    """The plain types that a field takes; lists as ("list", type of items)."""
    if annotation in (bool, int, float, str, dict, type(None)):
        return {annotation}
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, tuple):
        return {("list", one) for arg in args for one in kinds_of(arg)} or {("list", int)}
    if origin is dict or annotation is dict or isinstance(annotation, type):
        return {dict}
    return {kind for arg in args for kind in kinds_of(arg)}


def value_of(d: Draw, key: str, kind: Any, now: Any) -> Any:
    """Another value of a key, of one of the types that it takes."""
    rng = d.rng
    if kind is bool:
        return not now if isinstance(now, bool) and rng.random() < 0.8 else d.flag()
    if kind is int and key.endswith(("state_size", "d_state", "chunk_size")):  # of a sum over one element torch counts no product
        return rng.choice([2, 3, 5, d.head_dim])
    if kind is int:
        return rng.choice([0, 1, 2, 3, 4, d.heads, d.groups, d.head_dim, d.width(), d.layers, d.experts])
    if kind is float:
        return rng.choice([0.0, 0.1, 0.5, 1.0, 2.0])
    if kind is str:
        return rng.choice(sorted(ACTIVATIONS)) if "act" in key else now
    if kind is dict:
        return rng.choice([None, dict(ROPE), ROPE | {"partial_rotary_factor": 0.5}]) if "rope" in key else now
    if kind == ("list", str):
        names = ("dense", "sparse", "moe", "hash_moe") if "mlp" in key else LAYER_TYPES
        if isinstance(now, list) and now and rng.random() < 0.7:
            names = tuple(sorted(set(now) | {rng.choice(names)}))
        else:
            names = tuple(rng.sample(names, 2))
        return [rng.choice(names) for _ in range(d.layers)]
    if kind == ("list", int):
        return rng.choice([d.some_layers(), [rng.randint(0, 2) for _ in range(d.layers)], []])
    if kind == ("list", float):
        return [rng.choice([0.0, 1e4, 0.5]) for _ in range(d.layers)]
    return None


def changed(rng: random.Random, model_type: str, sizes: type[Draw] = Draw) -> tuple[Json, list[str]]:
    """A config, and which keys were changed."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[SAME_CLASS.get(model_type, model_type)]
    made: list[Draw] = []

    class Kept(sizes):  # type: ignore[valid-type, misc]
        def __post_init__(self) -> None:
            super().__post_init__()
            made.append(self)

    config = {key: value for key, value in draw_text(rng, model_type, Kept).items()}
    d = made[-1]
    own = {f.name: f for f in fields(cls) if f.name not in LEFT}
    names = [*own, *cls.attribute_map.keys() - LEFT - own.keys(), *made_of(cls), *ANYWHERE.keys() - own.keys() - cls.attribute_map.keys()]
    weights = [1 if name in ANYWHERE and name not in own else 3 for name in names]
    touched = []
    for key in dict.fromkeys(rng.choices(names, weights, k=rng.randint(1, 3))):
        theirs = cls.attribute_map.get(key, key)
        field = own.get(key) or own.get(theirs)
        now = config.get(key, config.get(theirs, None if field is None else field.default))
        drawn = next((of[name] for name in (key, theirs) for of in (FAMILY.get(model_type, {}), SIZES, KEYS) if name in of), None)
        kinds = sorted(kinds_of(field.type), key=str) if field is not None else []
        if key in made_of(cls):
            now = made_of(cls)[key]
            kinds = [("list", type(now[0]) if now else int) if isinstance(now, list) else type(now)]
        if key in config and key not in SIZES and rng.random() < 0.1:
            del config[key]
        elif key in ANYWHERE and (field is None or rng.random() < 0.5):
            config[key] = ANYWHERE[key](d)
        elif drawn is not None and rng.random() < 0.4:
            config[key] = drawn(d)
        elif kinds:
            config[key] = value_of(d, key, rng.choice(kinds), now if isinstance(now, bool | int | float | str | list | dict) else None)
        else:
            continue
        if theirs != key and rng.random() < 0.7:
            config.pop(theirs, None)
        touched.append(key)
    return config, touched


def outcome(seed: int, index: int, flops_every: int, types: tuple[str, ...]) -> list[Outcome]:
    """One config that transformers builds, and before it those which it refuses and symsim counts."""
    rng = random.Random(f"keys {seed} {index}")
    found: list[Outcome] = []
    for _ in range(100):
        config, touched = changed(rng, types[index % len(types)])
        if not touched:
            continue
        try:
            model = build(config)
        except Exception as error:  # noqa: BLE001 (transformers refuses: any of its own exceptions)
            try:
                read_config(config, "drawn", "config.json")
            except InputError:
                continue
            except Exception as fault:  # noqa: BLE001
                return [*found, Outcome(config["model_type"], "different", f"{type(fault).__name__}: {fault}", "", config)]
            words = f"{touched}: {type(error).__name__} {str(error)[-150:]}"
            found.append(Outcome(config["model_type"], "counted", words, "", config))
            continue
        try:
            one = compare(config, model, flops=flops_every > 0 and index // len(types) % flops_every == 0)
        except Exception as error:  # noqa: BLE001 (a fault of symsim)
            one = Outcome(config["model_type"], "different", f"{type(error).__name__}: {error}", "", config)
        if one.fate == "different":
            rows = {row[0]: row[1] for row in read_config(config, "drawn", "config.json")[1]} if "ours, " in one.note or "FLOPs" in one.note else {}
            told = [key for key in touched if rows.get(key) in ("unknown", "refused")]
            one = Outcome(one.model_type, "told" if told else "different", f"changed {touched}, told {told}: {one.note}", one.flops, config)
        return [*found, one]
    return found


def _one(task: tuple[int, int, int, tuple[str, ...]]) -> list[Outcome]:
    return outcome(*task)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(SUPPORTED))
    parser.add_argument("--flops-every", type=int, default=10, help="0: never")
    parser.add_argument("--counted", action="store_true", help="list what transformers refuses and symsim counts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    from transformers import CONFIG_MAPPING

    types = tuple(name for name in given.types.split(",") if SAME_CLASS.get(name, name) in CONFIG_MAPPING)
    start = time.time()
    tasks = [(given.seed, i, given.flops_every, types) for i in range(given.count)]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        every = [one for ones in pool.imap_unordered(_one, tasks, chunksize=20) for one in ones]
    found, counted = [one for one in every if one.fate not in ("counted", "told")], [one for one in every if one.fate == "counted"]
    print(table(found))
    for one in every:
        if one.fate == "told":
            print(f"TOLD {one.model_type}: {one.note}\n    {json.dumps(one.config)}")
    if given.counted:
        for (name, words), times in Counter((one.model_type, re.sub(r"\d+", "N", one.note)) for one in counted).most_common():
            print(f"COUNTED {times:4} {name}: {words}")
    print(
        f"{len(found)} configs that transformers builds in {time.time() - start:.0f} s, {len(counted)} that it refuses and symsim counts; "
        f"{sum(one.fate == 'told' for one in every)} others are different and symsim says which keys it does not read"
    )
    return int(any(one.fate == "different" for one in found))


if __name__ == "__main__":
    sys.exit(main())
