"""The `eager` profile's lightning attention: blocks one after the other, as transformers' torch code runs them.

Source: transformers 5.23, models/minimax/modeling_minimax.py MiniMaxLightningAttention; what is kept was measured by the storages alive after
forward. Batched products take queries, keys and values of several rows as copies, and those of one row as they lie.
"""

from __future__ import annotations

from symsim.algebra.expr import ceil, maximum, minimum
from symsim.frameworks.kernels import Kernels, lightning_products
from symsim.ir.block import Dim, Op


def eager_lightning(k: Kernels, op: Op) -> None:
    """Of the first block, whose state is nothing, no decayed queries are kept, and of the last nothing that its state is made of."""
    q, key, value = op.inputs
    products = lightning_products(k)
    b, blocks = k.dims["b"].size, ceil(k.dims["s"].size / k.dims["C_l"].size)
    several = minimum(1, b - 1)
    for name, size, part in (
        ("b_if_many", b * several, "b"),
        ("b_if_one", b * (1 - several), "b"),
        ("n_blocks", blocks, "s"),
        ("n_decays", maximum(0, blocks - 2), "s"),
    ):
        k.dims.setdefault(name, Dim(size, parts=(part,)))
    precision = k.tensors[q].dtype

    def kept(name: str, *dims: str) -> str:
        return k.make(name, dims, precision, "index")

    made = [
        *(kept(f"{name}_copy", "b_if_many", "a", "s", "d") for name in ("queries", "keys", "values")),
        kept("as_they_lie", "b_if_one", "s", "a", "d_qkv"),
        kept("scores", "b", "a", "s", "in_block"),
        kept("decayed_queries", "b", "a", "s_but_first", "d"),
        kept("states", "b", "a", "n_blocks", "d", "d"),
        kept("decayed_keys", "b", "a", "s_but_last", "d"),
        kept("values_again", "b_if_many", "a", "s_but_last", "d"),
        kept("decays", "n_decays", "a"),
    ]
    k.emit("lightning", [q, key, value], [*op.outputs, *made], saves=made, **products)
