"""Mutated job descriptions, by the tens of thousands: what `imports.py` does, without a command line and without a directory that is written.

    python tests/draws/imports_quick.py megatron --count 100000      so many cases of a kind, a line of what became of them
    python tests/draws/imports_quick.py megatron --seconds 300       as many as there is time for
    python tests/draws/imports_quick.py megatron --number 1234       one case again

Files lie in memory, the reader runs in this process, and all that `symsim import` would write and print is made. One case of 128 is
run by the command, and one of 512 evaluated where it is answered. Besides the faults of `imports.py`: a process that is started, a connection, a
file that is written, and memory beyond 2 GiB. Names near a wrong one are looked for in every eighth case, for that takes most of the time.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import imports
import inputs_bad
from inputs_run import LIMIT_S, LONGEST, OBEYED, Case, Outcome, _alarm, _Hang, _where, place_of_work, run

from symsim import errors
from symsim.importers.job import Job
from symsim.importers.keys import Keys
from symsim.importers.ledger import ledger_text
from symsim.importers.reading import Options, read_job
from symsim.inputs import shipped
from symsim.inputs.models import format_model
from symsim.inputs.reading import format_yaml, printable
from symsim.inputs.systems import format_system

KINDS = (*imports.KINDS, "hf")
SEED = 12
_COMMANDED, _EVALUATED, _HINTED = 128, 512, 8
_MEMORY = 2 * 2**30
# what a reader has no reason to do; open for writing is looked at in its flags
_STARTED = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "socket.connect", "pty.spawn", "ctypes.dlopen")
_acted: list[str] = []
_watching = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if event in _STARTED:
        _acted.append(f"{event} {str(arguments)[:60]}")
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _acted.append(f"writes {str(arguments[0])[:60]}")


@cache
def jobs(kind: str) -> tuple[dict[str, str], ...]:
    if kind != "hf":
        return imports.jobs(kind)
    return tuple({"c.json": json.dumps({"model_type": k, "architectures": ["X"], **v}, indent=1)} for k, v in inputs_bad.CONFIGS.items())


# the keys that a reader knows, gathered while it reads what is well-formed
_names: dict[str, None] = {}


@cache
def names(kind: str) -> tuple[str, ...]:
    finish = Keys.finish

    def gathering(keys: Keys) -> Any:
        _names.update(dict.fromkeys([*keys.table, *keys.known]))
        return finish(keys)

    Keys.finish = gathering  # type: ignore[method-assign]
    _names.clear()
    try:
        for number in range(len(jobs(kind))):
            files = dict(jobs(kind)[number])
            arguments = files.pop("arguments.txt", "").splitlines()
            for name, text in files.items():
                Path(name).write_text(text)
            try:
                read_job(kind, arguments or sorted(files), Options(lenient=True))
            except errors.InputError:
                continue
            finally:
                for name in files:
                    os.unlink(name)
    finally:
        Keys.finish = finish  # type: ignore[method-assign]
    return tuple(_names) or ("x",)


WORDS = (*inputs_bad.LIKELY, *inputs_bad.NUMBERS, "true", "false", "none", "full", "selective", "auto", "fp8", "bf16", "0.5", "1 2 3", "[1, 2]", "{}",
         "a,b", "1:2", "*4", "E|t*3|L", "([0]*3+[1])*2", "1,2,4", "uniform", "$X", "$((1/0))", "${A[9]}", "@x", "-1", "cosine",
         "²", "٣", "²,2", "x" * 3000, "\x1b[31m", "\u202e", "日本", "a\nb", "NaN", "-inf", "1e309", "=", ":", "--", "#", "[]", "None", "null",
         "1_000", "0x10", "../../etc/passwd", "/dev/zero", ".")  # fmt: skip


def case(kind: str, number: int, seed: int = SEED) -> Case:
    """The mutated job of a number: half as in `imports.py`, half with its form kept and keys that the reader knows set to what they may not be."""
    rng = random.Random(f"{kind} {seed} {number}")
    files = dict(rng.choice(jobs(kind)))
    arguments = files.pop("arguments.txt", "").splitlines()
    changed: dict[str, bytes | None] = {name: text.encode() for name, text in files.items()}
    named = arguments or sorted(files)
    # several faults in one job
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if arguments and (not files or rng.random() < 0.5):
            at = rng.randrange(len(named))
            how = rng.random()
            if how < 0.35:
                named[at] = (inputs_bad._text(rng, named[at]) if how < 0.25 else named[at] + rng.choice(imports.ACTIVE)).replace("\0", "")
            elif how < 0.5:
                del named[at : at + rng.choice((1, 1, 2, 5))]
                named = named or ["--x"]
            else:
                name = rng.choice(names(kind))
                named[at:at] = [name, rng.choice(WORDS)] if name.startswith("--") else [f"{name}={rng.choice(WORDS)}"]
        else:
            name = rng.choice(sorted(files))
            changed[name] = _broken(rng, name, files[name]) if rng.random() < 0.4 else _formed(rng, kind, name, files[name])
    more = ("--lenient",) if rng.random() < 0.3 else ()
    return Case(("import", kind, *more, "-o", "out", "--", *named), changed, directory="out")


def _broken(rng: random.Random, name: str, text: str) -> bytes | None:
    # what is no such file at all is soon seen by all kinds, and slow
    if rng.random() < 0.02:
        return rng.choice(inputs_bad.STRANGE)
    if rng.random() < 0.3:
        at = rng.randrange(len(text) + 1)
        return (text[:at] + rng.choice(imports.ACTIVE) + text[at:]).encode()
    raw = inputs_bad._text(rng, text).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.choice((b"", bytes([rng.randrange(256)]), b"\xc3", b"\0", rng.randbytes(20))) + raw[at + rng.choice((0, 1, len(raw))) :]
    return raw


def _formed(rng: random.Random, kind: str, name: str, text: str) -> bytes | None:
    """The same form with other values: of JSON and YAML as data, of scripts and TOML by what stands behind a key."""
    times = rng.choice((1, 1, 2, 3, 6))
    if name.endswith((".json", ".yaml", ".yml")):
        data = deepcopy(_data(name, text))
        for _ in range(times):
            if rng.random() < 0.5:
                inputs_bad._change(rng, data)
            else:
                _put(rng, data, rng.choice(names(kind)))
        return (json.dumps(data) if name.endswith(".json") else inputs_bad._yaml(data)).encode("utf-8", "surrogatepass")
    for _ in range(times):
        found = list(re.finditer(r"(?:--?[\w.-]+[= ]|\w+ ?= ?)([^\s\\]+)", text))
        if found and rng.random() < 0.6:
            one = rng.choice(found)
            text = text[: one.start(1)] + rng.choice((*WORDS, *imports.ACTIVE)) + text[one.end(1) :]
        elif found:
            one = rng.choice(found)
            key = rng.choice(names(kind))
            word = rng.choice(WORDS)
            new = f"{key} = {word}\n" if name.endswith((".toml", ".py")) else f"--{key.removeprefix('--')} {word} "
            text = text[: one.start()] + new + text[one.start() :]
    return text.encode("utf-8", "surrogatepass")


@cache
def _data(name: str, text: str) -> Any:
    from symsim.inputs.reading import parse_json, parse_yaml

    return (parse_json if name.endswith(".json") else parse_yaml)(text, name).data


def _put(rng: random.Random, data: dict[str, Any], key: str) -> None:
    """A key that the reader knows, where its dots say, or anywhere."""
    word = rng.choice((*inputs_bad.VALUES, *WORDS))
    value: Any = int(word) if isinstance(word, str) and word.isdigit() and word.isascii() and len(word) < 30 else deepcopy(word)
    *path, last = key.split(".")
    holder = data
    for part in path:
        inner = holder.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        holder = inner
    inside = [v for v in data.values() if isinstance(v, dict)]
    if not path and inside and rng.random() < 0.6:
        holder = rng.choice(inside)
    holder[last] = value


class Place:
    """A directory in memory of which only what changes is written."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.there: dict[str, bytes | None] = {}

    def hold(self, files: dict[str, bytes | None]) -> bool:
        """Whether the files could be laid out as plain ones."""
        if any(content is None or content.startswith((b"link:", b"mode:")) for content in files.values()):
            return False
        for name in self.there.keys() - files.keys():
            os.unlink(self.where / name)
            del self.there[name]
        for name, content in files.items():
            if self.there.get(name) != content:
                assert content is not None
                with open(self.where / name, "wb") as file:
                    file.write(content)
                self.there[name] = content
        return True


