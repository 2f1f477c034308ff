"""A text made in a second process while this one goes on: of a report the section that answers, which shares nothing with the others but the
derivation."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_DONE = b"\n"  # behind a text that is whole


@contextmanager
def apart(make: Callable[[], str]) -> Iterator[Callable[[], str]]:
    """A function that waits for the text and returns it. Where there is no second process to be had, or it fails, the text is made here, so
    that its errors are raised here."""
    child, reading = _started(make) if _alone() and _cores() > 1 else (0, -1)
    waited = False

    def made() -> str:
        nonlocal waited
        if not child or waited:
            return make()
        waited = True
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read()
        return text[: -len(_DONE)].decode() if text[-len(_DONE) :] == _DONE else make()

    try:
        yield made
    finally:
        if child:
            if not waited:
                os.close(reading)
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):  # where a program takes up all that end
                os.waitpid(child, 0)


def _started(make: Callable[[], str]) -> tuple[int, int]:
    """A process that writes the text, and where it is read; 0 where none starts."""
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return 0, -1
    if child:
        os.close(writing)
        return child, reading
    # nothing of this process runs on here: neither what its callers do next, nor what they do at its end
    try:
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(make().encode() + _DONE)
    finally:
        os._exit(0)


def _alone() -> bool:
    """Whether this thread is the process's only one, so that nobody holds a lock that a copy of it would wait for."""
    if sys.platform != "linux":
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _cores() -> int:
    return len(os.sched_getaffinity(0))
