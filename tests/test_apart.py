"""What other processes make of a report is what one makes alone, and its end, its errors and its death are no matter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all of a report is made in one process")

_BEGIN = """
import os, sys, time
import symsim.report.apart as apart
apart._cores = lambda: 2
own = os.getpid()
"""


def said(program: str, *arguments: str) -> str:
    """What a program prints that has a process of its own."""
    done = subprocess.run([sys.executable, "-c", _BEGIN + program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("suffix", "cores", "others"), [("html", 2, "1"), ("html", 3, "2"), ("md", 3, "1")])
def test_a_report_is_the_same_made_by_one_process_and_by_several(tmp_path: Path, suffix: str, cores: int, others: str) -> None:
    program = """
import symsim
apart._alone = {"one": lambda: False, "several": lambda: True}[sys.argv[1]]
apart._cores = lambda: int(sys.argv[3])
forks = []
fork = os.fork
os.fork = lambda: forks.append(1) or fork()
symsim.report.write_report(symsim.derive("llama3-8b", "tp=2,pp=2,sp=true", system="h100-sxm"), sys.argv[2])
print(len(forks))
"""
    made = {kind: tmp_path / f"{kind}.{suffix}" for kind in ("one", "several")}
    assert {kind: said(program, kind, str(file), str(cores)) for kind, file in made.items()} == {"one": "0", "several": others}
    assert made["one"].read_bytes() == made["several"].read_bytes()
    assert b"What other choices would do" in made["several"].read_bytes()
    assert (b"const PAGE" in made["several"].read_bytes()) == (suffix == "html")


def test_a_text_comes_from_the_other_process_however_long() -> None:
    program = """
with apart.apart(lambda: f"{os.getpid() == own} " + "\\u2009" * 300_000) as made:
    text = made()
print(text[:6].strip(), len(text))
"""
    assert said(program) == "False 300006"


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "1 / 0"])
def test_what_the_other_process_does_not_make_is_made_here(end: str) -> None:
    program = f"""
def make():
    if os.getpid() != own:
        {end}
    return "made here"
with apart.apart(make) as made:
    print(made())
"""
    assert said(program) == "made here"


def test_an_error_is_raised_where_the_text_is_asked_for() -> None:
    program = """
def make():
    raise ValueError("no page")
try:
    with apart.apart(make) as made:
        made()
except ValueError as error:
    print(error)
"""
    assert said(program) == "no page"


def test_a_process_whose_text_nobody_waits_for_ends() -> None:
    program = """
try:
    with apart.apart(lambda: time.sleep(60)) as made:
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no process is left")
"""
    assert said(program) == "no process is left"


def test_beside_other_threads_nothing_is_forked() -> None:
    program = """
import threading
threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
with apart.apart(lambda: str(os.getpid() == own)) as made:
    print(made())
"""
    assert said(program) == "True"


def test_a_plan_is_the_same_whoever_makes_its_further_options() -> None:
    program = """
from contextlib import redirect_stdout
from io import StringIO
from symsim.api.cli import main
apart._cores = lambda: int(sys.argv[1])
os.sched_getaffinity = lambda process: set(range(int(sys.argv[1])))
forks = []
fork = os.fork
os.fork = lambda: forks.append(os.getpid()) or fork()
text = StringIO()
asked = "plan smollm2-360m -y h100-sxm --world 8 --global-batch-size 32 --fix recompute=none,overlap_grad_reduce=true,cp=1,pp=1,vpp=1"
with redirect_stdout(text):
    try:
        main(asked.split())
    except SystemExit:
        pass
said = text.getvalue()
assert "One option more, outside this space" in said
# all but how long it took
print(len(forks), "|".join(line for line in said.splitlines() if not line.endswith(" s") or "derivation" not in line))
"""
    (none, _, alone), (one, _, beside) = (said(program, cores).partition(" ") for cores in "12")
    assert (none, one) == ("0", "1")
    assert alone == beside


def test_what_several_processes_derive_alike_is_derived_before_they_part(tmp_path: Path) -> None:
    """Of the choices of the table those that the page has, too: blocks are not counted anew for any of them."""
    program = """
import symsim
from symsim.evaluation.beside import of_fp8, recomputing
from symsim.report import choices
from symsim.report.step import Step
result = symsim.derive("llama3-8b", "tp=2,pp=4,sp=true,num_microbatches=8", system="h100-sxm")
apart._alone, begun = lambda: True, []
fork = os.fork
os.fork = lambda: begun or begun.append(result.beside.runs["_counted"][0]) or fork()
symsim.report.write_report(result, sys.argv[1])
for options in (recomputing(result.strategy), *of_fp8(result.strategy, result.system).values(), {"pp": 2}):
    runs = result.beside.runs["_counted"][0]
    choices.beside(result, options)
    assert result.beside.runs["_counted"][0] == runs, options
print(begun[0])
"""
    assert said(program, f"{tmp_path}/report.html") == "3"
