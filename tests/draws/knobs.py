"""Options of a strategy, assumptions, sizes and rates, two to four at a time: grids and plans.

    python tests/draws/knobs.py --grids 500 --plans 150 --seed 1

Options that each move something (tests/test_knobs.py) in the surroundings in which they do, and of grids any over a strategy that is drawn, of any
model, on any system, with a framework's own options. Of a grid every row beside the evaluation of its strategy, and no row lost; what the evaluation
refuses, the grid has to refuse too. Of a plan of a few thousand configurations what `plans_brute.py` asks. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import same_drawn
from draws.plans_brute import MODELS, configurations, one_row
from inputs_good import DEGREES, SIZES, assumed, option_value
from plan_brute import Question, brute, told, wrong_best, wrong_certificate
from test_knobs import CHOICES, KNOBS

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.quantities import QUANTITIES
from symsim.grid.api import SweepRows
from symsim.inputs.assumptions import resolve
from symsim.inputs.models import load_model
from symsim.inputs.settings import text_of
from symsim.inputs.shipped import list_systems
from symsim.inputs.strategy import Strategy
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.space import space_of

SYSTEM = "h100-sxm"
# not numbers of a run, nor where a price is needed, nor what numerical slopes stand behind: an interval's ends
COLUMNS = tuple(n for n in QUANTITIES if not n.startswith(("run.", "cost", "time.step_")))
RATES = {
    "B_1": ("100 GB/s", "300 GB/s"),
    "B_2": ("10 GB/s", "50 GB/s"),
    "B_hbm": ("1 TB/s", "3 TB/s"),
    "eta_gemm": ("0.5", "0.8"),
    "alpha_1": ("1 us", "20 us"),
    "t_gemm": ("1 us", "20 us"),
    "accelerator.memory": ("40 GB", "200 GB"),
    "B_host": ("10 GB/s", "60 GB/s"),
    "t_launch": ("1 us", "10 us"),
}
SIZES_OF_MODELS = {"num_layers": ("8", "24"), "hidden_size": ("2048", "4096"), "lam": ("1", "1.5"), "vocab_size": ("32000", "128256")}
# rows are drawn or read from files, the order of ranks is none of an axis, or the model has a field of the name
APART = frozenset("padding_free packed_document_length document_lengths placement rank_order pipeline_model_parallel_layout mtp_num_layers".split())
# what a plan is asked for, or settles by itself
OF_PLANS = frozenset("tp cp pp vpp ep etp dp sp world zero num_microbatches micro_batch_size global_batch_size seq_length".split())
MOST = 6000
MOST_SAID = 8


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


@dataclass(frozen=True)
class Grid:
    """A grid as `symsim sweep` takes it, all of it text."""

    model: str
    base: Mapping[str, str]
    settings: Mapping[str, str]
    system: str
    axes: Mapping[str, Sequence[str]]

    def said(self) -> str:
        sets, axes = [f"--set {n}='{v}'" for n, v in self.settings.items()], [f"--axis {n}='{v}'" for n, v in self._axes()]
        return " ".join([f"{self.model} -s {self.strategy} -y {self.system}", *sets, *axes])

    def _axes(self) -> Iterator[tuple[str, str]]:
        yield from ((name, ",".join(values)) for name, values in self.axes.items())

    @property
    def strategy(self) -> str:
        return ",".join(f"{n}={v}" for n, v in self.base.items())

    def swept(self, columns: Sequence[str]) -> SweepRows:
        return symsim.sweep(self.model, [f"{n}={v}" for n, v in self._axes()], self.strategy, self.system, overrides=self.settings, columns=columns)

    def alone(self, point: Mapping[str, str]) -> Result:
        own = {**self.settings, **point}
        machine = own.pop("system", self.system)
        around = {n: v for n, v in self.base.items() if n not in point}
        return symsim.derive(self.model, ",".join(f"{n}={v}" for n, v in around.items()), overrides=own, system=machine)


def known_grid(draw: random.Random) -> Grid:
    """Options in the surroundings in which each moves something."""
    model, around, pairs = options(draw, draw.choice((2, 3)))
    axes = {n: draw.sample((text_of(a), text_of(b)), 2) for n, a, b in pairs}
    return Grid(model, {n: text_of(v) for n, v in around.items() if n not in axes}, {}, SYSTEM, axes)


def surroundings(draw: random.Random, model: str | None = None) -> Grid:
    """A strategy of any model on any system, with assumptions and settings; no axes yet."""
    arguments = same_drawn.case(draw.randrange(10**9), draw.randrange(10**6), model)
    given = list(zip(arguments[2:-1:2], arguments[3::2]))
    base = dict(one.split("=", 1) for one in dict(given)["-s"].split(","))
    base = {n: v for n, v in base.items() if v != text_of(Strategy.model_fields[n].default) or n == "dp"}
    settings = dict(value.split("=", 1) for option, value in given if option == "--set")
    system = draw.choice(list_systems())
    if draw.random() < 0.3:
        framework = FRAMEWORKS[draw.choice(list(FRAMEWORKS))]
        base |= {n: text_of(v) for n, v in framework.fixed.items()}
        settings |= {f"assume.{n}": v for n, v in framework.assumptions.items()}
    return Grid(arguments[1], base, settings, system, {})


def drawn_grid(draw: random.Random) -> Grid:
    """Any options, sizes, assumptions, rates and sizes of the model over a strategy that is drawn."""
    one, axes = surroundings(draw), dict[str, Sequence[str]]()
    for name in draw.sample([*KNOWN, *DEGREES, *SIZES, *RATES, *SIZES_OF_MODELS, "system"], 4):
        values = dict.fromkeys(_other(draw, name, one) for _ in range(4))
        if name not in APART and len(values) > 1 and not any("," in v or not v for v in values):
            axes[name] = list(values)[:2]
    return replace(one, settings={n: v for n, v in one.settings.items() if n not in axes}, axes=axes)


def _other(draw: random.Random, name: str, one: Grid) -> str:
    """A value of what may vary: what it is, or another."""
    if name in RATES or name in SIZES_OF_MODELS:
        return draw.choice({**RATES, **SIZES_OF_MODELS}[name])
    if name == "system":
        return draw.choice((one.system, *list_systems()))
    if name.startswith("assume."):
        return one.settings.get(name, assumed(draw, name.removeprefix("assume.")))
    now = one.base.get(name, text_of(Strategy.model_fields[name].default))
    return draw.choice((now, option_value(draw, name), text_of(KNOWN[name][2]), text_of(KNOWN[name][3])))


def wrong_grid(draw: random.Random, grid: Grid) -> Iterator[str]:
    """What of a grid is not as its strategies alone. InputError where it is refused as a whole."""
    points = [dict(zip(grid.axes, values)) for values in itertools.product(*grid.axes.values())]
    alone: list[Result | None] = []
    for point in points:
        try:
            alone.append(grid.alone(point))
        except InputError:
            alone.append(None)
    there = [one for one in alone if one is not None]
    if not there:
        raise InputError("nothing runs")
    of_step = [n for n in there[0].step_numbers if n not in grid.axes and n.isidentifier()]
    columns = [*COLUMNS, *draw.sample(of_step, min(len(of_step), 12))]
    found = grid.swept(columns)
    if len(found) != len(there) or len(found) + sum(found.refused.values()) != len(points):
        yield f"{len(found)} rows and {found.refused} of {len(points)}, of which {len(there)} run alone"
        return
    rows = {tuple(map(_spelt, values)): at for at, values in enumerate(zip(*(found.rows[n].tolist() for n in grid.axes)))}
    for point, one in zip(points, alone):
        if one is None:
            continue
        at = rows.get(tuple(map(_spelt, point.values())))
        if at is None:
            yield f"{point}: no row, and it runs alone"
            continue
        for name in columns:
            row, own = float(found.rows[name][at]), _number(one, name)
            # bytes are whole, and a sum in another order may leave of nothing a share of the step
            most = 1.0 if name.startswith(("memory.", "M_")) else 1e-15 * float(one.value("time.step"))
            if own is not None and not math.isclose(row, own, rel_tol=1e-9, abs_tol=most):
                yield f"{point}: {name} is {row}, alone {own}"


def _spelt(value: Any) -> str:
    """A value of an axis, of rows or as text."""
    try:
        return text_of(value) if isinstance(value, bool) else repr(float(value))
    except ValueError:
        return str(value)


def _number(result: Result, name: str) -> float | None:
    """None where a system has no price, and of a definition that this derivation lacks."""
    try:
        found = result.value(name)
    except (InputError, KeyError):
        return None
    return None if found is None else float(found)


def question(draw: random.Random) -> Question | None:
    """A plan over two options; None where its space has too many configurations, or none."""
    model, around, pairs = options(draw, 2, APART | OF_PLANS - {"etp"} | {n for n in KNOWN if n.startswith("assume.")})
    fixed: dict[str, Any] = {"cp": 1, **{n: v for n, v in around.items() if n not in OF_PLANS}}
    if "recompute" not in fixed and not {"recompute", "recompute_modules"} & {n for n, *_ in pairs}:
        fixed |= {"recompute": draw.choice(("none", "full")), "recompute_modules": ("core_attn",)}
    world = draw.choice((8, 16, 32))
    asked = Question(
        load_model(draw.choice((model, model, *MODELS))),
        draw.choice(list_systems()),
        world,
        world * draw.choice((2, 4, 8)),
        4096,
        draw.choice(("megatron", *FRAMEWORKS)),
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
            asked = question(draw) if kind == "plans" else known_grid(draw) if draw.random() < 0.4 else drawn_grid(draw)
            if asked is None:
                continue
            try:
                wrong = list(wrong_grid(draw, asked) if isinstance(asked, Grid) else wrong_plan(asked))
            except InputError:
                counts["refused as a whole"] += 1
                continue
            except Exception:
                wrong = [traceback.format_exc()]
            counts[kind] += 1
            counts["wrong"] += bool(wrong)
            if wrong:
                print("\n    ".join([f"WRONG {asked.said()}", *list(dict.fromkeys(wrong))[:MOST_SAID]]), flush=True)
            if counts[kind] % 20 == 0:
                print(", ".join(f"{n} {what}" for what, n in counts.items()), f"{time.perf_counter() - began:.0f} s", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.items()) + f", seed {given.seed}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
