"""What the pages of the user's guide show of symsim's own output: `python docs/guide.py` makes it again.

Made are: the output below every `$ command` of a ```console block (run where the page's own files, ```csv NAME or ```json NAME, lie; [...]
at its end cuts it; how long a sweep took stays as it is), below every `>>>` of a ```pycon block (pycon.py), and what stands between
`<!-- made: NAME ... -->` and `<!-- end -->`: definitions with their numbers, the error of the schedules' closed forms, the size of
derivations, the quantities of a sweep; and the pictures in docs/img/. tests/test_docs.py finds a page that is out of date.
"""

from __future__ import annotations

import contextlib
import io
import os
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
import pycon  # noqa: E402
import sweep_pictures  # noqa: E402

from symsim.algebra.reductions import evaluated  # noqa: E402
from symsim.algebra.typeset import lines, names_of  # noqa: E402
from symsim.api import cli  # noqa: E402
from symsim.api.result import derive  # noqa: E402
from symsim.evaluation.quantities import EXPOSED, QUANTITIES  # noqa: E402
from symsim.inputs.models import load_model  # noqa: E402
from symsim.inputs.strategies import load_strategy  # noqa: E402
from symsim.inputs.systems import load_system  # noqa: E402
from symsim.pipeline.orders import Operation, order, replay  # noqa: E402
from symsim.pipeline.schedules import SCHEDULES, Schedule  # noqa: E402
from symsim.report.amounts import human, plain  # noqa: E402
from symsim.report.timeline import MERAK, timeline_svg  # noqa: E402

