"""What one rank of a pipeline stage sends and receives: the messages of its blocks, of the pipeline, and of the step."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace

from symsim.algebra.expr import ONE, Number, expr
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_stage
from symsim.cost.messages import of_blocks, of_the_rest
from symsim.cost.step_time import network_of
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


def longest_calls(result: Evaluation) -> dict[str, tuple[float, int, Message]]:
    """Of messages of a micro-batch, and of those of a step, the seconds of the longest call, the first stage that makes it, and the message."""
    assert result.system is not None
    book = Derivation(dict(result.derivation.definitions))
    network = network_of(book, result.system, result.lowered)
    found: dict[str, tuple[float, int, Message]] = {}
    for first, *_ in result.alike:
        stage = result.stages[first]
        taken = [(network.seconds(message).expr, message) for message in stage_messages(result, stage)]
        # those of a group that no formula of the step has
        further: dict[str, Number] = {}
        known = ChainMap(further, *result.stage_numbers(stage).maps)
        for name in book.definitions.keys() - result.derivation.definitions.keys():
            further[name] = book.definitions[name].expr.evaluate(known)
        for seconds, message in taken:
            value = float(seconds.evaluate(known))
            if value > found.get(message.per, (0.0,))[0]:
                found[message.per] = value, first, message
    return found


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
