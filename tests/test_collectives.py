"""Members of groups on a network's tiers, against numbering every rank; times of collectives, against sums by hand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import symsim
from symsim.algebra.expr import expr
from symsim.algebra.formula import Derivation
from symsim.cost.collectives import Network, groups
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, Tier
from symsim.ir.messages import Message
from symsim.placement.mesh import mesh_of
from symsim.placement.sizes import values

LABELS = ("tp", "cp", "dp", "pp", "ep", "edp", "dp_cp", "tp_cp", "tp_dp_cp")
STRATEGIES = [
    Strategy(tp=4, cp=2, pp=4, dp=4),
    Strategy(tp=2, cp=2, pp=2, dp=8, rank_order="tp-cp-ep-pp-dp"),
    Strategy(tp=1, pp=8, dp=8, ep=4, rank_order="dp-tp-cp-ep-pp"),
    Strategy(tp=8, sp=True, pp=2, dp=16, ep=16, etp=2),
]


def system(*tiers: tuple[int | str, float, float]) -> System:
    """Tiers as (ranks, GB/s, us); the accelerator plays no part here."""
    network = [
        Tier(name=f"tier{n}", ranks=ranks, bandwidth=[f"{rate} GB/s", "estimated", "test"], latency=[f"{us} us", "estimated", "test"])
        for n, (ranks, rate, us) in enumerate(tiers)
    ]
    return System.model_construct(network=tuple(network))


def ranks_of(strategy: Strategy, label: str) -> list[list[int]]:
    """Every group behind a label, by numbering all ranks along rank_order."""
    degrees = {"tp": strategy.tp, "cp": strategy.cp, "dp": strategy.dp, "pp": strategy.pp, "ep": 1}
    if label in ("ep", "edp", "etp"):
        degrees = {"tp": strategy.expert_tp, "ep": strategy.ep, "dp": strategy.expert_dp, "pp": strategy.pp, "cp": 1}
    order = strategy.rank_order.split("-")
    varying = {"edp": ["dp"], "etp": ["tp"]}.get(label, label.split("_"))
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(strategy.world_size):
        left, at = rank, {}
        for axis in order:
            left, at[axis] = divmod(left, degrees[axis])
        found.setdefault(tuple(v for a, v in sorted(at.items()) if a not in varying), []).append(rank)
    return list(found.values())


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"tp{s.tp}cp{s.cp}pp{s.pp}dp{s.dp}ep{s.ep}-{s.rank_order}")
@pytest.mark.parametrize("label", LABELS)
def test_members_inside_a_unit(strategy: Strategy, label: str) -> None:
    machine, book, mesh = system((4, 100, 1), (16, 50, 2), ("all", 10, 5)), Derivation(), mesh_of(strategy)
    network = Network(book, machine, strategy, mesh)
    at = values(load_model("mixtral-8x7b").architecture, strategy) | {"R_1": 4, "R_2": 16}
    for tier, unit in ((1, 4), (2, 16)):
        network._members(label, tier)
        name = f"mu_{label}_{tier}"
        computed = book.definitions[name].expr.evaluate(at) if name in book.definitions else 1
        most = max(max(Counter(rank // unit for rank in group).values()) for group in ranks_of(strategy, label))
        assert computed == most, name


def _span(group: list[int]) -> tuple[int, int]:
    """The stride of a group of ranks in a row, and the ranks that it and those beside it hold together."""
    stride = group[1] - group[0]
    assert all(b - a == stride for a, b in pairwise(group))
    return stride, stride * len(group)


@pytest.mark.parametrize("unit", [3, 5, 6, 7, 12, 18, 36, 72])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"tp{s.tp}cp{s.cp}pp{s.pp}dp{s.dp}ep{s.ep}-{s.rank_order}")
def test_members_where_units_hold_no_whole_groups(strategy: Strategy, unit: int) -> None:
    """Of ranks numbered in a row from the first of a unit on, the group that lies on the most units lies on n / mu; and so many units hold all groups
    of the row evenly, n / mu members of each on average."""
    machine, mesh, seen = system((unit, 100, 1), ("all", 10, 5)), mesh_of(strategy), 0
    at = values(load_model("mixtral-8x7b").architecture, strategy) | {"R_1": unit}
    for label in LABELS:
        every = ranks_of(strategy, label)
        steps = {b - a for a, b in pairwise(every[0])}
        if len(steps) != 1:
            continue
        stride, span = _span(every[0])
        if stride > unit:
            continue
        seen += 1
        book = Derivation()
        members = (
            Network(book, machine, strategy, mesh)._members(label, 1).evaluate(at | {n: d.expr.evaluate(at) for n, d in book.definitions.items()})
        )
        row = [group for group in every if max(group) < span]
        units = max(len({rank // unit for rank in group}) for group in row)
        assert units * members == pytest.approx(len(every[0]), rel=1e-12), label
        # evenly: no unit of them is overfull, and none is left without
        each = -(-span // units)
        filled = Counter(rank // each for rank in range(span))
        assert max(filled.values()) <= unit and len(filled) == units
        assert min(len({rank // unit for rank in range(at_, at_ + span)}) for at_ in range(unit)) == units
    assert seen >= 3


def test_consecutive_ranks_cut_groups_that_a_segment_keeps_whole() -> None:
    """Nine groups of 64 on eight racks of 72, filled to the last rank: seven lie on two, with as few as eight members on one; on nine racks of which
    64 ranks are used, none does."""
    groups = [range(64 * k, 64 * k + 64) for k in range(9)]
    cut = [Counter(rank // 72 for rank in group) for group in groups]
    assert sum(len(of) > 1 for of in cut) == 7 and min(min(of.values()) for of in cut) == 8
    assert sum(min(of.values()) for of in cut if len(of) > 1) == 8 + 16 + 24 + 32 + 24 + 16 + 8
    machine = system((72, 400, 1), ("all", 50, 5))
    inside = 63 / 64 / 400 + 63e-6
    for full in (False, True):
        assert seconds(Strategy(dp=576, ep=64), machine, "all_gather", "ep", 64, GB // 64, GB, full_units=full) == pytest.approx(inside, rel=1e-12)


@pytest.mark.parametrize(("full", "members"), [(False, 4), (True, 6)])
def test_a_ring_over_units_that_do_not_hold_it(full: bool, members: int) -> None:
    """tp=8 on units of six: four on each of two, whose links a ring leaves by together; or, as if units were filled, six."""
    machine = system((6, 100, 2), ("all", 10, 5))
    expected = 7 / 8 / (10 * members) + (members - 1) * 2e-6 + (8 / members - 1) * 5e-6
    assert seconds(Strategy(tp=8, dp=3), machine, "all_gather", "tp", 8, GB // 8, GB, full_units=full) == pytest.approx(expected, rel=1e-12)


def test_a_step_says_how_units_are_filled() -> None:
    """Where groups do not fill them; of whole division it moves nothing."""
    steps = {}
    for ranks in (6, 8):
        for choice in ("even", "full"):
            made = symsim.derive("llama3-8b", "tp=8,sp=true,dp=6", system="h100-sxm", overrides={"R_1": ranks, "assume.unit_ranks": choice})
            steps[ranks, choice] = made.value("time.step")
    assert steps[8, "even"] == steps[8, "full"] < steps[6, "full"] < steps[6, "even"]


def seconds(strategy: Strategy, machine: System, op: str, axis: str, group: int, send: int, receive: int, **network: Any) -> float:
    book, mesh = Derivation(), mesh_of(strategy)
    message = Message("forward", op, axis, expr(group) if group > 1 else expr(1), expr(send), expr(receive), "fp8", "test")
    found = Network(book, machine, strategy, mesh, **network).seconds(message)
    at = {"K": 8, "tp": strategy.tp, "dp": strategy.dp, "pp": strategy.pp, "ep": strategy.ep, "edp": strategy.expert_dp, "etp": strategy.expert_tp}
    at |= {n: v for n, v in _machine_values(machine, strategy).items()}
    for definition in book.definitions.values():
        at[definition.symbol] = definition.expr.evaluate(at)
    return float(found.expr.evaluate(at))


def _machine_values(machine: System, strategy: Strategy) -> dict:
    found = {"world": strategy.world_size}
    for j, tier in enumerate(machine.network, 1):
        found[f"R_{j}"] = strategy.world_size if tier.ranks == "all" else tier.ranks
        found |= {f"B_{j}": tier.bandwidth.value, f"alpha_{j}": tier.latency.value, f"lambda_{j}": 0}
        found |= {f"eta_{j}_{op}": 1 for op in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p")}
    return found


NODES = system((8, 100, 2), ("all", 10, 5))
GB = 10**9


def test_ring_inside_a_node() -> None:
    """8 ranks: 7/8 of the buffer at 100 GB/s, 7 hops of 2 us."""
    assert seconds(Strategy(tp=8, dp=4), NODES, "all_gather", "tp", 8, GB // 8, GB) == pytest.approx(7 / 8 / 100 + 7 * 2e-6, rel=1e-12)


def test_ring_between_nodes_has_the_share_of_one_rank() -> None:
    """dp=4 with tp=8: one member a node, so 10 GB/s; three hops of 5 us."""
    assert seconds(Strategy(tp=8, dp=4), NODES, "reduce_scatter", "dp", 4, GB, GB // 4) == pytest.approx(3 / 4 / 10 + 3 * 5e-6, rel=1e-12)


def test_ring_over_whole_nodes_uses_every_link() -> None:
    """dp=32: eight members a node bring 80 GB/s together; 7 hops inside, then 3 between nodes."""
    expected = 31 / 32 / 80 + 7 * 2e-6 + 3 * 5e-6
    assert seconds(Strategy(dp=32), NODES, "all_gather", "dp", 32, GB // 32, GB) == pytest.approx(expected, rel=1e-12)


def test_all_reduce_takes_the_tree_where_latency_rules() -> None:
    """8 bytes over 32 ranks: a tree is three levels inside a node and two between, there and back."""
    expected = 2 * (8 / (80 * GB) + 3 * 2e-6 + 2 * 5e-6)
    assert seconds(Strategy(dp=32), NODES, "all_reduce", "dp", 32, 8, 8) == pytest.approx(expected, rel=1e-12)


def test_all_to_all_crosses_nodes_at_one_ranks_share() -> None:
    """16 ranks on two nodes: half of the buffer leaves at 10 GB/s while 7/16 moves inside at 100 GB/s."""
    expected = max(8 / 16 / 10, 7 / 16 / 100) + 3 * 2e-6 + 1 * 5e-6
    assert seconds(Strategy(dp=16, ep=16), NODES, "all_to_all", "ep", 16, GB, GB) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("limit", "copies"), [(None, 2), (1, 1)])
def test_tokens_enter_a_node_once(limit: int | None, copies: int) -> None:
    """K = 8: of eight copies that leave, one goes to each of the two nodes, or to as many as the router may choose."""
    found = seconds(Strategy(dp=16, ep=16), NODES, "all_to_all", "ep", 16, GB, GB, once_per_unit=True, node_limit=limit)
    assert found == pytest.approx(max(8 / 16 / 10 * copies / 8, 7 / 16 / 100) + 3 * 2e-6 + 1 * 5e-6, rel=1e-12)


def test_send_to_the_next_stage() -> None:
    assert seconds(Strategy(tp=8, pp=2), NODES, "p2p", "pp", 2, GB, 0) == pytest.approx(1 / 10 + 5e-6, rel=1e-12)
    assert seconds(Strategy(tp=4, pp=2), NODES, "p2p", "pp", 2, GB, 0) == pytest.approx(1 / 100 + 2e-6, rel=1e-12)


def test_every_label_has_its_ranks() -> None:
    strategy = Strategy(tp=2, cp=2, dp=8, pp=2, num_distributed_optimizer_instances=2)
    at = {"tp": 2, "cp": 2, "dp": 8, "pp": 2, "inst": 2, "etp": 2, "edp": 16}
    sizes = {label: [a.degree.evaluate(at) for a in axes] for label, axes in groups(strategy, mesh_of(strategy)).items()}
    assert sizes["intra_dp_cp"] == [2, 4] and sizes["inter_dp_cp"] == [2]
    assert groups(strategy, mesh_of(strategy))["inter_dp_cp"][0].stride.evaluate(at) == 2 * 2 * 4
