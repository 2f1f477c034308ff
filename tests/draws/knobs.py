"""Options of a strategy, and assumptions, two and three at a time, drawn from those that each move something (tests/test_knobs.py): grids and plans.

    python tests/draws/knobs.py --grids 500 --plans 150 --seed 1

Of a grid every row beside the evaluation of its strategy, and no row lost; what the evaluation refuses, the grid has to refuse too. Of a plan of a
few thousand configurations what `plans_brute.py` asks. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from draws.plans_brute import configurations, one_row
from plan_brute import Question, brute, told, wrong_best, wrong_certificate
from test_knobs import CHOICES, KNOBS

import symsim
from symsim.errors import InputError
from symsim.inputs.assumptions import resolve
from symsim.inputs.models import load_model
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.planning.space import space_of

SYSTEM = "h100-sxm"
COLUMNS = ("time.step", "memory.peak", "flops.forward", "params.per_rank")
# rows are drawn or read from files, the order of ranks is none of an axis, or the model has a field of the name
APART = frozenset("padding_free packed_document_length document_lengths placement rank_order pipeline_model_parallel_layout mtp_num_layers".split())
# what a plan is asked for, or settles by itself
OF_PLANS = frozenset("tp cp pp vpp ep etp dp sp world zero num_microbatches micro_batch_size global_batch_size seq_length".split())
MOST = 6000


# of each name, as --axis takes it, a model, what is around it, and two values
KNOWN: Mapping[str, tuple[str, dict[str, Any], Any, Any]] = {
    **{n: (model, around, Strategy.model_fields[n].default, other) for n, (model, around, other) in KNOBS.items()},
    **{f"assume.{n}": (model, around, resolve({})[n], other) for n, (model, around, other) in CHOICES.items()},
}


def options(draw: random.Random, several: int, without: frozenset[str] = APART) -> tuple[str, dict[str, Any], list[tuple[str, Any, Any]]]:
    """A model, what some of its options need around them, and these, each with two values."""
    while True:
        some = [k for k in KNOWN if k not in without and " " not in KNOWN[k][0]]
        model = KNOWN[draw.choice(some)][0]
        own = [k for k in some if KNOWN[k][0] == model]
        if len(own) < several:
            continue
        names = draw.sample(own, several)
        around: dict[str, Any] = {"seq_length": 4096}
        for name in reversed(names):
            around |= KNOWN[name][1]
        pairs = [(n, around.pop(n, KNOWN[n][2]), KNOWN[n][3]) for n in names]
        if not any("," in text_of(v) for _, *values in pairs for v in values):
            return model, around, pairs


def wrong_grid(draw: random.Random) -> Iterator[str]:
    """What of a grid is not as its strategies alone. InputError where it is refused as a whole."""
    model, around, pairs = options(draw, 3)
    axes = [f"{n}={text_of(a)},{text_of(b)}" if draw.random() < 0.5 else f"{n}={text_of(b)},{text_of(a)}" for n, a, b in pairs]
    base = ",".join(f"{n}={text_of(v)}" for n, v in around.items() if n not in {name for name, *_ in pairs})
    found = symsim.sweep(model, axes, base, SYSTEM, columns=",".join(COLUMNS))
    said = f"{model} {base} {' '.join(axes)}: "
    if len(found) + sum(found.refused.values()) != 2 ** len(axes):
        yield f"{said}{len(found)} rows and {found.refused} of {2 ** len(axes)}"
    for at in range(len(found)):
        own = {n: next(v for v in values if text_of(v) == text_of(_plain(found.rows[n][at]))) for n, *values in pairs}
        try:
            alone = symsim.derive(model, base, overrides={n: text_of(v) for n, v in own.items()}, system=SYSTEM)
        except InputError as error:
            yield f"{said}{own} is refused alone: {error}"
            continue
        for name in COLUMNS:
            one, other = float(found.rows[name][at]), float(alone.value(name))
            if not math.isclose(one, other, rel_tol=1e-9):
                yield f"{said}{own}: {name} is {one}, alone {other}"


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def question(draw: random.Random) -> Question | None:
    """A plan over two options; None where its space has too many configurations, or none."""
    model, around, pairs = options(draw, 2, APART | OF_PLANS - {"etp"} | {n for n in KNOWN if n.startswith("assume.")})
    fixed: dict[str, Any] = {"cp": 1, **{n: v for n, v in around.items() if n not in OF_PLANS}}
    if "recompute" not in fixed and not {"recompute", "recompute_modules"} & {n for n, *_ in pairs}:
        fixed |= {"recompute": draw.choice(("none", "full")), "recompute_modules": ("core_attn",)}
    world = draw.choice((8, 16, 32))
    asked = Question(
        load_model(model),
        SYSTEM,
        world,
        world * draw.choice((2, 4, 8)),
        4096,
        "megatron",
        draw.choice(("tokens_per_second", "tokens_per_second", "memory")),
        draw.choice((1.0, 0.6, 0.35)),
        draw.choice((1, 5, 20)),
        fixed,
        tuple(f"{n}={text_of(a)},{text_of(b)}" for n, a, b in pairs),
    )
    names = {n for n, *_ in pairs}
    try:
        while configurations(asked) > MOST:
            sizes, choices, _ = space_of(asked.asked)
            own: Mapping[tuple[str, ...], int] = {**{c.names: len(c.rows) for c in choices}, **{a.names: len(a.columns[0]) for a in sizes}}
            free = [n for n, several in own.items() if several > 1 and not names & set(n)]
            if not free:
                return None
            chosen, row = one_row(draw, asked, draw.choice(free))
            asked = replace(asked, fixed={**asked.fixed, **dict(zip(chosen, row))})
    except InputError:
        return None
    return asked


def wrong_plan(asked: Question) -> list[str]:
    """What of a plan is not so of all its configurations. InputError where none runs."""
    of = brute(asked)
    try:
        found, search = told(asked)
    except InputError as error:
        return [f"refused, and some run: {error}"]
    return [*wrong_best(found, asked.top, of), *wrong_certificate(found, search, of)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grids", type=int, default=500)
    parser.add_argument("--plans", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, began = random.Random(given.seed), time.perf_counter()
    counts = {"grids": 0, "plans": 0, "refused as a whole": 0, "wrong": 0}
    for kind, several in (("grids", given.grids), ("plans", given.plans)):
        while counts[kind] < several:
            asked = None if kind == "grids" else question(draw)
            if kind == "plans" and asked is None:
                continue
            try:
                wrong = list(wrong_grid(draw)) if asked is None else [f"{asked.said()}: {one}" for one in wrong_plan(asked)]
            except InputError:
                counts["refused as a whole"] += 1
                continue
            counts[kind] += 1
            counts["wrong"] += bool(wrong)
            for one in dict.fromkeys(wrong):
                print(f"WRONG {one}", flush=True)
            if counts[kind] % 20 == 0:
                print(", ".join(f"{n} {what}" for what, n in counts.items()), f"{time.perf_counter() - began:.0f} s", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.items()) + f", seed {given.seed}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
