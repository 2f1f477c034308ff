"""Processes forked from this one, which find what it has already made; they leave Ctrl-C to it and do not outlive it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from symsim.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.connection import Connection

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

    Sending waits for nothing, and has no thread here. Receiving raises what the process did; InputError where something else ended it.
    """
    import multiprocessing

    context = multiprocessing.get_context("fork")
    (hears, told), (heard, tells) = context.Pipe(duplex=False), context.Pipe(duplex=False)

    def work() -> None:
        _begin()
        hears.close()
        tells.close()
        _talk(run, heard, told)

    def send(message: bytes) -> None:
        # of one that has ended nobody hears
        with suppress(BrokenPipeError):
            tells.send(message)

    def receive() -> bytes:
        try:
            found = hears.recv()
        except EOFError:
            raise InputError("a second process was ended from outside, as for want of memory; 'taskset -c 0' runs in one") from None
        if isinstance(found, Exception):
            raise found
        return cast(bytes, found)

    def end() -> None:
        process.terminate()
        process.join()
        hears.close()
        tells.close()

    process = context.Process(target=work, daemon=True)
    process.start()
    told.close()
    heard.close()
    return send, receive, end


def _talk(run: Callable[[Send, Receive], None], heard: "Connection", told: "Connection") -> None:
    """Run something; threads take what comes at once, and wait where what goes is not taken."""
    coming, going = SimpleQueue[bytes](), SimpleQueue[Any]()

    def hear() -> None:
        with suppress(EOFError):
            while True:
                coming.put(heard.recv())

    def tell() -> None:
        with suppress(BrokenPipeError):
            for message in iter(going.get, None):
                told.send(message)

    telling = Thread(target=tell)
    telling.start()
    Thread(target=hear, daemon=True).start()
    try:
        run(going.put, coming.get)
    except Exception as error:
        going.put(error)
    finally:
        going.put(None)
        telling.join()


def shared() -> Any:
    return _SHARED


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        parent_death, kill = 1, 9
        ctypes.CDLL(None).prctl(parent_death, kill)
