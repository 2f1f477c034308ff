"""Random spaces of strategies: bounds of their cells against the values of all members, point by point.

    python tests/draws/plans.py --spaces 30 --points 1000000 --seed 1

Of every space options are drawn in full; the points of the grid of sizes under them are evaluated by a sweep, and compared with the bounds of all
cells that hold them. Ends with 1 where a bound is above a value, or what fits is ruled out.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import symsim
from symsim.inputs.models import load_model
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.space import Asked
from tests.plan_bounds import checked, searched

MODELS = ("smollm2-360m", "llama3-8b", "olmoe-1b-7b", "mixtral-8x7b", "llama3-70b", "deepseek-v3")
SYSTEMS = ("h100-sxm", "a100-sxm-80")
ALLOWED = (
    "cross_entropy_fusion=unfused,te,linear",
    "grad_reduce_in_fp32=true,false",
    "cuda_graph_impl=none,local",
    "delay_wgrad_compute=false,true",
    "defer_embedding_wgrad_compute=false,true",
    "recompute_num_layers=1,2",
)


def drawn(draw: random.Random) -> Asked:
    model, framework = load_model(draw.choice(MODELS)), draw.choice(list(FRAMEWORKS))
    allowed = [text for text in ALLOWED if framework == "megatron" and draw.random() < 0.4]
    world, batch = 2 ** draw.randint(2, 10), 2 ** draw.randint(4, 12)
    return Asked(model, model.architecture, draw.choice(SYSTEMS), world, batch, 4096, FRAMEWORKS[framework], {}, tuple(allowed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spaces", type=int, default=30)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, began = random.Random(given.seed), time.perf_counter()
    compared, failed, spaces = 0, 0, 0
    while spaces < given.spaces or compared < given.points:
        asked = drawn(draw)
        said = f"{asked.model.name} {asked.framework.title} world={asked.world} batch={asked.batch} {' '.join(asked.allowed)}"
        try:
            search = searched(asked, draw.choice((0.1, 0.3, 1.0)))
            found = [checked(search, [draw.randrange(len(c.rows)) for c in search.choices]) for _ in range(2)]
        except symsim.InputError as error:
            print(f"{said}: {error}")
            continue
        spaces += 1
        compared += sum(more for more, _ in found)
        for _, wrong in found:
            failed += len(wrong)
            for one in wrong:
                print(f"WRONG {said}: {one}")
        print(f"{spaces}: {said}: {compared:,} compared, {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{compared:,} bounds of {spaces} spaces, {failed} wrong, seed {given.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
