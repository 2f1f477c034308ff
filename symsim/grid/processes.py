"""Processes forked from this one, which find what it has already made; they leave Ctrl-C to it and do not outlive it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from symsim.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_SHARED: Any = None

Send = Callable[[bytes], None]
Receive = Callable[[], bytes]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forked(what: Any, workers: int) -> "ProcessPoolExecutor":
    """A pool whose processes find `what` by `shared`."""
    # most of what reads this file forks nothing
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    global _SHARED
    _SHARED = what
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"), initializer=_begin)


def beside(run: Callable[[Send, Receive], None]) -> "tuple[Send, Receive, Callable[[], None]]":
    """A process forked from this one that runs something: what sends it a message, what receives its next one, and what ends it.

    Receiving raises what the process did; InputError where something else ended it.
    """
    import multiprocessing
    from queue import Empty

    context = multiprocessing.get_context("fork")
    there, here = context.Queue(), context.Queue()

    def work() -> None:
        _begin()
        try:
            run(here.put, there.get)
        except Exception as error:
            here.put(error)

    def receive() -> bytes:
        found = None
        while found is None:
            ended = not process.is_alive()
            try:
                found = here.get(timeout=1)
            except Empty:
                if ended:
                    raise InputError("a second process was ended from outside, as for want of memory; 'taskset -c 0' runs in one") from None
        if isinstance(found, Exception):
            raise found
        return cast(bytes, found)

    def end() -> None:
        process.terminate()
        process.join()
        there.cancel_join_thread()

    process = context.Process(target=work, daemon=True)
    process.start()
    return there.put, receive, end


def shared() -> Any:
    return _SHARED


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        parent_death, kill = 1, 9
        ctypes.CDLL(None).prctl(parent_death, kill)
