"""Messages: what one rank hands in and gets back in one collective call.

These are local buffers, not wire bytes; which algorithm carries them is a matter of time, not of count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, symbol
from symsim.ir.block import WIDTHS
from symsim.ir.collectives import COLLECTIVES, Collective

# why a message of a block is sent once more in backward; or that it is of FSDP's root unit, or part of the optimizer's update
Purpose = Literal["", "recomputed", "gathered again", "root", "update"]

# kernels that exchange tokens with experts in place of a collective (moe_token_dispatcher_type=flex)
DISPATCHERS = ("deepep", "hybridep")


@dataclass(frozen=True)
class Message:
    """`count` calls of `op` over `axis` (a mesh axis or several joined by '_'), each with these local buffers. late: the share of it
    that is sent only when what needs it waits, of a message that otherwise runs beside computation."""

    phase: str
    op: str
    axis: str
    group: Expr
    send_elements: Expr
    receive_elements: Expr
    dtype: str
    what: str
    count: Expr = ONE
    per: str = "microbatch"
    purpose: Purpose = ""
    late: Expr = ZERO

    @property
    def stands_on(self) -> tuple[Any, ...]:
        """All that tells it from others."""
        return tuple(getattr(self, f.name) for f in fields(self))

    @property
    def one_call(self) -> "Message":
        """One call of it, whenever and whatever for: what its seconds follow from."""
        return Message("", self.op, self.axis, self.group, self.send_elements, self.receive_elements, self.dtype, "")

    @property
    def row(self) -> Collective:
        """What kind of collective it is."""
        return COLLECTIVES[self.op]

    @property
    def payload(self) -> Expr:
        """Elements of the whole buffer: what is got back of a gather, else what is handed in."""
        return self.receive_elements if self.row.gathers else self.send_elements

    @property
    def payload_bytes(self) -> Expr:
        return self.payload * WIDTHS[self.dtype]

    @property
    def larger_bytes(self) -> Expr:
        """Of what is handed in and what is got back that which takes longer, each on its own way of the link. An imbalance of experts is no less
        than 1."""
        send, receive, times = self.send_bytes, self.receive_bytes, symbol("lam")
        if receive in (send, send * times):
            return receive
        return send if send == receive * times else maximum(send, receive)

    @property
    def send_bytes(self) -> Expr:
        return self.send_elements * WIDTHS[self.dtype]

    @property
    def receive_bytes(self) -> Expr:
        return self.receive_elements * WIDTHS[self.dtype]


def between_ranks(messages: Iterable[tuple[int, Message]]) -> list[tuple[int, Message]]:
    """Messages of a block (with the index of their operation) that leave the rank: frameworks issue collectives in a group of
    one, too, which send nothing."""
    return [(i, m) for i, m in messages if m.group != ONE]


def merge(messages: Iterable[Message]) -> list[Message]:
    """Equal calls counted together, in order of first appearance; `what` lists where they come from."""
    merged: dict[tuple, tuple[Message, Expr, dict[str, None]]] = {}
    for message in messages:
        key = (message.phase, message.op, message.axis, message.send_elements, message.receive_elements, message.dtype, message.per)
        if key in merged:
            first, count, what = merged[key]
            what[message.what] = None
            merged[key] = (first, count + message.count, what)
        else:
            merged[key] = (message, message.count, {message.what: None})
    return [
        Message(m.phase, m.op, m.axis, m.group, m.send_elements, m.receive_elements, m.dtype, "; ".join(what), count, m.per)
        for m, count, what in merged.values()
    ]