IMPORTS = tuple(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("from-*.md")))
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/time.md",
    "docs/memory.md",
    "docs/schedules.md",
    "docs/systems.md",
    "docs/anchor.md",
    "docs/run.md",
    "docs/sweep.md",
    "docs/plan.md",
    "docs/ask.md",
    "docs/formula.md",
    "docs/audit.md",
    *IMPORTS,
)
PICTURES = {"schedule_1f1b.svg": ("1f1b", 4, 8, 1), "schedule_interleaved.svg": ("interleaved", 4, 8, 2), "schedule_zbv.svg": ("zbv", 4, 8, 2)}
PIPELINES, SPREAD = 100, 0.2
MOST_EM = 44.0  # width of a formula in a table

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_FILE = re.compile(r"^```(?:csv|json|yaml|toml|sh|python) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TOOK = re.compile(r"^((?:symsim: .* |  [\d,]+ )derivations?, )([\d.]+ s)$", re.MULTILINE)
_MADE = re.compile(r"^(<!-- made: (\w+)(.*?) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def remade(page: str) -> str:
    """The text of a page with everything in it that is made from symsim made again."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in _FILE.findall(page):
            (Path(directory) / name).write_text(text)
        page = _CONSOLE.sub(lambda block: f"```console\n{_timed(_console(block[1], directory), block[1])}```", page)
        page = pycon.remade(page, directory)
    return _MADE.sub(lambda block: f"{block[1]}\n{_PARTS[block[2]](*shlex.split(block[3]))}<!-- end -->", page)


def _console(block: str, directory: str) -> str:
    """Commands (a line that ends in a backslash goes on) with their output; of one that ends in [...], as many paragraphs as it had."""
    commands = _COMMAND.findall(block)
    if block.endswith("\n[...]\n"):
        (command,) = commands
        shown = block.removeprefix(f"$ {command}\n")
        paragraphs = run(command, directory).split("\n\n")
        return "\n\n".join([f"$ {command}\n{paragraphs[0]}", *paragraphs[1 : shown.count("\n\n")], "[...]\n"])
    return "\n".join(f"$ {command}\n{run(command, directory)}" for command in commands)


def _timed(made: str, before: str) -> str:
    """Output with the times that a sweep took as they were on the page, where the rest of the line is the same."""
    took = dict(_TOOK.findall(before))
    return _TOOK.sub(lambda line: line[1] + took.get(line[1], line[2]), made)


def run(command: str, directory: str) -> str:
    """What a terminal shows of a command, blank lines at either end left out; RuntimeError where it fails."""
    # the ledger of an import takes the width of the terminal, and needs more than most
    wide = {"COLUMNS": "100" if "symsim import" in command else "80"}
    plain_ones = _plain_commands(command)
    code, shown = _here(plain_ones, directory, wide) if plain_ones else _in_a_shell(command, directory, wide)
    if code:
        raise RuntimeError(f"{command} ends with {code}: {shown}")
    return shown.strip("\n") + "\n" if shown.strip() else ""


def _plain_commands(command: str) -> list[list[str]]:
    """The arguments of commands of symsim alone, one after the other; none where a shell has more to do than to split words."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    if re.search(r"[$`*?~{}]", command):
        return []
    found: list[list[str]] = [[]]
    for word in lexer:
        if word == "&&":
            found.append([])
        elif re.fullmatch(r"[();<>|&]+", word):
            return []
        else:
            found[-1].append(word)
    return [words[1:] for words in found] if all(words[:1] == ["symsim"] for words in found) else []


def _here(commands: list[list[str]], directory: str, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of commands in this process, which saves the start of one for each."""
    before, shown = {name: os.environ.get(name) for name in environment}, io.StringIO()
    os.environ.update(environment)
    try:
        with contextlib.chdir(directory), contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            for words in commands:
                try:
                    cli.main(words)
                except SystemExit as left:
                    if left.code:
                        return int(left.code), shown.getvalue()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return 0, shown.getvalue()


def _in_a_shell(command: str, directory: str, environment: dict[str, str]) -> tuple[int, str]:
    script = f'set -o pipefail; symsim() {{ {shlex.quote(sys.executable)} -m symsim "$@"; }}; {command}'
    of_all = {**os.environ, **environment}
    done = subprocess.run(["bash", "-c", script], cwd=directory, env=of_all, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


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
        size |= {"tc": 0, "tfb": max(whole), "t_slow": max(whole)}
        for symbol, kind in (("tf", "F"), ("ti", "I"), ("tw", "W"), ("tr", "R")):
            size |= {symbol: slowest[kind], f"sum_{symbol}": sum(s[kind] for s in stages)}
        names = {"tf_stage": "F", "ti_stage": "I", "tw_stage": "W", "tr_stage": "R"}
        own = [{"t_stage": t, "first_i": int(not i), "i": i, **{n: s[k] for n, k in names.items()}} for i, (t, s) in enumerate(zip(whole, stages))]
        size |= {f"t_{part}": evaluated(saved, own, size) for part, saved in schedule.saved.items()}
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


def _quantities() -> str:
    """What a sweep reports, by name."""
    rows = ["| quantity | unit | is | needs a system |", "|---|---|---|---|"]
    for name, known in QUANTITIES.items():
        rows.append(f"| `{name}` | {'' if known.unit == '1' else known.unit} | {known.meaning} | {'yes' if known.timed else ''} |")
    rows.append(f"| `{EXPOSED}AXIS` | s | of them, those over one axis, as in `{EXPOSED}tp` | yes |")
    return "\n".join(row.replace("|  |", "| |") for row in rows) + "\n"


def _variants(*strategies: str) -> str:
    """Derivations of some strategies: how large they are, and which are the same term by term."""
    rows = ["| strategy | definitions | operations | formulas |", "|---|---|---|---|"]
    first: dict[Any, str] = {}
    for strategy in strategies:
        result = derive(load_model(sweep_pictures.MODEL).architecture, load_strategy(strategy), system=load_system(sweep_pictures.SYSTEM))
        terms = tuple((name, d.expr) for name, d in result.derivation.definitions.items())
        same = first.setdefault(terms, strategy)
        of = benchmark.size(result.derivation)
        rows.append(f"| `{strategy}` | {of.definitions} | {of.operations:,} | {'its own' if same == strategy else f'those of `{same}`'} |")
    return "\n".join(rows) + "\n"


def _kernel() -> str:
    """Numbers of the picture of a kernel."""
    of = sweep_pictures.kernel_facts(sweep_pictures.example())
    rows = ["| | |", "|---|---|"]
    rows += [f"| {what} | {of[name]} |" for name, what in sweep_pictures.FACTS.items()]
    return "\n".join(rows) + "\n"


_PARTS: dict[str, Callable[..., str]] = {
    "definitions": _definitions,
    "unequal": _unequal,
    "operations": _operations,
    "quantities": _quantities,
    "variants": _variants,
    "kernel": _kernel,
}


def pictures() -> dict[Path, str]:
    """The timelines that docs/schedules.md shows, and the pictures of docs/sweep.md."""
    made = {name: timeline_svg(*of) for name, of in PICTURES.items()} | sweep_pictures.pictures()
    return {ROOT / "docs" / "img" / name: picture for name, picture in made.items()}


def main() -> None:
    for path, svg in pictures().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg)
    for name in PAGES:
        page = ROOT / name
        page.write_text(remade(page.read_text()))


if __name__ == "__main__":
    main()
