"""The kinds of layers that a model has as it is trained, under the strategies of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import respelt
from symsim.inputs.watched import was_read, watched
from symsim.lowering.tuned import tuned


@dataclass(frozen=True)
class AsTrained:
    """A model with its kinds of layers, one object for equal ones. read: the options that these follow from, with their values."""

    model: Architecture
    read: Mapping[str, Any]

    def holds(self, strategy: Strategy) -> bool:
        return all(strategy.__dict__[name] == value for name, value in self.read.items())


class Kinds:
    """Of a model, by what of a strategy they follow from."""

    def __init__(self, model: Architecture):
        self._model = model
        self._known: list[AsTrained] = []

    def of(self, strategy: Strategy) -> AsTrained:
        found = next((one for one in self._known if one.holds(strategy)), None)
        if found is None:
            heard = watched(strategy)
            model = respelt(tuned(self._model, heard))
            model = next((one.model for one in self._known if one.model == model), model)
            found = AsTrained(model, {name: strategy.__dict__[name] for name in was_read(heard)})
            self._known.append(found)
        return found

    def same(self, one: Strategy, other: Strategy) -> bool:
        return self.of(one).model is self.of(other).model
