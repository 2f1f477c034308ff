"""Products of an update that takes matrices whole: Newton-Schulz rounds of Muon, and projections of GaLore and APOLLO.

A round of X, k x n with k no more than n, is A = X X^T, A A, and (b A + c A A) X: 4 k^2 n + 2 k^3 FLOPs. Under tensor parallelism a rank takes
its own piece as it is (blockwise), gathers the whole (duplicated), or sums A over the ranks that share X (distributed: then k is
the side that is not cut). With sharded states a rank has the rounds of its share of the matrices.

Sources: Megatron-Core optimizer/muon.py; NVIDIA Emerging-Optimizers orthogonalized_optimizers/muon_utils.py newton_schulz_tp; Dion muon.py (FSDP).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, maximum, minimum, symbol
from symsim.cost.matrices import Weight, weights_of
from symsim.cost.reduce import expert_groups, shards
from symsim.cost.states import rank_of_projection, taken_as_matrix
from symsim.inputs import curves
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.ir.messages import Message
from symsim.lowering.lowered import Lowered


@dataclass(frozen=True)
class Product:
    """m x k by k x n, `times` a step on one rank."""

    m: Expr
    n: Expr
    k: Expr
    times: Expr

    @property
    def flops(self) -> Expr:
        return 2 * self.m * self.n * self.k * self.times


@dataclass(frozen=True)
class Round:
    """What an update multiplies for a matrix of these sides, the shorter first: (m, n, k) of each product; `times` a step on one rank of stage i."""

    sides: tuple[Expr, Expr]
    products: tuple[tuple[Expr, Expr, Expr], ...]
    times: Expr


def update_rounds(lowered: Lowered) -> list[Round]:
    """All that a step's update multiplies on one rank of stage i; matrices alike together."""
    strategy = lowered.profile.strategy
    row = OPTIMIZERS[strategy.optimizer]
    found: dict[tuple[tuple[Expr, Expr], tuple[tuple[Expr, Expr, Expr], ...]], Expr] = {}
    for weight in weights_of(lowered) if row.orthogonal or row.projected else ():
        if taken_as_matrix(strategy, weight):
            often = weight.count * weight.times / _owners(lowered, weight)
            one = _of_newton_schulz(lowered, weight, often) if row.orthogonal else _of_projection(strategy, weight, often)
            alike = one.sides, one.products
            found[alike] = found.get(alike, ZERO) + one.times
    return [Round(*alike, times) for alike, times in found.items()]


def update_products(lowered: Lowered) -> list[Product]:
    """The products of `update_rounds`, equal ones once."""
    found: dict[tuple[Expr, Expr, Expr], Expr] = {}
    for one in update_rounds(lowered):
        for product in one.products:
            found[product] = found.get(product, ZERO) + one.times
    return [Product(*shape, times) for shape, times in found.items()]


def round_seconds(lowered: Lowered, one: Round) -> Expr:
    """Seconds of the products of a round, once, in the type that they multiply in; TF32 at half the rate of 16 bits."""
    strategy = lowered.profile.strategy
    half = symbol("Phi_fp16" if strategy.precision == "fp16" else "Phi_bf16")
    how = strategy.muon_fp32_matmul_prec if OPTIMIZERS[strategy.optimizer].orthogonal else "medium"
    peak, width = {"medium": (half, 2), "high": (half / 2, 4), "highest": (symbol("Phi_fp32"), 4)}[how]
    return sum((curves.gemm(m, n, k, kind="forward", width_in=width, width_out=width, peak=peak) for m, n, k in one.products), ZERO)


def update_seconds(lowered: Lowered) -> Expr:
    """Seconds of all of them, a step."""
    return sum((one.times * round_seconds(lowered, one) for one in update_rounds(lowered)), ZERO)


