"""Calculon's system file as it computes with it, and the seconds of a block's layers on it.

Source: calculon/processor.py, memory.py, network.py, system.py; calculon/llm/layers.py Layer.compute_processing_time, TPComm.compute_net_time,
LinearOverlapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symsim.algebra.expr import Number
from symsim.compat.calculon.layers import Layer, Phase
from symsim.compat.calculon.settings import Settings
from symsim.errors import InputError

_GIGA, _MEGA = 1e9, 1e6


@dataclass(frozen=True)
class Machine:
    """data: the contents of a system file; t: tensor ranks."""

    data: Mapping[str, Any]
    asked: Settings
    t: int

    def check(self) -> None:
        """InputError for a system that lacks the type or a tier of the execution."""
        for engine in ("matrix", "vector"):
            if self.asked.datatype not in self.data[engine]:
                raise InputError(f"--compat calculon: the execution is in {self.asked.datatype}, which {engine} of the system file does not have")
        tiers = len(self.data["networks"])
        if max(self.asked.nets) >= tiers:
            raise InputError(f"--compat calculon: the execution asks for tier {max(self.asked.nets)} of the system file, which has {tiers} from 0 up")

    def flop_seconds(self, layer: Layer, phase: Phase) -> float:
        """On the engine of matrices, or that of vectors: a share of its peak by the size of the operation, in steps."""
        return self.computed(float(layer.flops[phase]), matrix=layer.matrix)

    def computed(self, flops: float, *, matrix: bool = False) -> float:
        kind = self.data["matrix" if matrix else "vector"][self.asked.datatype]
        return flops / (kind["tflops"] * 1e12 * _step(kind["gflops_efficiency"], flops, _GIGA))

    def memory_seconds(self, moved: float, memory: str = "mem1") -> float:
        rate = self.data[memory]
        return moved / (rate["GBps"] * _GIGA * _step(rate["MB_efficiency"], moved, _MEGA))

    def together(self, compute: float, memory: float) -> float:
        return max(compute, memory) if self.data["processing_mode"] == "roofline" else compute + memory

    def message(self, net: int, op: str, size: float, ranks: int) -> float:
        """Seconds of a message over a tier: a latency whatever the ranks, and the bytes."""
        tier = self.data["networks"][net]
        scalar, offset = tier["ops"][op]
        scaled = size * scalar
        return float(tier["latency"] + (scaled + scaled / ranks * (offset or 0)) / (tier["bandwidth"] * _GIGA * tier["efficiency"]))

    def usage(self, net: int) -> float:
        """The share of a processor that moves a tier's messages while it computes."""
        return float(self.data["networks"][net]["processor_usage"])

    def seconds(self, layer: Layer, phase: Phase) -> float:
        """Of the layer's kernel; a message has none, and one in pieces lengthens its product."""
        return 0.0 if layer.is_message else self._timed(layer, phase)[0]

    def exposed(self, layer: Layer, phase: Phase, *, edge: bool = False) -> float:
        """Of the layer's message, what no product hides."""
        return self._timed(layer, phase)[1] if layer.beside else self.on_link(layer, phase, edge=edge)

    def exposed_again(self, layer: Layer, *, edge: bool = False) -> float:
        """Of the message that is repeated in backward. One in pieces is counted with what its forward exposed."""
        if not layer.sent_again:
            return 0.0
        return self.exposed(layer, "fw") if layer.beside else self.on_link(layer, "wgrad", edge=edge)

    def sent(self, layer: Layer, phase: Phase, *, edge: bool = False) -> Number:
        """Bytes of its message in a phase; wgrad: of the one that is repeated."""
        return layer.sent if self.t > 1 and self._op(layer, phase, edge) else 0

    def on_link(self, layer: Layer, phase: Phase, *, edge: bool = False) -> float:
        """Seconds of the message itself, with what its rank computes and moves for it."""
        op = self._op(layer, phase, edge) if layer.sums and self.t > 1 else ""
        own = self._of_message(layer, phase)
        return own + self.message(self.asked.nets[0], op, float(layer.sent), self.t) if op else own

    def _of_message(self, layer: Layer, phase: Phase) -> float:
        if not layer.sums or self.t == 1 or phase == "wgrad":
            return 0.0
        if layer.beside:
            adds = (layer.sums == "forward") == (phase == "fw") and self._op(layer, phase, False)
            return self.computed(float(layer.sent) / self.asked.width * (self.t - 1) / self.t) if adds else 0.0
        return self.together(self.flop_seconds(layer, phase), self.memory_seconds(float(layer.moved[phase])))

    def _op(self, layer: Layer, phase: Phase, edge: bool) -> str:
        """The collective; none where a rank has all that it needs. A chunk's last block scatters and gathers under p2p_rs_ag."""
        if phase == "wgrad" and not layer.sent_again:
            return ""
        shares = self.asked.messages == "rs_ag" or (self.asked.messages == "p2p_rs_ag" and edge)
        reduces = layer.sums == ("backward" if phase == "agrad" else "forward")
        if shares:
            return "reduce_scatter" if reduces else "all_gather"
        return "all_reduce" if reduces else ""

    def _timed(self, layer: Layer, phase: Phase) -> tuple[float, float]:
        """Seconds of a product with its message in t pieces beside it, and what of the message is exposed."""
        compute, memory = self.flop_seconds(layer, phase), self.memory_seconds(float(layer.moved[phase]))
        whole = self.together(compute, memory)
        sent = self.on_link(layer, phase) if layer.beside else 0.0
        if not sent:
            return whole, 0.0
        usage, t = self.usage(self.asked.nets[0]), self.t
        slowed = compute / (1 - usage)
        longer = sent / t - slowed / t
        if longer > 0:
            time, exposed = whole / t + (t - 1) * self.together(slowed, memory) / t, (t - 1) * longer
        else:
            time, exposed = whole + (t - 1) * sent / t * usage, 0.0
        # a message without a ring has a piece more, counted with the product and as exposed
        first = sent / t if self.asked.beside == "pipe" else 0.0
        return time + first, exposed + first


def _step(steps: Sequence[Sequence[float]], size: float, unit: float) -> float:
    return next(share for least, share in steps if size >= least * unit)
