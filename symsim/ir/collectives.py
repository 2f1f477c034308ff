"""Every kind of collective, one row each: what it makes of a tensor's placement, what carries it, and the collective of its gradient.

How much a rank gets back for what it hands in, which of the two is the payload, the bytes on the wire and the form of the seconds all follow
from a row. A pass asks the row of a message (`message.row.gathers`) and knows no collective by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from symsim.algebra.expr import Expr

Held = Literal["", "partial", "shard", "whole"]


@dataclass(frozen=True)
class Collective:
    """A kind of collective.

    said: its name in words. before, after: what a rank holds of the tensor: a partial sum of all of it, a shard, or the whole; "": it leads from
    no placement to another. transpose: the collective of the gradient; "": the gradient stays where it is.
    carried: over a ring of the group, by each member to every other (exchange), or from one rank to the next (direct). passes: how
    often a ring goes round. tree: a tree may be shorter than the ring. wire: the same in words, for what a rank puts on the wire.
    """

    said: str
    before: Held
    after: Held
    transpose: str
    carried: Literal["ring", "exchange", "direct"]
    wire: str
    passes: int = 1
    tree: bool = False

    @property
    def gathers(self) -> bool:
        """A rank gets the whole for its own part of it; the whole is the payload."""
        return self.before == "shard" and self.after == "whole"

    @property
    def sums(self) -> bool:
        """It completes a partial sum."""
        return self.before == "partial"

    @property
    def scatters(self) -> bool:
        """Every rank hands in a partial sum, and gets its own part of the whole."""
        return self.before == "partial" and self.after == "shard"

    @property
    def reduces(self) -> bool:
        """Every rank hands in a partial sum, and gets all of the whole."""
        return self.before == "partial" and self.after == "whole"

    def got_back(self, handed_in: Expr, group: Expr) -> Expr:
        """Elements that each of a group gets for so many that it hands in."""
        return handed_in * group if self.gathers else handed_in / group if self.scatters else handed_in


COLLECTIVES: dict[str, Collective] = {
    "all_gather": Collective(
        "all-gather", "shard", "whole", "reduce_scatter", "ring", "ring: each rank passes on what it has of the whole but its last part"
    ),
    "reduce_scatter": Collective(
        "reduce-scatter", "partial", "shard", "all_gather", "ring", "ring: each rank passes on what it has of the whole but its own part"
    ),
    "all_reduce": Collective(
        "all-reduce",
        "partial",
        "whole",
        "",
        "ring",
        "the shorter of a ring, a reduce-scatter and an all-gather, and a tree, up and down",
        passes=2,
        tree=True,
    ),
    "all_to_all": Collective("all-to-all", "shard", "shard", "all_to_all", "exchange", "direct: all but the rank's own part"),
    "p2p": Collective("send/receive", "", "", "p2p", "direct", "direct"),
    "broadcast": Collective("broadcast", "", "", "", "direct", "direct"),
}


def carried_by(way: str) -> tuple[str, ...]:
    """The collectives that are carried so."""
    return tuple(name for name, row in COLLECTIVES.items() if row.carried == way)


def between(before: Held, after: Held) -> str:
    """The collective that leads from one placement to another. KeyError when none does."""
    found = next((name for name, row in COLLECTIVES.items() if (row.before, row.after) == (before, after)), None)
    if found is None:
        raise KeyError(f"no collective leads from {before} to {after}")
    return found