def orthogonal_temporaries(lowered: Lowered, width: int | Fraction) -> Expr:
    """Bytes beside the states while the worst matrix is made orthogonal: the moment as it is taken, `width` an element, the matrix of a round and
    that of the next, and two products of its shorter side, in 16 bits (torch.optim.Muon _zeropower_via_newtonschulz)."""
    strategy, found = lowered.profile.strategy, []
    for weight in weights_of(lowered):
        if taken_as_matrix(strategy, weight):
            shorter = minimum(weight.rows, weight.columns)
            found.append(((width + 4) * weight.rows * weight.columns + 4 * shorter * shorter) * minimum(1, weight.times))
    return maximum(*found) if found else ZERO


def _owners(lowered: Lowered, weight: Weight) -> Expr:
    """Ranks among which the matrices are dealt out."""
    return shards(lowered, weight.expert and expert_groups(lowered)).owners if lowered.profile.strategy.zero else ONE


def _degree(lowered: Lowered, weight: Weight) -> Expr:
    """Ranks over which tensor parallelism cuts the matrix."""
    return lowered.mesh.degree("etp" if weight.expert else "tp") if weight.split else ONE


def _of_newton_schulz(lowered: Lowered, weight: Weight, often: Expr) -> Round:
    mode, degree = lowered.profile.strategy.muon_tp_mode, _degree(lowered, weight)
    rows, columns = weight.rows, weight.columns
    if mode == "duplicated":
        rows, columns = (rows * degree, columns) if weight.split == "rows" else (rows, columns * degree)
    k, n = minimum(rows, columns), maximum(rows, columns)
    if mode == "distributed" and degree != ONE:
        k, n = (columns, rows) if weight.split == "rows" else (rows, columns)
    return Round((k, n), ((k, k, n), (k, k, k), (k, n, k)), often * lowered.profile.strategy.muon_num_ns_steps)


def _of_projection(strategy: Strategy, weight: Weight, often: Expr) -> Round:
    """The gradient to few rows, and (GaLore) the update back. The decomposition that makes GaLore's projector, once in some hundred steps, is
    not counted."""
    rank, row = rank_of_projection(strategy, weight), OPTIMIZERS[strategy.optimizer]
    k, n = minimum(weight.rows, weight.columns), maximum(weight.rows, weight.columns)
    return Round((k, n), ((rank, n, k), *([(k, n, rank)] if not row.random else [])), often)


def orthogonal_messages(lowered: Lowered) -> list[Message]:
    """What ranks send each other for whole matrices, once a step: over tensor ranks the moment, or A of every round; of sharded parameters
    the moment to its owner and the update back."""
    strategy = lowered.profile.strategy
    if not OPTIMIZERS[strategy.optimizer].orthogonal:
        return []
    made = []
    for weight in weights_of(lowered):
        degree = _degree(lowered, weight)
        if not taken_as_matrix(strategy, weight):
            continue
        axis, often = "etp" if weight.expert else "tp", ceil(weight.times / _owners(lowered, weight))
        if degree != ONE and strategy.muon_tp_mode == "duplicated":
            n = weight.elements
            made.append(_message("all_gather", axis, degree, n, n * degree, "fp32", "moment, to be made orthogonal", often))
        elif degree != ONE and strategy.muon_tp_mode == "distributed":
            k = weight.columns if weight.split == "rows" else weight.rows
            rounds = often * weight.count * strategy.muon_num_ns_steps
            made.append(_message("all_reduce", axis, degree, k * k, k * k, "bf16", "products of a moment's rows", rounds))
        group = shards(lowered, weight.expert and expert_groups(lowered))
        if strategy.zero == 3 and group.shard != ONE:
            n = weight.elements / group.shard
            both_ways = 2 * weight.times
            made.append(_message("all_to_all", group.inside, group.shard, n, n, "bf16", "moments to their owners, and updates back", both_ways))
    return made


def _message(op: str, axis: str, degree: Expr, sent: Expr, received: Expr, dtype: str, what: str, count: Expr) -> Message:
    return Message("step", op, axis, degree, sent, received, dtype, what, count, per="step", purpose="update")
