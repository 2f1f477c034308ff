"""Functions in processes of their own: one alone, whose memory is watched, or several at the same time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from symsim.bench.measuring import WATCH_S, bytes_held
from symsim.errors import InputError

T = TypeVar("T")


def apart(function: Callable[[], Iterable[T]]) -> Iterator[tuple[T, int]]:
    """What a function gives, one by one, in a process of its own; and the most bytes that it, this one and its own held meanwhile."""
    receiver, process = _forked(function, grouped=True)
    held = 0
    try:
        while True:
            if not receiver.poll(WATCH_S):
                held = max(held, bytes_held(os.getpid()))
                continue
            try:
                found = receiver.recv()
            except EOFError:
                break
            if isinstance(found, Exception):
                raise found
            yield found, held
            held = 0
        process.join()
        if process.exitcode:
            raise InputError(f"a benchmark's process was ended from outside (status {process.exitcode}), as happens where memory runs out")
    finally:
        if process.is_alive():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def together(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Results of functions that run at the same time, each in a process of its own."""
    running = [_forked(partial(_once, f)) for f in functions]
    found = []
    for receiver, process in running:
        found.append(receiver.recv())
        process.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def _once(function: Callable[[], T]) -> list[T]:
    return [function()]


def _forked(function: Callable[[], Iterable[Any]], grouped: bool = False) -> tuple[Connection, Any]:
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(function, sender, grouped))
    process.start()
    sender.close()
    return receiver, process


def _send(function: Callable[[], Iterable[Any]], sender: Connection, grouped: bool) -> None:
    if grouped:
        # Ctrl-C goes to the parent, which ends the group
        os.setpgid(0, 0)
    try:
        for found in function():
            sender.send(found)
    except Exception as error:  # whatever it is, the parent says it
        sender.send(error)
