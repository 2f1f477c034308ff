"""What a second process makes while this one goes on: of a report the section that answers and the table of other choices, of a plan what one
option more would do; they share nothing with the others but the derivation."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, cast

_DONE = b"\n"  # behind what is whole
_Made = TypeVar("_Made")
# other processes that are at work
_others = 0


@contextmanager
def apart(make: Callable[[], _Made]) -> Iterator[Callable[[], _Made]]:
    """A function that waits for what is made and returns it. Where there is no core for another process, or it fails, it is made here, so that its
    errors are raised here."""
    global _others
    child, reading = _started(make) if _alone() and _cores() > 1 + _others else (0, -1)
    waited = False
    _others += bool(child)

    def made() -> _Made:
        nonlocal waited
        if not child or waited:
            return make()
        waited = True
        with os.fdopen(reading, "rb") as pipe:
            found = pipe.read()
        return cast(_Made, pickle.loads(found)) if found[-len(_DONE) :] == _DONE else make()

    try:
        yield made
    finally:
        if child:
            _others -= 1
            if not waited:
                os.close(reading)
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):  # where a program takes up all that end
                os.waitpid(child, 0)


def _started(make: Callable[[], object]) -> tuple[int, int]:
    """A process that writes what it makes, and where it is read; 0 where none starts."""
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
            pipe.write(pickle.dumps(make()) + _DONE)
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
