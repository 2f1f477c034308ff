"""A process beside this one: what it says is heard, however much it is, and so is how it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from symsim.errors import InputError
from symsim.grid.processes import Receive, Send, beside

LARGE = bytes(1 << 22)  # more than a pipe holds


def heard(run: Callable[[Send, Receive], None], *said: bytes) -> bytes:
    """What is heard of a process first, after it was told something."""
    send, receive, end = beside(run)
    try:
        for one in said:
            send(one)
        return receive()
    finally:
        end()


def test_neither_waits_for_the_other_to_hear() -> None:
    def run(send: Send, receive: Receive) -> None:
        for _ in range(3):
            send(LARGE)
        send(b"%d" % sum(len(receive()) for _ in range(3)))

    send, receive, end = beside(run)
    for _ in range(3):
        send(LARGE)
    assert [receive() for _ in range(3)] == [LARGE] * 3
    assert receive() == b"%d" % (3 * len(LARGE))
    # of one that has ended nobody hears
    for _ in range(9):
        send(LARGE)
    end()


def test_no_thread_is_left_here() -> None:
    before = threading.active_count()
    assert heard(lambda send, receive: send(receive()), b"some") == b"some"
    assert threading.active_count() == before


def test_what_it_raises_is_raised_here() -> None:
    def run(send: Send, receive: Receive) -> None:
        raise InputError("no such thing")

    with pytest.raises(InputError, match="no such thing"):
        heard(run)


def test_one_that_is_killed_is_said_to_be() -> None:
    def run(send: Send, receive: Receive) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(InputError, match=r"^a second process was ended from outside, as for want of memory; 'taskset -c 0' runs in one$"):
        heard(run)
