"""One command of symsim run in this process, and what is wrong about how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import typer

from symsim.api import cli
from symsim.inputs import models, strategies, systems
from symsim.inputs.reading import Document, read_yaml
from symsim.inputs.shipped import models_directory

LIMIT_S = 10
LONGEST = 300
# a terminal obeys these, or they hide and turn what follows
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


@dataclass(frozen=True)
class Case:
    """A command's arguments, the files beside which it runs, and the file it should write, or the directory.

    files: contents by name; None is a directory, text beginning with 'link:' a symbolic link, 'mode:' a file nobody may read.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    output: str | None = None
    directory: str | None = None


@dataclass(frozen=True)
class Outcome:
    """status: what the command exits with; fault: what is wrong, in few words that group cases, or nothing; seconds of CPU."""

    status: int
    fault: str
    detail: str
    seconds: float


class _Hang(BaseException):
    pass


def _alarm(*_: object) -> None:
    raise _Hang


# where the files that ship are read
READERS: tuple[Any, ...] = (models, strategies, systems)
# making the command line takes longer than most commands
_COMMAND = typer.main.get_command(cli.app)


@cache
def _shipped(path: str) -> Document:
    return read_yaml(path)


def _read_once(path: str | Path) -> Document:
    """The files that ship are read once, for reading them takes longer than most commands."""
    return _shipped(str(path)) if str(path).startswith(str(models_directory())) else read_yaml(path)


@contextlib.contextmanager
def place_of_work() -> Iterator[Path]:
    """A directory to run in, with the cache in it, gone afterwards."""
    before, kept = os.getcwd(), os.environ.get("SYMSIM_CACHE")
    made = Path(tempfile.mkdtemp(prefix="symsim-draws-"))
    os.environ["SYMSIM_CACHE"] = str(made / "cache")
    make, typer.main.get_command = typer.main.get_command, lambda app: _COMMAND
    for module in READERS:
        module.read_yaml = _read_once
    try:
        yield made
    finally:
        typer.main.get_command = make
        for module in READERS:
            module.read_yaml = read_yaml
        os.chdir(before)
        if kept is None:
            del os.environ["SYMSIM_CACHE"]
        else:
            os.environ["SYMSIM_CACHE"] = kept
        shutil.rmtree(made, ignore_errors=True)


def run(case: Case, place: Path, then: tuple[str, ...] = ()) -> Outcome:
    """Run a case in a fresh directory of `place`, and what is to be run after it."""
    here = place / "here"
    here.mkdir()
    try:
        for name, content in case.files.items():
            _put(here / name, content)
        os.chdir(here)
        before = _listed(here)
        status, out, err, fault, seconds = _run(case.arguments)
        if not fault:
            fault = _wrong(case, status, out, err, before, here)
        if then and not fault and not status:
            before = _listed(here)
            status, out, err, fault, seconds = _run(then)
            fault = fault or _wrong(Case(then), status, out, err, before, here)
        return Outcome(status, fault, err if status else out[:200], seconds)
    finally:
        os.chdir(place)
        shutil.rmtree(here, ignore_errors=True)


def _put(path: Path, content: bytes | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir(exist_ok=True)
    elif content.startswith(b"link:"):
        path.symlink_to(content[5:].decode())
    else:
        path.write_bytes(content.removeprefix(b"mode:"))
        if content.startswith(b"mode:"):
            path.chmod(0)


def _listed(here: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(here)): p.read_bytes() if p.is_file() and not p.is_symlink() else None for p in here.rglob("*")}


def _run(arguments: tuple[str, ...]) -> tuple[int, str, str, str, float]:
    out, err = io.StringIO(), io.StringIO()
    status, fault, began = 0, "", time.process_time()
    signal.signal(signal.SIGPROF, _alarm)
    # of the processor's time: the machine may be busy with something else
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("always")
            cli.main(list(arguments))
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else -1
    except _Hang:
        fault = "hang: " + _where(None)
    except MemoryError as error:
        fault = "memory: " + _where(error)
    except BaseException as error:
        fault = f"traceback: {type(error).__name__}: {_where(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return status, out.getvalue(), err.getvalue(), fault, time.process_time() - began


def _where(error: BaseException | None) -> str:
    import sys

    frames = traceback.extract_tb(error.__traceback__ if error is not None else sys.exc_info()[2])
    own = [f for f in frames if "/symsim/" in f.filename]
    last = own[-1] if own else frames[-1]
    return f"{last.filename.rpartition('/symsim/')[2]}:{last.lineno}" + (f" {error}"[:60] if error is not None else "")


def _wrong(case: Case, status: int, out: str, err: str, before: Mapping[str, bytes | None], here: Path) -> str:
    if status not in (0, 2):
        return f"status {status}"
    if OBEYED.search(out.replace("\n", "").replace("\t", "")):
        return "output: a control character"
    for line in err.splitlines():
        if len(line) > LONGEST:
            return "message: too long"
        if OBEYED.search(line):
            return "message: a control character"
        if not line.startswith("symsim: "):
            return f"message: of another kind: {line[:60]}"
    if status == 0 and "--json" in case.arguments and not _is_json(out):
        return "output: not JSON"
    if status == 2 and (out or err.count("\n") != 1 or not err.endswith("\n")):
        return "message: not one line alone"
    after = _listed(here)
    # an empty directory of parts is what a stopped sweep leaves, and the next one removes
    own = {case.output, f"{case.output}.parts"}
    if any(after.get(name, b"") != content for name, content in before.items() if name not in own):
        return "files: one that was there is changed"
    new = after.keys() - before.keys()
    if status == 2:
        return f"files: left behind: {sorted(new)[0][-40:]}" if new else ""
    made = f"{case.directory}/" if case.directory else "//"
    own |= {case.directory}
    stray = sorted(n for n in new if n not in own and not n.startswith(made) and not (case.output or "").startswith(f"{n}/"))
    if stray:
        return f"files: one too many: {stray[0][-40:]}"
    helped = out.startswith("Usage: ")
    return _half(here / case.output) if case.output is not None and not helped else ""


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return not text or text.startswith("Usage: ")  # help, or nothing that meets a condition
    return True


def _half(path: Path) -> str:
    """What a written file lacks."""
    if not path.is_file():
        return "" if str(path).startswith("/dev/") else "files: not written"
    raw, suffix = path.read_bytes(), path.suffix.lower()
    try:
        text = raw.decode() if suffix not in (".parquet", ".pdf") else ""
        if OBEYED.search(text.replace("\n", "")):
            return "files: a control character"
        if suffix == ".json":
            json.loads(text)
        elif suffix == ".py":
            compile(text, "made", "exec")
        elif suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.read_table(path)
        elif suffix == ".csv":
            import csv

            rows = list(csv.reader(io.StringIO(text), strict=True))
            if not rows or any(len(row) != len(rows[0]) for row in rows) or not text.endswith("\n"):
                return "files: half a table"
        elif not text.strip().endswith({".html": "</html>", ".tex": r"\end{document}"}.get(suffix, "")) or not text.endswith("\n"):
            return "files: half a report"
    except Exception as error:
        return f"files: does not read: {type(error).__name__}"
    return ""
