"""What commands write on standard output and on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import NoReturn

from symsim.errors import InputError, printable, sentence

BROKEN_PIPE = 141


def print_out(text: str) -> None:
    """Write to standard output; a reader that has gone away is no error, a full disk is."""
    if sys.stdout is None:
        raise InputError("standard output is closed")
    try:
        sys.stdout.write(printable(text))
        sys.stdout.flush()
    except OSError as error:
        leave_output(error)


def leave_output(error: OSError) -> NoReturn:
    # what is left in the buffer would fail once more, with a traceback, when Python shuts down
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        raise SystemExit(BROKEN_PIPE)
    raise InputError(f"standard output cannot be written: {error.strerror}")


def say_replaced(model: str, strategy: str | None) -> None:
    """That -s takes the place of the strategy that a directory has, of a command that says nothing else of its model."""
    if strategy is not None:
        from symsim.inputs.models import load_model

        say_all(load_model(model).replaced(strategy))


def say_all(notes: Iterable[str]) -> None:
    for note in notes:
        say(note)


def say(note: str) -> None:
    """One line on standard error."""
    print(f"symsim: {sentence(note)}", file=sys.stderr)
