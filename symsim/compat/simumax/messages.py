"""SimuMax's messages: their seconds, those that are others than symsim's, and what follows the pipeline.

Source: config.py compute_net_op_time; _comp_leaf_intra_net_info of the leaves in transformer/dense_module.py and moe_module.py;
perf_llm.py _compute_dp_time, _compute_optim_time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from symsim.algebra.expr import ZERO, Expr, ceil, expr
from symsim.algebra.key import of_stage
from symsim.compat.difference import Question
from symsim.compat.simumax.machine import GIB, Machine
from symsim.cost.reduce import BUCKET_SIZE, BUCKET_SIZE_PER_RANK
from symsim.ir.messages import Message
from symsim.lowering.lowered import Lowered
from symsim.placement.sizes import values

_OPS = {"all_to_all": "all2all", "broadcast": "p2p"}
_STRAGGLER = 0.09
_MUCH = 2.0**40


@dataclass(frozen=True)
class Messages:
    """The rules on one machine for one job."""

    machine: Machine
    question: Question

    def seconds(self, message: Message) -> Expr:
        """One call: bytes on the wire over the share of the rate that the collective reaches, and its latency."""
        strategy = self.question.strategy
        known = values(self.question.model, strategy)
        # what is kept in FP8 is gathered in the type of the computation
        size = message.payload_bytes * (2 if message.dtype == "fp8" else 1)
        ranks = 2 if message.op == "p2p" else int(message.group.evaluate(known))
        axis = "cp" if message.axis.startswith("cp") else message.axis
        op, net = _OPS.get(message.op, message.op), self.machine.net(axis, strategy)

        def of(payload: float) -> float:
            return self.machine.message(op, payload, ranks, net, axis, strategy)

        return size * ((of(_MUCH) - of(0)) / _MUCH) + of(0)

    def embedding(self, block: str, message: Message) -> Sequence[Message]:
        """What a rank keeps of the embedding's output is reduced whole, and gathered, as if it were all of it."""
        if block != "embedding" or message.axis != "tp" or message.op == "all_reduce":
            return [message]
        share = message.receive_elements if message.op == "reduce_scatter" else message.send_elements
        op = "all_reduce" if message.op == "reduce_scatter" else message.op
        return [replace(message, op=op, send_elements=share, receive_elements=share)]

    def loss(self, block: str, message: Message) -> Sequence[Message]:
        """The fused loss reduces a row, and two rows."""
        if "cross_entropy" not in message.what or message.op != "all_gather":
            return [message]
        row = message.send_elements / 3
        made = replace(message, op="all_reduce", send_elements=row, receive_elements=row)
        return [made, replace(made, send_elements=2 * row, receive_elements=2 * row)]

    def probabilities(self, block: str, message: Message) -> Sequence[Message]:
        """Probabilities travel as a row of all experts a token."""
        if "h" in message.send_elements.symbols() or "moe.experts" not in message.what:
            return [message]
        if message.axis != "ep":
            return []
        strategy, model = self.question.strategy, self.question.model
        tokens = strategy.micro_batch_size * strategy.seq_length // strategy.cp // (strategy.tp if strategy.sp else 1)
        row = expr(tokens * (model.moe.num_moe_experts if model.moe else 0))
        return [replace(message, send_elements=row, receive_elements=row, dtype="bf16")]

    def combined(self, block: str, message: Message) -> Sequence[Message]:
        """What experts over tensor ranks combine is counted once more for every one of these."""
        etp = self.question.strategy.expert_tp
        if "moe.experts.fc2" not in message.what and "moe.experts.combine" not in message.what:
            return [message]
        return [replace(message, send_elements=etp * message.send_elements, receive_elements=etp * message.receive_elements)]

    def not_again(self, block: str, message: Message) -> Sequence[Message]:
        """What context parallelism exchanges travels once, though attention runs again."""
        return [] if message.axis == "cp" and message.purpose == "recomputed" else [message]

    def without_maxima(self, block: str, message: Message) -> Sequence[Message]:
        """Scales of FP8 follow from a rank's own share of a tensor."""
        return [] if "maximum of the" in message.what else [message]

    def gathered_again(self, block: str, message: Message) -> Sequence[Message]:
        """The weight gradient gathers its input again although it was kept gathered."""
        if message.op != "reduce_scatter" or message.axis != "tp" or not message.what.startswith("gradient at") or message.purpose:
            return [message]
        again = replace(message, op="all_gather", send_elements=message.receive_elements, receive_elements=message.send_elements)
        return [message, again]

    def output_again(self, block: str, message: Message) -> Sequence[Message]:
        """Backward exchanges attention's output too, before TE 2.8."""
        twice = message.phase == "backward" and message.op == "all_to_all" and "gradient at attention.o_proj." in message.what
        return [message, message] if twice else [message]

    def update(self, lowered: Lowered) -> tuple[Expr, Expr]:
        """Whole buckets of gradients scattered and parameters gathered, of the others' parameters and of experts'."""
        strategy = lowered.profile.strategy
        families = (("dense", "dp_cp", strategy.dp * strategy.cp), ("expert", "edp", strategy.expert_dp))
        gradients, parameters = ZERO, ZERO
        for part, axis, ranks in families:
            held = of_stage("P", part).expr / (ranks if strategy.zero >= 2 else 1)
            bucket = 4 * max(BUCKET_SIZE, BUCKET_SIZE_PER_RANK * ranks)
            width = 4 if strategy.grad_reduce_in_fp32 else 2

            def each(op: str, bucket: int = bucket, ranks: int = ranks, axis: str = axis) -> float:
                return self.machine.message(op, bucket, ranks, self.machine.net(axis, strategy), axis, strategy)

            reduced = ceil(held * width / bucket)
            if strategy.zero == 0:
                gradients = gradients + reduced * each("all_reduce")
                continue
            gradients = gradients + reduced * each("reduce_scatter")
            times = 2 if lowered.profile.model.moe is not None else 1
            parameters = parameters + times * ceil(held * 2 / bucket) * each("all_gather")
        return gradients, parameters

    def passes(self, lowered: Lowered) -> Expr:
        """The optimizer's passes over all gradients and states of a rank, a latency each."""
        strategy = lowered.profile.strategy
        width = 4 if strategy.grad_reduce_in_fp32 else 2
        dense, expert = of_stage("P", "dense").expr, of_stage("P", "expert").expr
        ranks, experts = strategy.dp * strategy.cp, strategy.expert_dp
        shard = (ranks, experts) if strategy.zero >= 1 else (1, 1)
        local = (ranks, experts) if strategy.zero >= 2 else (1, 1)
        gradients = width * (dense / local[0] + expert / local[1])
        states = 12 * (dense / shard[0] + expert / shard[1])
        scattered = states / (6 if lowered.profile.strategy.grad_reduce_in_fp32 is False and self._sixteen else 3)
        moved = [gradients, gradients, *([2 * gradients] if ranks > 1 else []), scattered, 2 * scattered, scattered + 3 * states, states / 2]
        rate = self.machine.data["accelerator"]["bandwidth"]["default"]
        per = 1 / (rate["gbps"] * GIB * rate["efficient_factor"])
        return sum((m * per for m in moved), expr(len(moved) * (rate.get("latency_us") or 0) * 1e-6))

    @property
    def _sixteen(self) -> bool:
        return bool(self.question.given.get("strategy", {}).get("grad_reduce_in_bf16"))

    def slower(self) -> float:
        """Nodes that differ: a factor on the pipeline that grows with their number."""
        strategy = self.question.strategy
        ranks = max(1, min(math.ceil(strategy.world_size / self.machine.node), strategy.dp, strategy.expert_dp))
        spread = math.log2(ranks)
        return 1 + spread / (spread + 1) * _STRAGGLER * math.sqrt(spread)
