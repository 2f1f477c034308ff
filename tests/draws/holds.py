"""What has to hold of any strategy, drawn: of any model, on any system, with any options.

    python tests/draws/holds.py --count 300 --seed 1

A step is the sum of its parts, none of them below zero, and no shorter than the work of its slowest stage; a peak is the sum of its parts and no less
than what stays; faster links and kernels never take longer, and less memory moves nothing; more sequences, micro-batches and replicas never take
less; the difference of two strategies is the sum of its rows; formulas as Python, C and JavaScript give what `eval` does; and what was derived of the
same model before, with what passes then made at hand, changes no number. `holds_between.py` has further facts. Ends with 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from holds_between import BETWEEN
from knobs import Grid, surroundings

from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.inputs.deciding import DEGREES, SIZES, deciding
from symsim.inputs.models import load_model
from symsim.inputs.traced import Memory
from symsim.planning.difference import difference
from symsim.report.step import MEMORY_PARTS, Step

_ROUNDING = 1e-9
FASTER = ("B_1", "B_2", "B_3", "B_hbm", "B_host", "Phi_bf16", "Phi_fp8", "Phi_fp32", "eta_gemm")
SLOWER = ("alpha_1", "alpha_2", "lambda_1", "lambda_2", "t_gemm", "t_mem")


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING)


def of_parts(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Parts of a step and of a peak add up."""
    step, whole = Step(result), float(result.value("time.step"))
    parts = {p.name: p.seconds for p in step.parts}
    if not close(sum(parts.values()), whole):
        yield f"parts of the step are {sum(parts.values())} of {whole}: {parts}"
    # of very uneven stages pairs are estimated to take less than the slowest one's
    if min(parts.values()) < -_ROUNDING * whole and not result.strategy.schedule.startswith("dualpipe"):
        yield f"parts of the step are below zero: {parts}"
    named = sum(float(result.value(f"time.{n}")) for n in ("compute", "bubble", "exposed", "optimizer"))
    further = parts.get("reference and further forwards", 0.0)
    if not close(named + further, whole):
        yield f"compute, bubble, exposed, optimizer are {named} of {whole}"
    for stage in range(step.depth):
        numbers = step.stage(stage)
        held = {part: float(numbers[f"M_stage_{part}"]) for part in MEMORY_PARTS}
        if min(held.values()) < 0 or sum(held.values()) < float(numbers["M_stage_peak"]) * (1 - _ROUNDING):
            yield f"stage {stage}: {held} of {float(numbers['M_stage_peak'])}"
        if held["transient"] and not close(sum(held.values()), float(numbers["M_stage_peak"])):
            yield f"stage {stage}: {held} of {float(numbers['M_stage_peak'])}, with what is transient"
    peaks = [float(step.stage(stage)["M_stage_peak"]) for stage in range(step.depth)]
    if not close(max(peaks), float(result.value("memory.peak"))):
        yield f"the peak is {float(result.value('memory.peak'))}, of stages {peaks}"
    shown = result.to_json()
    if sum(shown["params"]["by_module"].values()) != shown["params"]["total"]:
        yield f"parameters by module are {shown['params']['by_module']} of {shown['params']['total']}"
    for phase in ("forward", "backward", "recompute"):
        own = sum(module.get(phase, 0) for module in shown["flops"]["by_module"].values())
        if not close(own, shown["flops"][phase]):
            yield f"{phase} FLOPs by module are {own} of {shown['flops'][phase]}"


