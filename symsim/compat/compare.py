"""A job's quantities as symsim and as another system compute them, and what each difference alone moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from symsim.algebra.expr import Number
from symsim.algebra.key import Key, of_stage
from symsim.compat.difference import Difference, Question, applied
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.conventions import REPLAYED

# quantity -> definition of a stage, and its unit; `step time` is of the step
QUANTITIES: dict[str, tuple[Key, str]] = {
    "weights": (of_stage("M", "weights"), "byte"),
    "gradients": (of_stage("M", "gradients"), "byte"),
    "optimizer states": (of_stage("M", "optimizer"), "byte"),
    "saved bytes": (of_stage("A"), "byte"),
    "forward FLOPs": (of_stage("X"), "FLOP"),
    "backward FLOPs": (of_stage("Y"), "FLOP"),
    "recomputed FLOPs": (of_stage("Z"), "FLOP"),
    "peak": (of_stage("M", "peak"), "byte"),
}
STEP = "step time"
UNITS: Mapping[str, str] = {**{name: unit for name, (_, unit) in QUANTITIES.items()}, STEP: "second"}


@dataclass(frozen=True)
class Measure:
    """A quantity of an evaluation, one number a stage or one; its unit: byte, FLOP or second."""

    of: Callable[[Evaluation], tuple[Number, ...]]
    unit: str


@dataclass(frozen=True)
class Move:
    """What one difference alone does to a quantity, at the stage where it has most: symsim's number, and with the difference."""

    difference: Difference
    quantity: str
    here: float
    alone: float

    @property
    def share(self) -> float:
        """The change as a share of symsim's number; of nothing, the whole of the other."""
        return (self.alone - self.here) / self.here if self.here else float(self.alone != 0)


@dataclass(frozen=True)
class Comparison:
    """here, there: numbers by quantity, one a stage (of the step time one). moves: largest first; still: differences that move nothing here."""

    kind: str
    here: Mapping[str, tuple[Number, ...]]
    there: Mapping[str, tuple[Number, ...]]
    moves: tuple[Move, ...]
    still: tuple[Difference, ...]
    units: Mapping[str, str] = field(default_factory=lambda: UNITS)

    def to_json(self) -> dict[str, Any]:
        """Bytes and FLOPs are integers, seconds floats; `stages` has one entry a stage."""
        return {
            "compat": self.kind,
            "quantities": {
                name: {"symsim": list(map(_plain, here)), self.kind: list(map(_plain, self.there[name]))} for name, here in self.here.items()
            },
            "differences": [
                {
                    "name": m.difference.name,
                    "quantity": m.quantity,
                    "symsim": _plain(m.here),
                    "alone": _plain(m.alone),
                    "moves": m.share,
                    "here": m.difference.here,
                    "there": m.difference.there,
                    "source": m.difference.source,
                }
                for m in self.moves
            ],
            "without_effect": [d.name for d in self.still],
        }


def evaluate(question: Question) -> Evaluation:
    """The question answered under its conventions."""
    return replayed(evaluated(question.model, question.strategy, question.assumptions, None, question.system, question.conventions))


def replayed(at: Evaluation) -> Evaluation:
    """The evaluation with its pipeline's seconds, where a convention replays them."""
    rule = at.lowered.profile.conventions.pipeline
    return at if rule is None else replace(at, overrides={**at.overrides, REPLAYED: rule(at)})


def measured(at: Evaluation, measures: Mapping[str, Measure] | None = None) -> dict[str, tuple[Number, ...]]:
    """Every quantity of an evaluation, by stage; measures: those of a system that has others."""
    if measures is not None:
        return {name: measure.of(at) for name, measure in measures.items()}
    stages = [at.stage_numbers(stage) for stage in at.stages]
    found: dict[str, tuple[Number, ...]] = {name: tuple(s[key.text] for s in stages) for name, (key, _) in QUANTITIES.items()}
    if at.system is not None:
        found[STEP] = (at.step_numbers["t_step"],)
    return found


def compare(kind: str, question: Question, rows: Sequence[Difference], measures: Mapping[str, Measure] | None = None) -> Comparison:
    """Both answers, and each difference by itself. measures: what is compared, where the system has quantities of its own."""

    def quantities(asked: Question) -> dict[str, tuple[Number, ...]]:
        return measured(evaluate(asked), measures)

    here, there = quantities(question), quantities(applied(question, rows))
    moves: list[Move] = []
    still: list[Difference] = []
    for row in rows:
        alone = quantities(applied(question, [row]))
        made = [Move(row, name, *_largest(here[name], alone[name])) for name in here if alone[name] != here[name]]
        moves += made
        still += [] if made else [row]
    units = {name: measure.unit for name, measure in (measures or {}).items()}
    return Comparison(kind, here, there, tuple(sorted(moves, key=lambda m: -abs(m.share))), tuple(still), units or UNITS)


def _largest(here: tuple[Number, ...], alone: tuple[Number, ...]) -> tuple[float, float]:
    """Both numbers of the stage where the change is the largest."""
    pairs = [(float(before), float(after)) for before, after in zip(here, alone)]
    return max(pairs, key=lambda pair: abs(pair[1] - pair[0]))


def _plain(value: Number | float) -> int | float:
    return int(value) if value == int(value) else float(value)
