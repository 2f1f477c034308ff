"""Sums over a block's layers as Calculon takes them, its step, and its memory.

Source: calculon/llm/llm.py Llm._compute_block_stats, _compute_batch_stats, _get_mem_cap_reqs, get_total_time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from symsim.algebra.expr import Number
from symsim.compat.calculon.layers import Layer, Phase, block
from symsim.compat.calculon.machine import Machine
from symsim.compat.calculon.settings import Settings
from symsim.compat.difference import Question

PHASES: tuple[Phase, ...] = ("fw", "agrad", "wgrad")
_ADAM = 11  # operations a gradient


@dataclass(frozen=True)
class Space:
    """Bytes of a block. stream: of the residual stream of a micro-batch, all of it; working: of activations while it runs; stored: of those
    that stay for backward; gradient: of activations' gradients."""

    layers: tuple[Layer, ...]
    asked: Settings
    shards: int
    stream: int

    @property
    def weights(self) -> int:
        return sum(layer.weight for layer in self.layers) * self.asked.width

    @property
    def working(self) -> Number:
        return sum((layer.kept for layer in self.layers if not layer.reused), Fraction(0))

    @property
    def stored(self) -> Number:
        if self.asked.recompute == "full":
            return 0
        found: Number = sum((layer.kept for layer in self.layers), Fraction(0))
        for layer in self.layers if self.asked.training else ():
            found -= (0 if layer.stored else layer.kept) + (0 if layer.output_stored else layer.output)
        return found

    @property
    def gradient(self) -> Number:
        return sum((layer.gradient for layer in self.layers), Fraction(0)) if self.asked.training else 0

    @property
    def optimizer(self) -> Number:
        return sum((self.states(layer) for layer in self.layers), Fraction(0)) if self.asked.training else 0

    def states(self, layer: Layer) -> Fraction:
        """Two moments, and a copy of the weight in fp32 where it has fewer bytes."""
        return Fraction(layer.weight * (12 if self.asked.width < 4 else 8), self.shards)


def space_of(question: Question, asked: Settings) -> Space:
    strategy = question.strategy
    stream = strategy.micro_batch_size * strategy.seq_length * question.model.hidden_size * asked.width
    return Space(block(question.model, strategy, asked), asked, strategy.dp if asked.sharded else 1, stream)


@dataclass(frozen=True)
class Passes:
    """Seconds of a block, forward and backward, before traffic to the second memory and boundary tensors; edge: of a chunk's last."""

    base: tuple[float, float]
    edge: tuple[float, float]


