"""What the blocks of a model that are no layer are to it: a row a block. A layer of any kind is `LAYER`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symsim.algebra.expr import ONE, Expr, symbol
from symsim.algebra.kinds import DEPTH, EMBEDDING, HEAD


@dataclass(frozen=True)
class Role:
    """What a block is to the model that has it.

    title, words: a heading, and a name inside a sentence; last: the moment at which a stage runs the last of them.
    runs, holds: symbols of how often stage i runs the block for a micro-batch, and of how many copies of its parameters it holds (a tied table,
    or a repeated depth, differs from its runs); a layer has those of its kind. largest: of whether it holds the block's largest parameter.
    times: how often the model runs it. single: a stage runs it once or not. before, behind: it makes the stream of the layers, or reads what
    they leave. of_root: FSDP has its parameters in the unit of all that is in no layer. followed_by: what a stage runs after it.
    """

    title: str = ""
    words: str = ""
    last: str = ""
    runs: str = ""
    holds: str = ""
    largest: str = ""
    times: Expr = ONE
    single: bool = False
    before: bool = False
    behind: bool = False
    of_root: bool = False
    followed_by: tuple[str, ...] = ()

    @property
    def on_stream(self) -> bool:
        """Whether it takes the stream of the layers and gives it back: a layer, or a depth of multi-token prediction."""
        return not self.before and not self.behind


LAYER = Role(followed_by=(HEAD, DEPTH))
ROLES: Mapping[str, Role] = {
    EMBEDDING: Role(
        "Embedding", "the embedding", runs="first_i", holds="embedding_i", largest="embedding_i", single=True, before=True, followed_by=(HEAD, DEPTH)
    ),
    HEAD: Role(
        *("Output head and loss", "the output head and loss", "the final norm, the logits and the loss"),
        runs="loss_i",
        holds="last_layer_i",
        largest="loss_i",
        single=True,
        behind=True,
        of_root=True,
    ),
    DEPTH: Role(
        *("Multi-token prediction depth", "multi-token prediction", "the last multi-token prediction depth"),
        runs="mtp_i",
        holds="mtp_copies_i",
        times=symbol("D"),
        of_root=True,
        followed_by=(HEAD,),
    ),
}


def role_of(block: str) -> Role:
    """The role of a block, by its name: of the embedding, the head and the depths their own, of a layer kind `LAYER`."""
    return ROLES.get(block, LAYER)
