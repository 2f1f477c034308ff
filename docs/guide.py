"""What the pages of the user's guide show of symsim's own output: `python docs/guide.py` makes it again.

Made are: the output below every `$ command` of a ```console block (run where the page's own files, ```csv NAME, lie; [...]
at its end cuts it), and what stands between `<!-- made: NAME ... -->` and `<!-- end -->`: definitions with their numbers, the error of
the schedules' closed forms, the size of derivations; and the pictures in docs/img/. tests/test_docs.py finds a page that is out of date.
"""

from __future__ import annotations

import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))

import derive as benchmark  # noqa: E402

from symsim.loading import load_model, load_strategy, load_system  # noqa: E402
from symsim.report.amounts import human, plain  # noqa: E402
from symsim.report.schedule_orders import Operation, order, replay  # noqa: E402
from symsim.report.timeline import MERAK, timeline_svg  # noqa: E402
from symsim.result import derive  # noqa: E402
from symsim.schedules import SCHEDULES, Schedule, place_gain  # noqa: E402
from symsim.typeset import lines, names_of  # noqa: E402

PAGES = ("README.md", "docs/time.md", "docs/memory.md", "docs/schedules.md", "docs/systems.md")
PICTURES = {"schedule_1f1b.svg": ("1f1b", 4, 8, 1), "schedule_interleaved.svg": ("interleaved", 4, 8, 2), "schedule_zbv.svg": ("zbv", 4, 8, 2)}
PIPELINES, SPREAD = 200, 0.2
MOST_EM = 44.0  # width of a formula in a table

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```csv (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MADE = re.compile(r"^(<!-- made: (\w+)(.*?) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def remade(page: str) -> str:
    """The text of a page with everything in it that is made from symsim made again."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in _FILE.findall(page):
            (Path(directory) / name).write_text(text)
        page = _CONSOLE.sub(lambda block: f"```console\n{_console(block[1], directory)}```", page)
    return _MADE.sub(lambda block: f"{block[1]}\n{_PARTS[block[2]](*shlex.split(block[3]))}<!-- end -->", page)


def _console(block: str, directory: str) -> str:
    """Commands with their output; of one that ends in [...], as many paragraphs as it had."""
    if block.endswith("\n[...]\n"):
        command, _, shown = block.partition("\n")
        paragraphs = run(command[2:], directory).split("\n\n")
        return "\n\n".join([f"{command}\n{paragraphs[0]}", *paragraphs[1 : shown.count("\n\n")], "[...]\n"])
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n".join(f"{line}\n{run(line[2:], directory)}" for line in commands)


def run(command: str, directory: str) -> str:
    """What a terminal shows of a command, blank lines at either end left out; RuntimeError where it fails."""
    script = f'set -o pipefail; symsim() {{ {shlex.quote(sys.executable)} -m symsim "$@"; }}; {command}'
    done = subprocess.run(["bash", "-c", script], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{command} ends with {done.returncode}: {done.stdout}")
    return done.stdout.strip("\n") + "\n" if done.stdout.strip() else ""


def _definitions(model: str, strategy: str, system: str, stage: str, *names: str) -> str:
    """A table of definitions: symbol, closed form, and the number at these sizes (of one stage where it has its own)."""
    result = derive(load_model(model).architecture, load_strategy(strategy), system=load_system(system))
    known = {**result.step_numbers, **result.stage_numbers(result.stages[int(stage)])}
    titles = names_of(result.derivation.definitions.values())
    rows = ["| definition | is | at these sizes |", "|---|---|---|"]
    for name in names:
        d = result.derivation.definitions[name]
        number = known[name]
        shown = human(number, d.unit) if str(d.unit) in ("second", "byte") else f"{plain(float(number))} {d.unit}".removesuffix(" 1")
        broken = lines(d.expr, titles, MOST_EM)
        form = f"{titles[name]} = {broken[0]}"
        if len(broken) > 1:
            form = rf"\begin{{aligned}}{titles[name]} &= " + r" \\ &\quad ".join(broken) + r"\end{aligned}"
        rows.append(f"| {d.meaning} | $`{form}`$ | {shown} |")
    return "\n".join(rows) + "\n"


def _unequal() -> str:
    """Closed forms over replays of random pipelines whose stages differ."""
    rows = ["| schedule | mean error | lowest | highest | exact |", "|---|---|---|---|---|"]
    for name, schedule in SCHEDULES.items():
        errors = list(_errors(schedule))
        mean, low, high = (f"{round(100 * e, 1) + 0.0:+.1f} %" for e in (sum(errors) / len(errors), min(errors), max(errors)))
        rows.append(f"| `{name}` | {mean} | {low} | {high} | {sum(abs(e) < 1e-9 for e in errors)} of {len(errors)} |")
    return "\n".join(rows) + "\n"


def _errors(schedule: Schedule) -> Iterator[float]:
    """The closed form over the replay, less one, of PIPELINES pipelines of 2 to 8 stages, each up to 30 micro-batches."""
    draw = random.Random(1)
    left = PIPELINES
    while left:
        p, m = draw.randint(2, 8), draw.randint(2, 30)
        v = draw.randint(2, 3) if schedule.chunks == "any" else int(schedule.chunks)
        size: dict[str, Any] = {"pp": p, "m": m, "vpp": v, "group": p}
        if m < p or any(condition.evaluate(size) < 0 for condition, _ in schedule.requires):
            continue
        left -= 1
        stages = [{kind: draw.uniform(1 - SPREAD, 1 + SPREAD) for kind in "FIW"} for _ in range(p)]
        for stage in stages:
            stage["R"] = stage["F"] if schedule.name in MERAK else 0.0
            stage["B"] = stage["I"] + stage["W"]
        end = max(t.end for t in replay(order(schedule.name, p, m, v, p), _durations(schedule, stages, v)))
        whole = [s["F"] + s["B"] + s["R"] for s in stages]
        slowest = stages[whole.index(max(whole))]
        size |= {"tc": 0, "tfb": max(whole), "t_place": place_gain(whole, m)}
        for symbol, kind in (("tf", "F"), ("ti", "I"), ("tw", "W"), ("tr", "R")):
            size |= {symbol: slowest[kind], f"sum_{symbol}": sum(s[kind] for s in stages)}
        yield float(schedule.makespan.evaluate(size)) / end - 1


def _durations(schedule: Schedule, stages: list[dict[str, float]], chunks: int) -> Callable[[Operation], float]:
    p = len(stages)

    def seconds(operation: Operation) -> float:
        place = operation.stage if operation.stage < p else 2 * p - 1 - operation.stage if schedule.placement == "v" else operation.stage % p
        return stages[place][operation.kind] / chunks

    return seconds


def _operations() -> str:
    """The size of the benchmark's derivations."""
    rows = ["| deepseek-v3 | definitions | operations | of time | of memory |", "|---|---|---|---|---|"]
    for name, architecture, strategy in benchmark.cases():
        of = benchmark.size(derive(architecture, strategy, system=load_system(benchmark.SYSTEM)).derivation)
        rows.append(f"| {name} | {of.definitions} | {of.operations} | {of.of_time} | {of.of_memory} |")
    return "\n".join(rows) + "\n"


_PARTS: dict[str, Callable[..., str]] = {"definitions": _definitions, "unequal": _unequal, "operations": _operations}


def pictures() -> dict[Path, str]:
    """The timelines that docs/schedules.md shows."""
    return {ROOT / "docs" / "img" / name: timeline_svg(*of) for name, of in PICTURES.items()}


def main() -> None:
    for path, svg in pictures().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg)
    for name in PAGES:
        page = ROOT / name
        page.write_text(remade(page.read_text()))


if __name__ == "__main__":
    main()