@dataclass(frozen=True)
class Totals:
    """A block on a machine, and the step of a rank. given: seconds of the block where they are others than the layers'."""

    question: Question
    space: Space
    machine: Machine
    given: Passes | None = None

    @property
    def asked(self) -> Settings:
        return self.space.asked

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.space.layers

    def compute(self, phase: Phase) -> float:
        """Seconds of the block's kernels."""
        return sum(self.machine.seconds(layer, phase) for layer in self.layers)

    def flop_seconds(self, phase: Phase) -> float:
        return sum(self.machine.flop_seconds(layer, phase) for layer in self.layers)

    def memory_seconds(self, phase: Phase) -> float:
        return sum(self.machine.memory_seconds(float(layer.moved[phase])) for layer in self.layers)

    @property
    def again(self) -> float:
        return sum(self.machine.seconds(layer, "fw") for layer in self.layers if layer.again)

    def summed_again(self, of: str) -> float:
        """What runs again as it is counted there: at each such layer all that the block has done so far."""
        done, found = 0.0, 0.0
        for layer in self.layers:
            done += self.machine.flop_seconds(layer, "fw") if of == "flops" else self.machine.memory_seconds(float(layer.moved["fw"]))
            found += done if layer.again else 0.0
        return found

    def exposed(self, phase: Phase, *, edge: bool = False) -> float:
        return sum(self.machine.exposed(layer, phase, edge=edge) for layer in self.layers if layer.sums)

    def exposed_again(self, *, edge: bool = False) -> float:
        return sum(self.machine.exposed_again(layer, edge=edge) for layer in self.layers)

    def on_link(self, phase: Phase, *, edge: bool = False) -> float:
        return sum(self.machine.on_link(layer, phase, edge=edge) for layer in self.layers if layer.sums and (phase != "wgrad" or layer.sent_again))

    # the optimizer

    @property
    def optimizer(self) -> float:
        """Seconds of the update of a block."""
        return sum(self._updated(layer)[0] for layer in self.layers)

    @property
    def optimizer_beside(self) -> float:
        """Of the update what is no access to memory."""
        return self.optimizer - sum(self._updated(layer)[2] for layer in self.layers)

    @property
    def optimizer_computed(self) -> float:
        return sum(self._updated(layer)[1] for layer in self.layers)

    def _updated(self, layer: Layer) -> tuple[float, float, float]:
        compute = self.machine.computed(layer.weight / self.space.shards * _ADAM)
        moved = self.machine.memory_seconds(float(self.space.states(layer)))
        return self.machine.together(compute, moved), compute, moved

    # the pipeline

    @property
    def blocks(self) -> int:
        """Of a rank: the most, where they do not divide."""
        return -(-self.question.model.num_layers // self.question.strategy.pp)

    @property
    def in_chunk(self) -> int:
        return self.blocks // self.asked.chunks

    def boundary(self, backward: bool) -> float:
        """Seconds of the tensor between two stages; a latency of its tier even where there is none."""
        strategy = self.question.strategy
        size = self.space.stream if self.asked.messages == "ar" else self.space.stream // strategy.tp
        there = strategy.pp > 1 and (self.asked.training or not backward)
        return self.machine.message(self.asked.nets[1], "p2p", size if there else 0, 2)

    @property
    def checkpoint(self) -> int:
        """Bytes that a block keeps under full recomputation: the whole residual stream, on every tensor rank."""
        return self.space.stream if self.asked.training and self.asked.recompute == "full" else 0

    @cached_property
    def offloaded(self) -> tuple[float, float]:
        """Seconds of a block's traffic to the second memory, forward and backward."""
        weights, activations, optimizer = self.asked.offloaded
        kept = self.checkpoint if self.asked.recompute == "full" else float(self.space.stored)
        sizes = [self.space.weights if weights else 0, kept if activations else 0, float(self.space.optimizer) if optimizer else 0]
        forward, backward = max(sizes[:2]), sum(sizes)
        return self.machine.memory_seconds(forward, "mem2"), self.machine.memory_seconds(backward, "mem2") if self.asked.training else 0.0

    @cached_property
    def bare(self) -> Passes:
        return self.given or Passes(self._bare(False), self._bare(True))

    def _bare(self, edge: bool) -> tuple[float, float]:
        forward, backward = self.compute("fw") + self.exposed("fw", edge=edge), 0.0
        if self.asked.training:
            backward = self.again + self.exposed_again(edge=edge) + self.compute("agrad") + self.compute("wgrad") + self.exposed("agrad", edge=edge)
        return forward, backward

    def passes(self, *, edge: bool) -> tuple[float, float]:
        """Seconds of a block, forward and backward, with what of the traffic to the second memory they are too short for; edge: of a chunk's
        last, which sends to the next stage."""
        forward, backward = self.bare.edge if edge else self.bare.base
        sent = (self.boundary(False), self.boundary(True)) if edge else (0.0, 0.0)
        forward, backward = forward + sent[0], backward + sent[1]
        return forward + self.waiting(forward, False), backward + self.waiting(backward, True)

    def waiting(self, seconds: float, backward: bool) -> float:
        """What traffic to the second memory adds to a block of so many seconds; it does not run beside accesses to the first."""
        if backward and not self.asked.training:
            return 0.0
        memory = sum(self.memory_seconds(phase) for phase in (PHASES[1:] if backward else PHASES[:1]))
        return max(0.0, self.offloaded[backward] + memory - seconds)

    @cached_property
    def chunk(self) -> tuple[float, float]:
        """Seconds of a chunk, forward and backward: its blocks, the last of which sends to the next stage."""
        base, edge = self.passes(edge=False), self.passes(edge=True)
        return tuple((self.in_chunk - 1) * b + e for b, e in zip(base, edge))  # type: ignore[return-value]

    @property
    def bubble(self) -> float:
        """A chunk for each stage but one; more where micro-batches do not fill the stages, less for blocks that later stages lack."""
        strategy, chunk = self.question.strategy, sum(self.chunk)
        missing = self.blocks * strategy.pp - self.question.model.num_layers
        if self.in_chunk > 1:
            lacking = missing * (sum(self.passes(edge=False)) + sum(self.passes(edge=True))) / 2
        else:
            lacking = missing * sum(self.passes(edge=True))
        short = -strategy.microbatches % strategy.pp * (self.asked.chunks - 1)
        return (strategy.pp - 1 + short) * chunk - lacking

    @property
    def pipeline(self) -> float:
        """All micro-batches of a rank and its bubble. A rank that sends nothing waits as if it sent, in its bubble alone."""
        alone, training = self.question.strategy.pp == 1, self.asked.training
        unsent = (self.boundary(False) if alone else 0.0) + (self.boundary(True) if alone or not training else 0.0)
        return self.question.strategy.microbatches * self.asked.chunks * (sum(self.chunk) - unsent) + self.bubble
