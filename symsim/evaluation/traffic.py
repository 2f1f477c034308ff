"""What one rank of a pipeline stage sends and receives: the messages of its blocks, of the pipeline, and of the step."""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.expr import ONE, expr
from symsim.algebra.key import layers, of_stage
from symsim.cost.reduce import arrivals, pipeline_messages, scaled, update_messages
from symsim.evaluation.numbers import Evaluation
from symsim.ir.messages import Message, between_ranks, merge
from symsim.pipeline.stages import Stage, runs


def stage_messages(result: Evaluation, stage: Stage) -> list[Message]:
    """All messages of one rank of a stage, equal calls merged. A group of one rank sends nothing."""
    lowered, at = result.lowered, result.stage_values(stage)
    made: list[Message] = []
    for name, block in lowered.blocks.items():
        times = int(at[runs(name)])
        again = int(at[layers(name, again=True).text]) if name in lowered.checkpointed else 0
        for variant, n in ((block, times - again), (lowered.checkpointed.get(name), again)):
            if variant is not None and n:
                both = between_ranks([*variant.differentiated.forward_messages, *variant.backward_messages])
                made += scaled([m for _, m in both], expr(n))
    if result.strategy.pp > 1:
        made += pipeline_messages(lowered, stage.sent, stage.received)
    made += _on_stage(result, stage, [*arrivals(lowered), *update_messages(lowered, result.derivation)])
    return [m for m in merge(made) if m.group.evaluate(result.values) > 1]


def _on_stage(result: Evaluation, stage: Stage, messages: list[Message]) -> list[Message]:
    """Messages over a stage's symbols, at the stage's numbers; those that it has none of are left out."""
    own = {n: expr(v) for n, v in result.stage_values(stage).items() if n != "i"}
    held = [result.derivation[of_stage("P", part)] for part in ("dense", "expert")]
    own |= {d.symbol: d.expr.substitute(own) for d in held}
    numbers = result.stage_numbers(stage)
    placed = [
        replace(
            m,
            send_elements=m.send_elements.substitute(own),
            receive_elements=m.receive_elements.substitute(own),
            count=ONE * int(m.count.evaluate(numbers)),
        )
        for m in messages
    ]
    return [m for m in placed if m.count and (m.send_elements or m.receive_elements)]