def made(job: Job) -> str:
    """All that `symsim import` writes and prints."""
    parts = [json.dumps(job.to_json(), allow_nan=False), ledger_text(job), *job.notes]
    if job.architecture is not None:
        parts.append(format_model(job.architecture))
    if job.strategy is not None:
        parts.append(format_yaml(job.strategy))
    if job.system is not None:
        parts.append(format_system(job.system))
    if job.assumptions:
        parts.append(format_yaml(job.assumptions))
    if job.given:
        parts.append(json.dumps({"kind": job.kind, **job.given}))
    return "\n".join(parts)


def direct(kind: str, asked: Case, place: Place) -> Outcome:
    """What the reader makes of a case."""
    global _watching
    status, fault, detail = 0, "", ""
    _acted.clear()
    before, began = os.listdir(place.where), time.process_time()
    signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    _watching = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            named = asked.arguments[asked.arguments.index("--") + 1 :]
            made(read_job(kind, named, Options(lenient="--lenient" in asked.arguments)))
    except errors.InputError as error:
        status, detail = 2, f"symsim: {printable(str(error))}"
        if len(detail) > LONGEST or "\n" in detail:
            fault = "message: too long, or not one line"
        elif OBEYED.search(str(error)):
            fault = "message: a control character"
    except _Hang:
        fault = "hang: " + _where(None)
    except MemoryError as error:
        fault = "memory: " + _where(error)
    except BaseException as error:
        fault = f"traceback: {type(error).__name__}: {_where(error)}"
    finally:
        _watching = False
        signal.setitimer(signal.ITIMER_PROF, 0)
    if _acted or os.listdir(place.where) != before:
        fault = fault or f"acts: {_acted[:1]} {sorted(set(os.listdir(place.where)) - set(before))[:1]}"
    return Outcome(status, fault, detail, time.process_time() - began)


