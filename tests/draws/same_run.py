"""What a source tree says to evaluations read from standard input: run by same.py, once for each tree, its first argument.

A line holds the arguments of a `symsim eval --json`, and whether to run the command itself, with its notes on options without
effect, which take most of its time, or `symsim.derive`, which gives the same object. The answer is a line
[status, text, complaint, seconds of CPU]; status 2 is a refusal, -1 a traceback.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import warnings
from pathlib import Path
from typing import TextIO

Said = tuple[int, str, str]


def command(arguments: list[str]) -> Said:
    try:
        from symsim.api import cli
    except ImportError:
        # a tree from before the rooms
        from symsim import cli  # type: ignore[no-redef,attr-defined]

    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(arguments)
        except SystemExit as leave:
            status = leave.code if isinstance(leave.code, int) else 1
    return status, out.getvalue(), err.getvalue()


def derived(arguments: list[str]) -> Said:
    import symsim

    model, strategy, system, overrides = arguments[1], None, None, {}
    for option, value in zip(arguments[2::2], arguments[3::2]):
        if option == "--set":
            name, _, text = value.partition("=")
            overrides[name] = text
        strategy, system = (value if option == "-s" else strategy), (value if option == "-y" else system)
    assumed = {name.removeprefix("assume."): overrides.pop(name) for name in list(overrides) if name.startswith("assume.")}
    return 0, json.dumps(symsim.derive(model, strategy, assumed, overrides, system).to_json(), indent=2) + "\n", ""


def answer(arguments: list[str], whole: bool) -> tuple[int, str, str, float]:
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            said = command(arguments) if whole else derived(arguments)
        except Exception as error:
            refused = any(kind.__name__ == "InputError" for kind in type(error).__mro__)
            said = (2, "", str(error)) if refused else (-1, "", f"{type(error).__name__}: {error}")
    return *said, time.process_time() - begun


def main(tree: Path, given: TextIO, said: TextIO) -> None:
    sys.path.insert(0, str(tree))
    import symsim

    if not Path(symsim.__file__).resolve().is_relative_to(tree):
        raise SystemExit(f"symsim was imported from {symsim.__file__}, not from {tree}")
    for line in given:
        arguments, whole = json.loads(line)
        said.write(json.dumps(answer(arguments, whole)) + "\n")
        said.flush()


if __name__ == "__main__":
    # what a tree prints by itself must not mix with the answers
    answers, sys.stdout = sys.stdout, sys.stderr
    main(Path(sys.argv[1]).resolve(), sys.stdin, answers)
