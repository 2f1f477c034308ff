"""What stands in place of symsim's rules: Calculon's counts of a block, hung on the operations here that its layers are parts of.

Source: calculon/llm/layers.py and calculon/llm/llm.py, through `layers.py`, `machine.py` and `totals.py` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from symsim.algebra.expr import ZERO, Expr, Number, expr
from symsim.algebra.key import layers as layers_of
from symsim.algebra.key import of_block, of_stage
from symsim.compat.calculon import data_parallel
from symsim.compat.calculon.layers import ATTENTION_NORM, DOWN, NETWORK_NORM, PROJECTION, QKV, UP, Layer, Phase, linear
from symsim.compat.calculon.settings import Settings
from symsim.compat.calculon.totals import Passes, Space, Totals
from symsim.compat.difference import Question
from symsim.cost.hbm import product_shape
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.kernels import Profile
from symsim.ir.block import WIDTHS
from symsim.ir.messages import Message
from symsim.lowering.communicate import Placed
from symsim.lowering.lowered import Lowered
from symsim.placement.sizes import values

_PHASES: Mapping[str, tuple[Phase, ...]] = {"forward": ("fw",), "dgrad": ("agrad",), "wgrad": ("wgrad",), "backward": ("agrad", "wgrad")}
_MUCH = 2.0**40
# the operation that a message's name holds, and the layers that are it or that it is sent beside
_GATHERED_ATTENTION = ("AttnBlock_F", "AttnBlock_QKV_AG", "AttnBlock_Query_AG")
_GATHERED_NETWORK = ("MlpBlock_F", "MlpBlock_Mlp1_AG")
_SENT = {
    QKV: _GATHERED_ATTENTION,
    ATTENTION_NORM: _GATHERED_ATTENTION,
    PROJECTION: ("AttnBlock_G", "AttnBlock_MLP_RS"),
    UP: _GATHERED_NETWORK,
    NETWORK_NORM: _GATHERED_NETWORK,
    DOWN: ("MlpBlock_G", "MlpBlock_Mlp2_RS"),
}


@dataclass(frozen=True)
class Rules:
    """The rules of one job that need no machine."""

    question: Question
    space: Space

    @property
    def asked(self) -> Settings:
        return self.space.asked

    @cached_property
    def sizes(self) -> dict[str, Number]:
        return dict(values(self.question.model, self.question.strategy))

    @property
    def blocks(self) -> Expr:
        """Of stage i."""
        (kind,) = self.question.model.kind_names()
        return layers_of(kind).expr

    def parts(self, placed: Placed, index: int) -> tuple[Layer, ...]:
        """The layers that an operation stands for; a product outside a block is one."""
        op = placed.block.ops[index]
        own = tuple(layer for layer in self.space.layers if layer.of == op.name)
        if own or op.kind != "einsum":
            return own
        shape = product_shape(placed, index, "forward", self.question.strategy)
        rows, outward, inward = (int(side.evaluate(self.sizes)) for side in (shape.m, shape.n, shape.k))
        return (linear(op.name, op.name, rows, inward, outward, self.asked.width),)

    def phases(self, phase: str) -> tuple[Phase, ...]:
        return _PHASES[phase] if phase == "forward" or self.asked.training else ()

    def counted(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        return expr(sum((layer.flops[p] for layer in self.parts(placed, index) for p in self.phases(phase)), 0))

    def moved(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        return expr(sum((layer.moved[p] for layer in self.parts(placed, index) for p in self.phases(phase)), 0))

    def flops_again(self, block: str, whole: bool) -> Expr:
        """What runs again as it is counted there: at each such layer all that the block has done so far."""
        done: Number = 0
        found: Number = 0
        for layer in self.space.layers if self.runs_again(block, whole) else ():
            done += layer.flops["fw"]
            found += done if layer.again else 0
        return expr(found)

    def runs_again(self, block: str, whole: bool) -> bool:
        """Whether this is the form of a layer in which it is recomputed."""
        return self.asked.training and block in self.question.model.layer_kinds and whole == (self.asked.recompute == "full")

    def sent_again(self, block: str, message: Message) -> Sequence[Message]:
        """Gathers that are repeated, of those that Megatron-LM repeats; keys and values of one group are where they are needed."""
        if "regroup" in message.what:
            return []
        layer = self.layer_of(message)
        if message.purpose == "gathered again" and (layer is None or not layer.sent_again or self.asked.recompute == "full"):
            return []
        return [message]

    def layer_of(self, message: Message) -> Layer | None:
        """The layer that a message is of, or that it is sent beside."""
        names = next((at for name, at in _SENT.items() if name in message.what), ()) if message.axis == "tp" else ()
        return next((layer for layer in self.space.layers if layer.name in names), None)

    # bytes of a rank of stage i

    def weights(self, lowered: Lowered) -> Expr:
        return self.space.weights * self.blocks

    def gradients(self, lowered: Lowered) -> Expr:
        """One block's in fp32, those of the others in the type of weights, sharded with the optimizer."""
        kept = expr(self.space.weights) / self.space.shards * (self.blocks - 1)
        return 4 * (self.space.weights // self.asked.width) + kept if self.asked.training else ZERO

    def optimizer(self, lowered: Lowered) -> Expr:
        return expr(self.space.optimizer) * self.blocks

    def peak(self, lowered: Lowered) -> Expr:
        """All of them and a block's activations at once; of what is offloaded two blocks stay."""
        space, asked = self.space, self.asked
        weights, activations, optimizer = asked.offloaded
        found = expr(space.working) + (2 * expr(space.weights) if weights else of_stage("M", "weights").expr)
        if not asked.training:
            return found
        alive = self.in_flight * self.blocks
        if asked.recompute == "full":
            found = found + space.stream * (expr(2) if activations else alive)
        else:
            found = found + expr(space.stored) * (expr(1) if activations else alive - 1)
        found = found + expr(space.gradient)
        if optimizer:
            return found + 4 * (space.weights // asked.width) + expr(space.weights) / space.shards + 2 * expr(space.optimizer)
        return found + of_stage("M", "gradients").expr + of_stage("M", "optimizer").expr

    @property
    def in_flight(self) -> Expr:
        """Micro-batches of whole stages that wait for their backward."""
        strategy, v = self.question.strategy, self.asked.chunks
        alive = expr(min(strategy.microbatches, strategy.pp))
        return alive * (1 + expr(strategy.pp - 1) / (v * strategy.pp)) if v > 1 else alive


@dataclass(frozen=True)
class Timed:
    """The rules of time, on one machine."""

    rules: Rules
    totals: Totals

    def seconds(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        """Of a kernel: its layers one after the other."""
        own = self.rules.parts(placed, index)
        return expr(sum(self.totals.machine.seconds(layer, p) for layer in own for p in self.rules.phases(phase)))

    def nothing(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        return ZERO

    def seconds_again(self, block: str, whole: bool) -> Expr:
        return expr(self.totals.again) if self.rules.runs_again(block, whole) else ZERO

    def collective(self, message: Message) -> Expr:
        """A message of a block with what its rank computes for it, or what its product leaves of it; any other by its tier alone."""
        machine, layer = self.totals.machine, self.rules.layer_of(message)
        if layer is not None and message.purpose:
            return expr(machine.exposed_again(layer))
        if layer is not None:
            return expr(machine.exposed(layer, "fw" if message.phase == "forward" else "agrad"))
        width = WIDTHS["fp32"] if message.dtype == "fp32" else self.rules.asked.width
        net = self.rules.asked.nets[{"tp": 0, "pp": 1}.get(message.axis, 2)]
        direct = message.row.carried == "direct"
        op, ranks = ("p2p", 2) if direct else (message.op, int(message.group.evaluate(self.rules.sizes)))
        fixed = machine.message(net, op, 0, ranks)
        return message.payload * width * ((machine.message(net, op, _MUCH, ranks) - fixed) / _MUCH) + fixed

    def update(self, lowered: Lowered) -> tuple[Expr, Expr]:
        """What nothing hides of the messages over data ranks, those of gradients and of weights together."""
        return expr(data_parallel.exposed(self.totals)), ZERO

    def passes(self, lowered: Lowered) -> Expr:
        return expr(self.totals.optimizer) * self.rules.blocks if self.rules.asked.training else ZERO

    def pipeline(self, at: Evaluation) -> float:
        """All micro-batches and the bubble, from the seconds of a layer; a chunk's last block differs by its messages alone."""
        (kind,) = at.model.kind_names()
        again = bool(at.lowered.checkpointed)

        def seconds(phase: str) -> float:
            return float(at.numbers[of_block("t", kind, again and phase == "again", phase=phase).text])

        def exposed(phase: str) -> float:
            own = (d for d in at.derivation.of("e", scope="block", block=kind, again=again) if d.key.phase == phase)
            return sum(float(at.numbers[d.symbol]) for d in own)

        forward = seconds("forward") + exposed("forward")
        backward = sum(map(seconds, ("inputs", "weights", "again"))) + exposed("backward") if self.rules.asked.training else 0.0
        more = [edge - base for edge, base in zip(self.totals.bare.edge, self.totals.bare.base)]
        passes = Passes((forward, backward), (forward + more[0], backward + more[1]))
        return replace(self.totals, given=passes).pipeline
