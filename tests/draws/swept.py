"""The best points of sweeps of many options, once by the search over options and once by a scan of all of them.

    python tests/draws/swept.py --sweeps 100 --seed 1

Options that each move something (tests/test_knobs.py) in the surroundings in which they do, four to six at a time with two values each, over a grid
of sizes; any of the objectives and conditions that such a search takes. Both have to give the same points in the same order, but for ties of which
rounding decides. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from draws.knobs import APART, KNOWN, OF_PLANS, SYSTEM, options

from symsim.errors import InputError
from symsim.grid.answer import Engine, answer
from symsim.grid.command import make_sweep, sweep_options
from symsim.grid.sweep import Sweep
from symsim.inputs.settings import text_of
from symsim.planning import swept
from symsim.program.base import read_base

OBJECTIVES = ("time.step", "tokens_per_second", "cost_per_trillion_tokens", "energy_per_trillion_tokens")
WHERE = ((), ("memory.peak <= memory.capacity",), ("fits",), ("memory.peak <= 40 GiB",), ("memory.peak < 60 GiB", "mfu >= 10 %"), ("fits", "dp >= 2"))
SIZES = {
    "tp": "1,2,4,8",
    "pp": "1,2,4",
    "cp": "1,2",
    "vpp": "1,2",
    "ep": "1,2,4",
    "micro_batch_size": "1,2",
    "num_microbatches": "4,8",
    "seq_length": "4096,8192",
}
# sums of the same terms in other orders
CLOSE = 1e-12


def drawn(draw: random.Random) -> tuple[str, dict[str, str], list[str], tuple[str, ...], int, str]:
    model, around, pairs = options(draw, draw.randint(4, 6), APART | OF_PLANS | {n for n in KNOWN if n.startswith("assume.")})
    sizes = draw.sample(list(SIZES), draw.randint(1, 3))
    taken = {n for n, *_ in pairs} | set(sizes)
    axes = [f"{n}={text_of(a)},{text_of(b)}" for n, a, b in pairs] + [f"{n}={SIZES[n]}" for n in sizes]
    if "sp" not in taken and "tp" in sizes and draw.random() < 0.7:
        axes.append("sp==tp>1")
        taken.add("sp")
    if draw.random() < 0.5 and "dp" not in around:
        axes.append(f"world={draw.choice(('16', '32', '16,64'))}")
    draw.shuffle(axes)
    base = {n: text_of(v) for n, v in around.items() if n not in taken}
    return model, base, axes, draw.choice(WHERE), draw.choice((1, 3, 10, 40)), draw.choice(OBJECTIVES)


def made(case: tuple[str, dict[str, str], list[str], tuple[str, ...], int, str], search: str) -> Sweep:
    model, base, axes, where, top, by = case
    asked = sweep_options(where, False, top, by, None, "time.step,memory.peak", None, False, search, "auto", "local", None, 1)
    strategy = ",".join(f"{n}={v}" for n, v in base.items())
    ready = make_sweep(read_base(model, strategy, SYSTEM, ["accelerator.price=2 USD/h"]), axes, asked)
    ready.prepare()
    return ready


def compared(case: tuple[str, dict[str, str], list[str], tuple[str, ...], int, str]) -> tuple[str, bool]:
    """What differs, nothing where nothing does; and whether options were searched."""
    try:
        searched = made(case, "auto")
    except InputError as error:
        return ("" if _refused(case) else f"refused: {error}"), False
    if searched.found is None:
        return "", False
    whole = made((*case[:4], case[4] + 1, case[5]), "scan")
    one, other = answer(searched, Engine()), answer(whole, Engine())
    assert one.rows is not None and other.rows is not None
    if searched.running != whole.running or one.count != min(other.count, case[4]):
        return f"{one.count} of {searched.running}, by a scan {other.count} of {whole.running}", True
    by = case[5]
    if not one.count:
        return "", True
    if not np.allclose(one.rows[by], other.rows[by][: one.count], rtol=CLOSE, atol=0):
        return f"{by}: {one.rows[by][:5]} and {other.rows[by][:5]}", True
    apart = [n for n in one.rows if n != by and not _same(one.rows[n], other.rows[n][: one.count])]
    tied = bool((np.abs(np.diff(other.rows[by])) <= CLOSE * np.abs(other.rows[by][1:])).any())
    return (f"rows differ in {apart}" if apart and not tied else ""), True


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    exact = one.dtype in (object, bool)
    return bool((one == other).all()) if exact else np.allclose(one.astype(float), other.astype(float), rtol=1e-9, atol=0)


def _refused(case: tuple[str, dict[str, str], list[str], tuple[str, ...], int, str]) -> bool:
    try:
        made(case, "scan")
    except InputError:
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    wrong = looked = 0
    for k in range(asked.sweeps):
        case, began = drawn(random.Random(f"{asked.seed} {k}")), time.perf_counter()
        # few combinations of options are searched too, and however little bounds exclude
        with patch("symsim.grid.sweep._SEARCHED_FAMILIES", 1), patch.object(swept, "_FEWEST_POINTS", 1), patch.object(swept, "_MOST_CELLS", 10**6):
            said, searched = compared(case)
        looked += searched
        if said:
            wrong += 1
            model, base, axes, where, top, by = case
            given = f"{model} -s {','.join(f'{n}={v}' for n, v in base.items())} {' '.join(f'--axis {a!r}' for a in axes)}"
            print(f"{k}: {said}\n   {given} --where {where} --top {top} --by {by}", flush=True)
        elif time.perf_counter() - began > 60:
            print(f"{k}: took {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{asked.sweeps} sweeps, {looked} of them searched, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
