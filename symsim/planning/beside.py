"""Two searches of one space that tell each other what they found: in two processes, or on one core in turn.

After every round each sends a message. Before a round it hears those of all of the other's rounds but the last few, no more and no less: neither
waits for the other after each round, and both do the same whichever is faster, so that the certificate is that of two searches in turn.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from symsim.grid.processes import beside

# the last rounds of the other that are not heard of
_UNHEARD = 4


class Talking(Protocol):
    """A search as it talks. busy: whether there is anything left to do; news: what it has to tell since it was asked last."""

    @property
    def busy(self) -> bool: ...
    def round(self) -> None: ...
    def news(self) -> Any: ...
    def hear(self, told: Any) -> None: ...


class Side:
    """One of two that talk. done: whether the other has no more to say."""

    def __init__(self, search: Talking, send: Callable[[bytes], None], receive: Callable[[], bytes]):
        self._search, self._send, self._receive = search, send, receive
        self._rounds, self._heard, self.done = 0, 0, False

    @property
    def busy(self) -> bool:
        return self._search.busy

    def round(self) -> None:
        """A round of the search, if it is busy, and what is heard before it and said after it."""
        # there is nothing else to do where a search has ended
        unheard = _UNHEARD if self._search.busy else 0
        while self._heard < self._rounds - unheard and not self.done:
            told, busy = pickle.loads(self._receive())
            self._search.hear(told)
            self._heard, self.done = self._heard + 1, not busy
        if self._search.busy:
            self._search.round()
        self._rounds += 1
        self._send(pickle.dumps((self._search.news(), self._search.busy)))


class Pair:
    """A search and one beside it. apart: in another process."""

    def __init__(self, search: Talking, other: Talking, apart: bool):
        self._search, self._in_turn, self.end = search, list[Side](), lambda: None
        if apart:
            send, receive, self.end = beside(lambda send, receive: _run(Side(other, send, receive)))
        else:
            there, here = deque[bytes](), deque[bytes]()
            send, receive = there.append, here.popleft
            self._in_turn = [Side(other, here.append, there.popleft)]
        self._side = Side(search, send, receive)

    @property
    def busy(self) -> bool:
        """Whether either is."""
        return self._search.busy or not self._side.done

    def round(self) -> None:
        self._side.round()
        for other in self._in_turn:
            if other.busy:
                other.round()


def _run(side: Side) -> None:
    while side.busy:
        side.round()
