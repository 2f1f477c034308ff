"""SimuMax's system file as it computes with it: seconds of a kernel, of a message, and which links a group runs over.

Source: config.py SystemConfig compute_op_accuracy_time, compute_mem_access_time, compute_net_op_time; perf_llm.py analysis_net.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.inputs.strategy import Strategy

GIB = 2**30
_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "all2all")


@dataclass(frozen=True)
class Machine:
    """data: the contents of a system file."""

    data: Mapping[str, Any]

    @property
    def node(self) -> int:
        return int(self.data.get("num_per_node") or 8)

    def kernel(self, op: str, flops: float, moved: float, key: str) -> float:
        """Seconds of one kernel: the longer of its products, at the share of its shape or else of its kind, and its bytes."""
        compute = self._compute(op, flops, key)
        memory = self.moving(op, moved)
        if self.data["accelerator"].get("mode") == "only_compute":
            return compute or memory
        return max(compute, memory)

    def _compute(self, op: str, flops: float, key: str) -> float:
        if not flops:
            return 0.0
        kinds = self.data["accelerator"]["op"]
        kind = kinds.get(op) or kinds["default"]
        share = (kind.get("accurate_efficient_factor") or {}).get(key, kind["efficient_factor"])
        return flops / (kind["tflops"] * 1e12 * share) if share else math.inf

    def moving(self, op: str, moved: float) -> float:
        """Seconds of bytes read and written, and a latency."""
        if not moved:
            return 0.0
        rates = self.data["accelerator"]["bandwidth"]
        rate = rates.get(op) or rates["default"]
        return float(moved / (rate["gbps"] * GIB * rate["efficient_factor"]) + (rate.get("latency_us") or 0) * 1e-6)

    def message(self, op: str, size: float, ranks: int, net: str, stage: str, strategy: Strategy) -> float:
        """Seconds of one collective over `ranks` of a payload of `size` bytes."""
        tier = self.data["networks"][net]
        kind = tier["op"][op]
        share = kind.get("efficient_factor") or tier["bandwidth"]["efficient_factor"]
        moved = size * kind["scale"] * (1 + kind["offset"] / ranks)
        fixed = (kind.get("dp_fixed_bw") or {}).get(str(ranks))
        if "pcie" in net and stage == "dp_cp" and fixed:
            return float(moved / (fixed * GIB))
        if ranks == 1:
            return 0.0
        rate, moved = self._rate(tier["bandwidth"]["gbps"], moved, op, ranks, net, stage, strategy)
        return float(moved / (rate * GIB * share) + self._latency(tier, kind, op, ranks) * 1e-6)

    def _rate(self, rate: float, moved: float, op: str, ranks: int, net: str, stage: str, strategy: Strategy) -> tuple[float, float]:
        """GiB/s of a rank and the bytes that it moves: between nodes fewer links, and of an exchange what leaves the node."""
        if self.data.get("FC8") and net == "high_intra_node":
            rate *= (ranks - 1) / 7
        if net != "inter_node":
            return rate, moved
        if op == "p2p":
            return rate / self.node, moved
        if op == "all2all" and stage in ("ep", "cp"):
            nodes = max(1, math.ceil(ranks / self.node))
            return rate / self.node, moved * (nodes - 1) / nodes
        if op != "all2all" and stage == "dp_cp":
            return rate / min(self.node, strategy.tp), moved
        if op != "all2all" and stage == "edp":
            return rate / min(self.node, strategy.ep * strategy.expert_tp), moved
        return rate, moved

    def _latency(self, tier: Mapping[str, Any], kind: Mapping[str, Any], op: str, ranks: int) -> float:
        """Microseconds: hops in nodes of eight, else one; and a constant, by the number of ranks where there is a table."""
        whole = tier["bandwidth"]
        hop = kind["latency_us"] if kind.get("latency_us") is not None else whole.get("latency_us") or 0
        fixed = _by_ranks(kind.get("fixed_latency_us_by_comm_num"), ranks, kind.get("fixed_latency_us"))
        if fixed is None:
            fixed = _by_ranks(whole.get("fixed_latency_us_by_comm_num"), ranks, whole.get("fixed_latency"))
        hops = (ranks + kind["offset"]) * kind["scale"] if self.node == 8 and op in _RINGS else 1
        return float(hop * hops + (fixed or 0))

    def net(self, axis: str, strategy: Strategy) -> str:
        """The tier that a group runs over."""
        tp, etp = strategy.tp, strategy.expert_tp
        joined = {
            "tp": tp,
            "tp_dp_cp": tp * strategy.cp * strategy.dp,
            "tp_cp": tp * strategy.cp,
            "embd": strategy.world_size,
            "cp": tp * strategy.cp,
            "dp_cp": tp * strategy.cp * strategy.dp,
            "ep": strategy.ep * etp,
            "etp": etp,
            "edp": etp * strategy.ep * strategy.expert_dp,
        }
        if self.data["networks"].get("intra_with_pcie"):
            ranks = joined.get(axis, tp * strategy.dp * strategy.pp * strategy.cp)
            return next((f"intra_node_pcie_{n}x" for n in (2, 4, 8) if ranks <= n), "inter_node")
        if axis == "pp":
            return "high_intra_node" if strategy.world_size // strategy.pp < self.node else "inter_node"
        return "high_intra_node" if joined.get(axis, strategy.world_size) <= self.node else "inter_node"


def _by_ranks(table: Mapping[str, Any] | None, ranks: int, default: Any) -> Any:
    return (table or {}).get(str(ranks), default)