def outcome(kind: str, number: int, place: Place, seed: int = SEED) -> Outcome:
    asked = case(kind, number, seed)
    if number % _COMMANDED == 0 or not place.hold(dict(asked.files)):
        found = run(asked, place.where.parent)
        if not found.fault and not found.status and number % _EVALUATED == 0:
            found = run(Case(("import", *asked.arguments[1:]), asked.files, directory="out"), place.where.parent, ("eval", "out", "--json"))
        os.chdir(place.where)
        return found
    return direct(kind, asked, place)


def _hint(number: int, near: Any, matches: Any) -> None:
    """Names near a wrong one are looked for in some cases only."""
    asked = number % _HINTED == 0
    errors.near = near if asked else lambda name, valid: []
    difflib.get_close_matches = matches if asked else lambda word, possibilities, n=3, cutoff=0.6: list(possibilities)[:n]


def _watched() -> None:
    """This process for itself: looked at, with little memory, its files in memory."""
    sys.addaudithook(_hook)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    os.environ["TMPDIR"] = "/dev/shm"
    # what ships does not change meanwhile
    shipped._names = cache(shipped._names)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of wall time")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--number", type=int)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    _watched()
    near, matches = errors.near, difflib.get_close_matches
    faults: list[tuple[int, str]] = []
    tally: Counter[str] = Counter()
    longest: tuple[float, Any] = (0.0, None)
    began, cpu, number = time.monotonic(), time.process_time(), given.first
    with place_of_work() as where:
        place = Place(where / "files")
        place.where.mkdir()
        os.chdir(place.where)
        if given.number is not None:
            print(case(given.kind, given.number, given.seed))
            print(outcome(given.kind, given.number, place, given.seed))
            return 0
        names(given.kind)
        while number < given.first + given.count and time.monotonic() - began < given.seconds:
            _hint(number, near, matches)
            found = outcome(given.kind, number, place, given.seed)
            tally["fault" if found.fault else "refused" if found.status else "answered"] += 1
            longest = max(longest, (found.seconds, number))
            if found.fault:
                faults.append((number, found.fault))
            number += 1
    became = ", ".join(f"{n} {what}" for what, n in sorted(tally.items()))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    spent = time.process_time() - cpu
    print(f"{given.kind}: {number - given.first} cases from {given.first}, {became}", end="; ")
    print(f"longest {longest[0]:.1f} s ({longest[1]}); {spent:.0f} s of CPU, {most} MiB")
    return imports.faults_said(faults)


if __name__ == "__main__":
    sys.exit(main())
