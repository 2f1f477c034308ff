"""A strategy as a rule reads it, of fields that are given by name; it remembers which were read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from symsim.inputs.strategy import Strategy, default_dp


class Watched:
    """A strategy whose fields may be arrays' elements, and which remembers the fields that were read."""

    def __init__(self, values: Mapping[str, Any]):
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "read", set())

    def __getattr__(self, name: str) -> Any:
        values = self._values
        if name in values:
            self.read.add(name)
            return values[name]
        computed = _property(name)
        if computed is not None:
            return computed(self)
        if name == "dp":
            return default_dp(self.tp, self.cp, self.ep, self.expert_tp)
        raise AttributeError(name)


@cache
def _property(name: str) -> Callable[[Any], Any] | None:
    """What computes a property of a strategy."""
    found = getattr(Strategy, name, None)
    return found.fget if isinstance(found, property) else None
