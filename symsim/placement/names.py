"""A strategy as data: for every named dimension, and for what is kept of parameters, the axes of the mesh it lies on.

    a, g, f, V -> tp        f_e -> etp        E -> ep        b -> dp        s -> cp, and tp where it is left

`place` (`mesh.py`) reads this table and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import once, reading

# Dimensions that tensor parallelism splits: heads, feed-forward widths, vocabulary, and what merges the streams of multi-token
# prediction (Megatron-Core multi_token_prediction.py: eh_proj is a column-parallel linear)
BY_TENSOR = ("a", "g", "f", "f_s", "V", "h_o", "h_c", "H_k", "H_v", "H_m", "G_m", "D_i", "G_o", "a_2", "g_2")


@dataclass(frozen=True)
class Axes:
    """The axes that a dimension lies on; `left`: those it takes only where no other dimension of the operation does."""

    always: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


WHOLE = Axes()


@dataclass(frozen=True)
class Placement:
    """The axes of every named dimension, those that differ in attention and in what needs whole sequences, and of what is kept of every parameter.

    named: of operations by name (`lm_head`, `mlp.down_proj`), the dimensions that lie elsewhere than the table says.
    """

    dims: Mapping[str, Axes]
    attention: Mapping[str, Axes]
    whole: Mapping[str, Axes]
    stores: Mapping[str, tuple[str, ...]]
    named: Mapping[str, Mapping[str, tuple[str, ...]]]

    @property
    def stands_on(self) -> tuple[Any, ...]:
        return self.dims, self.attention, self.whole, self.stores, self.named

    def of(self, dim: str, *, within: str = "", attention: bool = False, whole: bool = False) -> Axes:
        """Where a dimension lies in the operation named `within`."""
        for name, moved in self.named.items():
            if dim in moved and (within == name or within.startswith(f"{name}.")):
                return Axes(moved[dim])
        if attention and dim in self.attention:
            return self.attention[dim]
        if whole and dim in self.whole:
            return self.whole[dim]
        return self.dims.get(dim, WHOLE)

    def __str__(self) -> str:
        return "\n".join(f"{what} -> {axes}" for what, axes in table(self))


def placement_of(strategy: Strategy) -> Placement:
    """The whole of what a strategy says to the compiler about where things lie. Axes of one rank are listed too."""
    dims, attention, whole = _dims(strategy)
    replicas = ("dp", *_context(strategy))
    kept_whole = strategy.zero >= 2 and strategy.gradient_sync in ("every_flush", "last_microbatch")
    stores = {
        "parameters": replicas if strategy.zero == 3 else (),
        "gradients": replicas if strategy.zero >= 2 and not kept_whole else (),
        "optimizer states": replicas if strategy.zero >= 1 else (),
    }
    return Placement(dims, attention, whole, reading(strategy, "store", stores), {})


def _context(strategy: Strategy) -> tuple[str, ...]:
    return ("cp_a2a", "cp_p2p") if strategy.cp > 1 and strategy.cp_comm_type == "a2a+p2p" else ("cp",)


@once
def _dims(strategy: Strategy) -> tuple[dict[str, Axes], dict[str, Axes], dict[str, Axes]]:
    """The axes of dimensions, and those that differ in attention and in what needs whole sequences."""
    kind, context = strategy.cp_comm_type if strategy.cp > 1 else "p2p", _context(strategy)
    by_heads = {"a2a": ("cp",), "a2a+p2p": ("cp_a2a",)}.get(kind, ())
    sequence = ("tp",) if strategy.sp else ()
    dims = {
        **{dim: Axes(("tp",)) for dim in BY_TENSOR},
        "f_e": Axes(("etp",)),
        "E": Axes(("ep",)),
        "b": Axes(("dp",)),
        "s": Axes(context, left=sequence),
        "R": Axes(left=("etp",)),
        "R_u": Axes(left=("etp",)),
    }
    attention = {}
    if by_heads:  # the sequence moves to the heads
        attention = {dim: Axes(("tp", *by_heads)) for dim in BY_TENSOR}
        attention["s"] = Axes(tuple(a for a in context if a not in by_heads), left=sequence)
    # Megatron-Core ssm/mamba_context_parallel.py: heads on every rank of context parallelism, whatever attention does
    whole = {dim: Axes(("tp", *context)) for dim in BY_TENSOR} | {"s": Axes(left=sequence)} if strategy.cp > 1 else {}
    return dims, attention, whole


def table(placement: Placement, dims: Iterable[str] | None = None, degrees: Mapping[str, int] | None = None) -> list[tuple[str, str]]:
    """(what, the axes it lies on), one row for all that lies alike.

    dims: those to show, by default all. degrees: axes of one rank are left out, and dimensions that lie on no other.
    """
    shown = list(placement.dims) if dims is None else [d for d in placement.dims if d in set(dims)]

    def said(axes: Axes) -> str:
        many = [[a for a in some if degrees is None or degrees.get(a, 1) > 1] for some in (axes.always, axes.left)]
        # what tensor parallelism leaves to the sequence is sequence parallelism
        return ", ".join([*many[0], *("sp" if a == "tp" else f"{a} where it is left" for a in many[1])])

    rows = _grouped((d, said(placement.dims[d])) for d in shown)
    moved = [d for d in ("a", "g", "s") if d in shown and said(placement.attention.get(d, placement.dims[d])) != said(placement.dims[d])]
    rows += [(f"{what} in attention", axes or "none") for what, axes in _grouped((d, said(placement.attention[d])) for d in moved)]
    rows = [row for row in rows if row[1]]
    rows += [(f"{dim} of {name}", said(Axes(axes)) or "none") for name, at in placement.named.items() for dim, axes in at.items()]
    stored = _grouped((what, said(Axes(axes))) for what, axes in placement.stores.items())
    of_experts = "; of experts: edp" if "E" in shown else ""
    return rows + [(f"store of {what}", axes + of_experts) for what, axes in stored if axes]


def _grouped(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for what, axes in rows:
        found.setdefault(axes, []).append(what)
    return [(", ".join(what), axes) for axes, what in found.items()]