def of_the_slowest(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """No step is shorter than what its slowest rank does."""
    values = result.step_numbers
    work = [float(result.stage_numbers(stage)["t_stage"]) for stage in result.stages]
    if result.strategy.schedule == "dualpipe":
        work = [(here + there) / 2 for here, there in zip(work, reversed(work))]
    least = max(work) * float(values["m"])
    if float(values["t_step"]) < least * (1 - _ROUNDING):
        yield f"a step of {float(values['t_step'])} is shorter than the {least} of its slowest stage"


def written(name: str, number: float) -> str:
    """A number of a system as --set takes it."""
    size, unit = {"B": (10**9, " GB/s"), "P": (10**12, " TFLOP/s"), "e": (1, "")}.get(name[0], (1e-6, " us"))
    return f"{number / size!r}{unit}"


def of_rates(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Faster is never slower, and less memory moves nothing."""
    # a phase that waits for the host is no shorter with faster kernels, behind which messages then show
    one = replace(one, settings={**one.settings, "assume.host_launch": "hidden"})
    result = one.alone({})
    known = {n: v for n, v in result.values.items() if n in (*FASTER, *SLOWER) and v}
    free = sorted(known.keys() & result.formula("t_step").symbols)
    for name in draw.sample(free, min(3, len(free))):
        better = known[name] * (2 if name in FASTER else 0.5)
        if name.startswith("eta"):
            better = (1 + known[name]) / 2
        now = float(one.alone({name: written(name, float(better))}).value("time.step"))
        if now > float(result.value("time.step")) * (1 + _ROUNDING):
            yield f"{name}={float(better)}: a step of {now}, of {float(result.value('time.step'))} with {float(known[name])}"
    smaller = one.alone({"accelerator.memory": "20 GB"})
    for name in ("time.step", "memory.peak"):
        if float(smaller.value(name)) != float(result.value(name)):
            yield f"with less memory {name} is {float(smaller.value(name))}, not {float(result.value(name))}"


def of_more(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """More of the same work never takes less time, nor less memory."""
    strategy = result.strategy
    more = {"num_microbatches": 2 * strategy.microbatches, "seq_length": 2 * strategy.seq_length, "micro_batch_size": 2 * strategy.micro_batch_size}
    if strategy.global_batch_size is not None:
        return
    for name, value in more.items():
        try:
            found = one.alone({name: str(value), "num_microbatches": str(more["num_microbatches"] // (1 if name == "num_microbatches" else 2))})
        except InputError:
            continue
        for of in ("time.step", "memory.peak"):
            if float(found.value(of)) < float(result.value(of)) * (1 - _ROUNDING):
                yield f"{name}={value}: {of} is {float(found.value(of))}, of {float(result.value(of))} before"
    # what lies outside of data ranks lies further apart with more of them
    order = strategy.rank_order.split("-")
    outside = order[order.index("dp") + 1 :]
    if any({"tp": strategy.tp, "cp": strategy.cp, "pp": strategy.pp, "ep": strategy.ep}[axis] > 1 for axis in outside if axis != "pp"):
        return
    try:
        found = one.alone({"dp": str(2 * strategy.dp), "num_microbatches": str(strategy.microbatches)})
    except InputError:
        return
    before, after = (float(r.value("time.step")) - float(r.value("time.optimizer")) for r in (result, found))
    # a rank has less of what waits for the host, and less to sum with other instances
    host = strategy.optimizer_cpu_offload or strategy.offload_parameters
    if not host and strategy.num_distributed_optimizer_instances == 1 and after < before * (1 - _ROUNDING):
        yield f"dp={2 * strategy.dp}: a step without its optimizer takes {after}, before {before}"
    # buckets of a message are larger on more ranks
    buffered = result.assumptions.get("reduction_buffers") != "none"
    if strategy.zero and not buffered and float(found.value("memory.peak")) > float(result.value("memory.peak")) * (1 + _ROUNDING):
        yield f"dp={2 * strategy.dp}: memory.peak is {float(found.value('memory.peak'))}, of {float(result.value('memory.peak'))} before"


def of_two(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """Rows of a difference add up to its last."""
    try:
        other = replace(one, base={**one.base, "recompute": "full", "micro_batch_size": "2"}).alone({})
    except InputError:
        return
    for rows in (difference(result, other).time, difference(result, other).memory):
        apart = sum(row.other - row.one for row in rows[:-1])
        if abs(apart - rows[-1].more) > _ROUNDING * max(rows[-1].one, rows[-1].other):
            yield f"rows add up to {apart} of {rows[-1]}"


def of_languages(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """A formula as a program gives the number."""
    name = draw.choice(("t_step", "M_peak"))
    formula, wanted = result.formula(name), float(result.value(name))
    free = {n: float(result.values[n]) for n in sorted(formula.symbols)}
    for language, run in LANGUAGES.items():
        found = run(formula.to(language), free, name)
        if not close(found, wanted):
            yield f"{name} as {language} is {found}, {wanted} by eval"


def _python(source: str, free: dict[str, float], name: str) -> float:
    space: dict[str, object] = {}
    exec(source, space)
    found = space[name]
    assert callable(found)
    return float(found(**free))


def _javascript(source: str, free: dict[str, float], name: str) -> float:
    given = ", ".join(f"{n}: {v!r}" for n, v in free.items())
    ended = subprocess.run(["node", "-"], input=f"{source}\nconsole.log({name}({{ {given} }}))", capture_output=True, text=True, check=True)
    return float(ended.stdout)


def _c(source: str, free: dict[str, float], name: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "f.c"
        given = ", ".join(map(repr, free.values()))
        at.write_text(f'#include <stdio.h>\n{source}\nint main(void) {{ printf("%.17g", {name}({given})); return 0; }}\n')
        subprocess.run(["cc", "-w", "-o", f"{folder}/f", str(at), "-lm"], check=True, capture_output=True)
        return float(subprocess.run([f"{folder}/f"], capture_output=True, text=True, check=True).stdout)


LANGUAGES: dict[str, Callable[[str, dict[str, float], str], float]] = {"python": _python, "c": _c, "js": _javascript}


def of_before(draw: random.Random, one: Grid, result: Result) -> Iterator[str]:
    """What passes made of other strategies of the model is not taken where it is not the same."""
    more = [dict(draw.sample(sorted(own.items()), min(len(own), 3))) for own in (surroundings(draw, one.model).base for _ in range(3))]
    made: list[tuple[Grid, Result]] = [(one, result)]
    for own in more:
        try:
            grid = replace(one, base={**one.base, **own})
            made.append((grid, grid.alone({})))
        except InputError:
            continue
    loaded = load_model(one.model)
    memory = Memory(SIZES, DEGREES, deciding(loaded.architecture))
    for _ in range(2):
        draw.shuffle(made)
        for grid, alone in made:
            found = evaluated(loaded.architecture, alone.strategy, loaded.assumptions, grid.settings, alone.system, memory=memory)
            definitions, own = found.derivation.definitions, alone.derivation.definitions
            if definitions != own:
                apart = [n for n in {**own, **definitions} if definitions.get(n) != own.get(n)]
                yield f"-s {grid.strategy}: after others other definitions {apart[:5]}"
            wrong = [n for n, number in alone.step_numbers.items() if found.step_numbers.get(n) != number]
            if wrong:
                yield f"-s {grid.strategy}: after others {[(n, found.step_numbers.get(n), alone.step_numbers[n]) for n in wrong[:3]]}"


FACTS = (of_parts, of_the_slowest, of_rates, of_more, of_two, of_languages, of_before, *BETWEEN)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--facts", nargs="+", default=[f.__name__ for f in FACTS])
    given = parser.parse_args()
    draw, began = random.Random(given.seed), time.perf_counter()
    asked, wrong, count = Counter[str](), Counter[str](), 0
    while count < given.count:
        one = surroundings(draw)
        try:
            result = one.alone({})
        except InputError:
            continue
        count += 1
        for fact in (f for f in FACTS if f.__name__ in given.facts):
            asked[fact.__name__] += 1
            try:
                found = list(fact(draw, one, result))
            except Exception:
                found = [traceback.format_exc()]
            wrong[fact.__name__] += bool(found)
            if found:
                print("\n    ".join([f"WRONG {fact.__name__} {one.said()}", *found[:6]]), flush=True)
        if count % 20 == 0:
            print(f"{count} strategies, {time.perf_counter() - began:.0f} s", flush=True)
    print(", ".join(f"{what} {times} ({wrong[what]} wrong)" for what, times in asked.items()) + f", seed {given.seed}")
    return 1 if wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main())
