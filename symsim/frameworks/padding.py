"""Rows from which feed-forward networks leave out what pads them: indexed by a mask, and written back among zeros.

Megatron-SWIFT's mlp_padding_free (mcore-bridge 1.6.5, model/modules/transformer_layer.py TransformerLayer.forward), which sequence parallelism
gathers the stream for, whole on every rank, and shares out again behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from symsim.frameworks.kernels import Kernels, Lowering
from symsim.ir.block import TOKENS, Op


def _by_mask(k: Kernels, op: Op, kind: str) -> None:
    """A mask becomes an index of each of its two dimensions, which are kept (torch index and index_put)."""
    tokens = next(k.dims_of(t) for t in (*op.inputs, *op.outputs) if TOKENS in k.dims_of(t))
    places = [k.make(name, tokens[:2], "int64", "index") for name in ("of_row", "in_row")]
    k.emit(kind, op.inputs, [*op.outputs, *places], saves=places)


def leave_padding_out(k: Kernels, op: Op) -> None:
    _by_mask(k, op, "tokens_of_rows")


def pad_again(k: Kernels, op: Op) -> None:
    _by_mask(k, op, "rows_of_tokens")


PADDING: Mapping[str, Lowering] = {"leave_padding_out": leave_padding_out, "pad_again": pad_again}
