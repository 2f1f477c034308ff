"""What one rank of a pipeline stage sends and receives: the messages of its blocks, of the pipeline, and of the step."""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.expr import ONE, expr
from symsim.algebra.key import of_stage
from symsim.cost.messages import of_blocks, of_the_rest
from symsim.evaluation.numbers import Evaluation
from symsim.ir.messages import Message, merge
from symsim.pipeline.stages import Stage


def stage_messages(result: Evaluation, stage: Stage) -> list[Message]:
    """All messages of one rank of a stage, equal calls merged. A group of one rank sends nothing."""
    lowered = result.lowered
    own = {n: expr(v) for n, v in result.stage_values(stage).items()}
    blocks = [replace(sent.message, count=sent.message.count.substitute(own)) for sent in of_blocks(lowered)]
    between, rest = of_the_rest(lowered, result.derivation, stage.sent, stage.received)
    made = [*(m for m in blocks if m.count), *between, *_on_stage(result, stage, rest)]
    return [m for m in merge(made) if m.group.evaluate(result.values) > 1]


def _on_stage(result: Evaluation, stage: Stage, messages: list[Message]) -> list[Message]:
    """Messages over a stage's symbols, at the stage's numbers; those that it has none of are left out."""
    own = {n: expr(v) for n, v in result.stage_values(stage).items() if n != "i"}
    keys = [of_stage(letter, part) for letter in ("P", "P_trained") for part in ("dense", "expert")]
    held = [result.derivation[key] for key in keys if key in result.derivation]
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
