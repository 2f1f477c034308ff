"""Configs of the sizes that are trained, counted by transformers on the meta device and by symsim.

    python tests/draws/realistic.py --each 2 --seed 1

tests/draws/huggingface.py draws small models of every key; here hidden sizes, heads, depths, experts and vocabularies are those of real ones, a
config is written as hubs have it (older names of rotary positions, keys of a save), and rules of which layer is which meet real depths.
Parameters are compared as integers, by module and in total, and every refusal is listed: of a config that transformers builds there should be
few. Exit code 1 when a count differs. Needs transformers and torch.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from dataclasses import dataclass
from multiprocessing import get_context

from huggingface import SAME_CLASS, TYPES, Draw, Json, Outcome, build, compare, draw, table

OF_A_SAVE: Json = {"torch_dtype": "bfloat16", "transformers_version": "4.57.1", "use_cache": True, "initializer_range": 0.02}


@dataclass
class Large(Draw):
    """Sizes of models that are trained."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.layers = rng.randint(12, 64)
        self.heads = rng.choice([8, 12, 16, 24, 32, 40, 64])
        self.groups = rng.choice([g for g in (1, 2, 4, 8, self.heads) if self.heads % g == 0])
        self.head_dim = rng.choice([64, 80, 96, 128, 192])
        self.hidden = self.heads * rng.choice([64, 80, 128])
        self.experts = rng.choice([8, 16, 32, 60, 64, 128])
        self.n_group = rng.choice([g for g in (1, 2, 4) if self.experts % g == 0])
        self.key_heads = rng.choice([8, 16])
        self.vocabulary = rng.choice([32000, 50257, 128256, 151936, 201088])

    def width(self) -> int:
        return 64 * self.rng.randint(6, 200)


def hub(rng: random.Random, config: Json) -> Json:
    """The same as a hub has it: what a save writes beside it, and rotary positions by their older names."""
    made = dict(config)
    turned = made.get("rope_parameters")
    if isinstance(turned, dict) and set(turned) <= {"rope_type", "rope_theta"} and rng.random() < 0.5:
        del made["rope_parameters"]
        made |= {"rope_theta": turned["rope_theta"], "rope_scaling": rng.choice([None, {"rope_type": "linear", "factor": 2.0}])}
    if isinstance(made.get("text_config"), dict):
        made["text_config"] = hub(rng, made["text_config"])
    return made | OF_A_SAVE


def outcome(task: tuple[int, int, str]) -> Outcome:
    seed, index, model_type = task
    rng = random.Random(f"{seed} {index} {model_type}")
    refusal: Exception | None = None
    for _ in range(60):
        config = hub(rng, draw(rng, model_type, Large))
        try:
            model = build(config)
        except Exception as error:  # noqa: BLE001 (transformers refuses: any of its own exceptions)
            refusal = error
            continue
        return compare(config, model)
    return Outcome(model_type, "different", f"transformers builds none: {refusal}", "", {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=1, help="configs of a type")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    tasks = [(given.seed, i, name) for name in given.types.split(",") for i in range(given.each)]
    assert not set(given.types.split(",")) - {*TYPES, *SAME_CLASS}, "types that symsim does not read"
    with get_context("spawn").Pool(given.jobs) as pool:
        found = list(pool.imap_unordered(outcome, tasks, chunksize=2))
    print(table(found))
    return int(any(one.fate == "different" for one in found))


if __name__ == "__main__":
    sys.exit(main())
