"""Seconds of a message in closed form: latency and bandwidth over the tiers of a network.

Ranks are numbered along `rank_order`, innermost axis first, and tier j joins R_j consecutive ranks. Of a group whose
axes have degrees n_a and strides q_a, a unit of tier j holds

    mu_j = prod_a max(1, n_a / ceil(n_a q_a / R_j))    (mu_0 = 1, the last tier holds the whole group)

axes of which one goes on where the other ends being one. So a group lies on as few units as hold it, with as many members on
each, and ranks of a unit that are left over stay idle (assumption unit_ranks): groups of 64 have a rack of 72 each. Nothing is
left over where R_j divides what a group spans, or that R_j. With unit_ranks=full units are filled to the last rank,
mu_j = prod_a min(n_a, max(1, R_j / q_a)), as if what is cut off at the end of a unit were as good as a whole group; but
consecutive ranks cut it: seven of nine groups of 64 lie on two racks of 72.

A ring enters every unit of the tier below through all of its mu_{j-1} members there, so over tier j it moves
mu_{j-1} B_j, at most C_j where one ring cannot fill the link, and its bus bandwidth is the least over the tiers it
spans. Ranks that share a link each bring their share, so groups that run side by side contend for nothing that is
counted twice. Latency is paid per hop, rank by rank inside a unit, then unit by unit, and once more per call (lambda_j
of the outermost tier reached, or an entry of its table by collective and number of ranks). Where the N units of a tier are linked pair
by pair, n of them have (n - 1)/(N - 1) of B_j, and a pair 1/(N - 1). An all-to-all sends every member its own part directly: tier j carries
(mu_j - mu_{j-1}) / n of the buffer, all tiers at once (of tokens sent once per unit, at most n / mu_{j-1} of K copies),
and its latency grows with the depth of a tree over the group.
The kernels of a flex dispatcher (DeepEP, HybridEP) send a token to D_j of the group's units of tier j - 1, those that hold any of its experts
(to D_1 ranks), and pass on inside a unit of tier j what came to it from outside, so that tier j carries (mu_j - mu_{j-1}) / mu_j of it. The share
of a tier that they reach is of the dispatcher and the group, from published tables (`exchange` of a system's tier; that of all_to_all where
there is none), and n_e multiprocessors move no more than n_e B_sm; a call has its latency, no hop.

    all_gather, reduce_scatter   S (n-1)/n beta + hops          S: the gathered buffer
    all_reduce                   the least of 2 S (n-1)/n beta + 2 hops (ring) and 2 S beta + 2 depth (tree)
    all_to_all                   max_j S (mu_j - mu_{j-1})/n beta_j + depth
    dispatch, combine            max_j S (D_j / D_1) (mu_j - mu_{j-1})/mu_j beta_j + call
    p2p, broadcast               S max_j beta_j + alpha

Sources: alpha-beta of collectives: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, sec. 3-4; ring and tree over
nodes: NCCL 2.x src/graph/tuning.cc (bandwidth per channel, latency per step), described, not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, log2, maximum, minimum, product, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key
from symsim.algebra.quantity import BYTE, SECOND, Quantity
from symsim.cost.exchange_buffers import multiprocessors
from symsim.inputs.architecture import Moe
from symsim.inputs.conventions import Rule
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.traced import once, reading
from symsim.ir.messages import Message
from symsim.placement.mesh import Mesh
from symsim.placement.sizes import reached, reached_in_turn

PER_BYTE = SECOND / BYTE


@dataclass(frozen=True)
class Axis:
    """Ranks `stride` apart, `degree` of them."""

    degree: Expr
    stride: Expr


@once
def groups(strategy: Strategy, mesh: Mesh, copies: Mapping[str, int] | None = None) -> dict[str, tuple[Axis, ...]]:
    """The ranks behind every axis label that a message may carry. copies: stages that hold the same weight, by label; of the embedding table
    the first and the last are among them, so that a unit which joins all of them joins the whole pipeline."""
    order = strategy.rank_order.split("-")
    d = mesh.degree
    context = {"cp": product(d(a) for a in mesh.context_axes)}
    dense = _along([(a, context.get(a) or d(a)) for a in order if a != "ep"])
    expert = _along([(a, d({"tp": "etp", "dp": "edp"}.get(a, a))) for a in order if a != "cp"])
    tp, cp, dp, pp = (dense[a] for a in ("tp", "cp", "dp", "pp"))
    etp, ep, edp = (expert[a] for a in ("tp", "ep", "dp"))
    alone = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep, "etp": etp, "edp": edp}
    made: dict[str, tuple[Axis, ...]] = {label: (axis,) for label, axis in alone.items()}
    made |= {label: (Axis(ONE * n, pp.stride * pp.degree / n),) for label, n in ({"embd": 2} | dict(copies or {})).items()}
    made |= {"cp_a2a": (Axis(d("cp_a2a"), cp.stride),), "cp_p2p": (Axis(d("cp_p2p"), cp.stride * d("cp_a2a")),)}
    made |= {"dp_cp": (cp, dp), "tp_cp": (tp, cp), "tp_dp_cp": (tp, cp, dp), "etp_ep": (etp, ep)}
    inst = d("inst")
    for label, whole, outer in (("dp_cp", (cp, dp), dp), ("edp", (edp,), edp)):
        # instances cut the outer axis first, and the axes inside it only where there are more instances than it has ranks
        inner = Axis(maximum(1, outer.degree / inst), outer.stride)
        within = [Axis(a.degree * minimum(1, outer.degree / inst), a.stride) for a in whole[:-1]]
        made[f"intra_{label}"] = (*within, inner)
        made[f"inter_{label}"] = (Axis(inst, product(a.degree for a in (*within, inner)) * whole[0].stride),)
    return made


def _along(axes: list[tuple[str, Expr]]) -> dict[str, Axis]:
    stride, made = ONE, {}
    for name, degree in axes:
        made[name] = Axis(degree, stride)
        stride = stride * degree
    return made


def inside_unit(axes: tuple[Axis, ...], tier: int, full: bool) -> Expr:
    """Members of a group inside one unit of a tier, of R ranks: as many as in every other that it lies on; full: of every axis those that are no
    further than R apart."""
    ranks = symbol(f"R_{tier}")
    if full:
        return product(minimum(a.degree, maximum(1, ranks / a.stride)) for a in axes if a.degree != ONE)
    # 1 before what is rounded, too: without rounding it is then as full units have it, which is what closed forms of questions solve
    return product(maximum(1, a.degree / ceil(maximum(1, a.degree * a.stride / ranks))) for a in _joined(axes))


def _joined(axes: tuple[Axis, ...]) -> list[Axis]:
    """The axes with more than one rank, where one that goes on where another ends is of the same."""
    made: list[Axis] = []
    for axis in (a for a in axes if a.degree != ONE):
        if made and made[-1].stride * made[-1].degree == axis.stride:
            made[-1] = Axis(made[-1].degree * axis.degree, made[-1].stride)
        else:
            made.append(axis)
    return made


# the ranks over which zero=3 gathers parameters and scatters gradients
# of a link that one ring over all ranks reaches, of what many do (assumption fsdp_rings)
ONE_RING = Fraction(3, 4)
_SHARDED = ("dp", "dp_cp", "edp", "intra_dp_cp", "intra_edp")


class Network:
    """Defines, once per group and collective, what a message's time is made of; `seconds` gives the time itself."""

    def __init__(
        self,
        book: Derivation,
        system: System,
        strategy: Strategy,
        mesh: Mesh,
        *,
        once_per_unit: bool = False,
        node_limit: int | None = None,
        copies: Mapping[str, int] | None = None,
        collective: Rule | None = None,
        moe: Moe | None = None,
        one_ring: bool = False,
        in_turn: bool = False,
        full_units: bool = False,
    ):
        """once_per_unit: tokens of an expert exchange enter every unit of the tier below once, however many of their
        experts are there (assumption moe_exchange), and at most `node_limit` units (moe_router_group_topk). collective: seconds of a
        message by another rule. moe: whose tokens kernels of a dispatcher exchange (moe_token_dispatcher_type=flex).
        one_ring: what zero=3 gathers and scatters (assumption fsdp_rings). in_turn: a token's experts stand in a row (assumption expert_load).
        full_units: units are filled to the last rank (assumption unit_ranks)."""
        self.one_ring, self.in_turn, self.full_units = one_ring, in_turn, full_units
        self.moe, self.strategy = moe, strategy
        self.node_limit, self.collective = node_limit, collective
        self.book, self.system, self.once_per_unit = book, system, once_per_unit
        self.groups = reading(strategy, "group", groups(strategy, mesh, copies))
        self.tiers = range(1, len(system.network) + 1)
        self._calls: dict[Message, Quantity] = {}
        self._found: dict[tuple[str, int], Expr] = {}

    @property
    def stands_on(self) -> tuple[Any, ...]:
        return self.one_ring, self.moe, self.node_limit, self.once_per_unit, self.in_turn, self.full_units

    def forget(self) -> None:
        """What it found; a pass that is traced finds all that it needs itself."""
        self._calls, self._found = {}, {}

    def seconds(self, message: Message) -> Quantity:
        """One call of the message."""
        if message not in self._calls:
            self._calls[message] = self._seconds(message if self.collective is not None else message.one_call)
        return self._calls[message]

    @once
    def _seconds(self, message: Message) -> Quantity:
        if self.collective is not None:
            return Quantity(self.collective(message), SECOND)
        ways = {"direct": self._to_the_next, "exchange": self._to_every_other, "ring": self._around}
        return ways[message.row.carried](message)

    def _to_the_next(self, message: Message) -> Quantity:
        return Quantity(message.larger_bytes, BYTE) * self._direct(message) + self._hop(message.axis)

    def _to_every_other(self, message: Message) -> Quantity:
        if self.moe is not None and message.axis == "ep":
            return self._by_kernels(message, self.moe)
        return Quantity(message.larger_bytes, BYTE) * self._exchanged(message) + self._depth(message)

    def _around(self, message: Message) -> Quantity:
        row = message.row
        if not row.tree:
            return Quantity(row.passes * self._once_round(message).expr, SECOND)
        ring, tree = self.one_pass(message)
        return Quantity(row.passes * minimum(ring.expr, tree.expr), SECOND)

    def one_pass(self, message: Message) -> tuple[Quantity, Quantity]:
        """One pass of a message, of an all-reduce half of it, as a ring, and as a tree."""
        ring = self._once_round(message)
        return ring, Quantity(message.payload_bytes, BYTE) * self._ring(message) + self._depth(message)

    def _once_round(self, message: Message) -> Quantity:
        n = message.group
        return Quantity(message.payload_bytes, BYTE) * ((n - 1) / n) * self._ring(message) + self._latency(message)

    def _members(self, axis: str, tier: int) -> Expr:
        if (axis, tier) not in self._found:
            self._found[axis, tier] = self._inside(axis, tier)
        return self._found[axis, tier]

    def _inside(self, axis: str, tier: int) -> Expr:
        if tier == 0:
            return ONE
        total = product(a.degree for a in self.groups[axis])
        if tier == len(self.system.network) or total == ONE:
            return total
        inside = inside_unit(self.groups[axis], tier, self.full_units)
        meaning = f"members of a {axis} group inside one unit of tier {tier} ({self.system.network[tier - 1].name})"
        return self._once(Key("mu", "network", axis=axis, tier=tier), Quantity(inside), meaning, rf"\mu^{{{_text(axis)}}}_{{{tier}}}").expr

    def _spans(self, axis: str, tier: int) -> Expr:
        """1 where the group reaches beyond a unit of the tier below, else 0."""
        ratio = self._members(axis, tier) / self._members(axis, tier - 1)
        return ceil(minimum(1, ratio - 1))

    def _bandwidth(self, message: Message, tier: int) -> Expr:
        """Of one rank over a tier. Where its N units are linked pair by pair, n of them use n - 1 of a rank's N - 1 links, a pair one."""
        if not self.system.network[tier - 1].fully_connected:
            return symbol(f"B_{tier}")
        links = symbol(f"R_{tier}") / (symbol(f"R_{tier - 1}") if tier > 1 else ONE) - 1
        between = self._members(message.axis, tier) / self._members(message.axis, tier - 1)
        return symbol(f"B_{tier}") * (ONE if message.row.carried == "direct" else maximum(1, between - 1)) / links

    def _rate(self, message: Message, tier: int) -> Quantity:
        """Seconds a byte of one rank over a tier, at the share of its bandwidth that the collective reaches."""
        return Quantity(1 / (self._bandwidth(message, tier) * symbol(f"eta_{tier}_{message.op}")), PER_BYTE)

    def _worst(self, message: Message, parts: list[Expr]) -> Quantity:
        key = Key("beta", "network", axis=message.axis, operation=message.op)
        worst = maximum(*parts) if len(parts) > 1 else parts[0]
        latex = rf"\beta^{{{_text(message.axis)}}}_{{{_text(message.op)}}}"
        return self._once(key, Quantity(worst, PER_BYTE), f"seconds a byte of {message.op} over {message.axis}", latex, ("network",))

    def _ring(self, message: Message) -> Quantity:
        parts = []
        for j in self.tiers:
            bandwidth = self._bandwidth(message, j)
            alone = self.one_ring and message.row.passes == 1 and message.axis in _SHARDED
            bandwidth = bandwidth * ONE_RING if alone else self._members(message.axis, j - 1) * bandwidth
            if self.system.network[j - 1].ring is not None:
                bandwidth = minimum(bandwidth, symbol(f"C_{j}"))
            parts.append(self._spans(message.axis, j) / (bandwidth * symbol(f"eta_{j}_{message.op}")))
        return self._worst(message, parts)

    def _direct(self, message: Message) -> Quantity:
        parts = [self._spans(message.axis, j) * self._rate(message, j).expr for j in self.tiers]
        return self._worst(message, parts)

    def _exchanged(self, message: Message) -> Quantity:
        # the group's size follows from its axis, as its name does: one definition for all messages over it
        n, parts = product(a.degree for a in self.groups[message.axis]), []
        for j in self.tiers:
            share = (self._members(message.axis, j) - self._members(message.axis, j - 1)) / n
            if self.once_per_unit and message.axis == "ep" and j > 1:
                units = n / self._members(message.axis, j - 1)
                most = reached_in_turn(units) if self.in_turn else units
                most = most if self.node_limit is None else minimum(most, self.node_limit)
                share = share * minimum(1, most / symbol("K"))
            parts.append(share * self._rate(message, j).expr)
        return self._worst(message, parts)

    def _by_kernels(self, message: Message, moe: Moe) -> Quantity:
        """Tokens sent, or brought back, by kernels of a dispatcher: as many as arrive anywhere, once a rank."""
        arrived = Quantity(message.larger_bytes, BYTE)
        backend, axis, parts = self.strategy.moe_flex_dispatcher_backend, message.axis, []
        everywhere = product(a.degree for a in self.groups[axis])
        to_ranks = self._reached(moe, everywhere)
        for j in self.tiers:
            inside, below = self._members(axis, j), self._members(axis, j - 1)
            often = self._reached(moe, everywhere / below) if j > 1 else to_ranks
            if j > 1 and self.node_limit is not None:
                often = minimum(often, self.node_limit)
            share = self._table("exchange", "eta", backend, axis, j)
            bandwidth = symbol(f"B_{j}") * (symbol(f"eta_{j}_all_to_all") if share is None else share)
            if j == 1 and backend in self.system.accelerator.exchange:
                bandwidth = minimum(bandwidth, self.multiprocessors(axis) * symbol(f"B_sm_{backend}"))
            parts.append(often / to_ranks * (inside - below) / inside / bandwidth)
        calls = [self._table("calls", "lambda", backend, axis, j) for j in self.tiers]
        latency = maximum(*(self._spans(axis, j) * call for j, call in zip(self.tiers, calls) if call is not None), 0)
        key, meaning = Key("beta", "network", axis=axis, operation=backend), f"seconds a byte of what arrives of an exchange by {backend} over {axis}"
        worst = self._once(key, Quantity(maximum(*parts, 0), PER_BYTE), meaning, rf"\beta^{{{_text(axis)}}}_{{{_text(backend)}}}")
        return arrived * worst + Quantity(latency, SECOND)

    def _reached(self, moe: Moe, units: Expr) -> Expr:
        return reached_in_turn(units) if self.in_turn else reached(moe, units)

    def multiprocessors(self, axis: str) -> Expr:
        """Those that a dispatcher's exchange takes from the kernels beside it."""
        return multiprocessors(self.strategy, maximum(*(self._spans(axis, j) for j in self.tiers if j > 1), 0))

    def taken(self, axis: str) -> Expr:
        """The share of the multiprocessors that a dispatcher's exchange takes."""
        return minimum(1, self.multiprocessors(axis) / symbol("n_sm"))

    def processors(self, axis: str) -> Expr:
        """The share of the multiprocessors that a message over an axis takes from what runs beside it, where the tiers that it reaches give one."""
        known = [j for j in self.tiers if self.system.network[j - 1].processors is not None]
        return maximum(*(self._spans(axis, j) * symbol(f"chi_{j}") for j in known), 0) if known else ZERO

    def _latency(self, message: Message) -> Quantity:
        axis, own = message.axis, self._of_its_own(message.op)
        call = self._call(message, own)
        hops = sum(((self._members(axis, j) / self._members(axis, j - 1) - 1) * symbol(f"alpha_{j}") for j in self.tiers), call)
        key = Key("alpha", "network", axis=axis, operation=message.op if own else "")
        meaning = f"latency of a ring over {axis}, hop by hop"
        return self._once(key, Quantity(hops, SECOND), meaning, rf"\alpha^{{{_text(axis)}}}{_below(own, message)}")

    def _hop(self, axis: str) -> Quantity:
        hop = maximum(*(self._spans(axis, j) * symbol(f"alpha_{j}") for j in self.tiers), 0)
        meaning = f"latency of one message to the next rank along {axis}"
        return self._once(Key("hop", "network", axis=axis), Quantity(hop, SECOND), meaning, rf"\alpha^{{{_text(axis)}}}_1")

    def _of_its_own(self, op: str) -> bool:
        """Whether a tier gives the latency of a call by ranks for this collective."""
        return any({op, "default"} & tier.calls.keys() for tier in self.system.network)

    def _call(self, message: Message, own: bool) -> Expr:
        """Of the outermost tier it reaches; an all-reduce pays for its two passes one call by the table, which is of the whole."""
        often = Fraction(1, message.row.passes)
        calls = []
        for j in self.tiers:
            by_ranks = self._by_ranks(message, j) if own else None
            calls.append(self._spans(message.axis, j) * (symbol(f"lambda_{j}") if by_ranks is None else by_ranks * often))
        return maximum(*calls, 0)

    def _by_ranks(self, message: Message, tier: int) -> Expr | None:
        """The entry of the largest number that the group is not below; of a smaller group the first."""
        return self._table("calls", "lambda", message.op if message.op in self.system.network[tier - 1].calls else "default", message.axis, tier)

    def _table(self, part: Literal["calls", "exchange"], letter: str, of: str, axis: str, tier: int) -> Expr | None:
        """The entry of a tier's table by ranks for a group over an axis."""
        table = getattr(self.system.network[tier - 1], part)
        if of not in table:
            return None
        sizes = sorted(table[of])
        found = symbol(f"{letter}_{tier}_{of}_{sizes[0]}")
        members = self._members(axis, len(self.system.network))
        for smaller, size in pairwise(sizes):
            step = symbol(f"{letter}_{tier}_{of}_{size}") - symbol(f"{letter}_{tier}_{of}_{smaller}")
            found = found + step * minimum(1, maximum(0, members - size + 1))
        return found

    def _depth(self, message: Message) -> Quantity:
        axis, own = message.axis, self._of_its_own(message.op)
        call = self._call(message, own)
        depth = sum((log2(self._members(axis, j) / self._members(axis, j - 1)) * symbol(f"alpha_{j}") for j in self.tiers), call)
        key = Key("delta", "network", axis=axis, operation=message.op if own else "")
        meaning = f"latency of a tree over {axis}, level by level"
        return self._once(key, Quantity(depth, SECOND), meaning, rf"\delta^{{{_text(axis)}}}{_below(own, message)}")

    def _once(self, key: Key, quantity: Quantity, meaning: str, latex: str, assumptions: tuple[str, ...] = ()) -> Quantity:
        if not quantity.expr:
            return quantity
        return self.book.define(key, quantity, meaning, latex=latex, source="symsim/cost/collectives.py", unit=quantity.unit)


def _below(own: bool, message: Message) -> str:
    return rf"_{{{_text(message.op)}}}" if own else ""


def _text(name: str) -> str:
    return r"\mathrm{" + name.replace("_", r"\_") + "}"
