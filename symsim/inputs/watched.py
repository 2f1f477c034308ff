"""A strategy that remembers which of its options were read: one that nothing reads moves nothing."""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr

from symsim.inputs.strategy import Strategy

_OPTIONS = frozenset(Strategy.model_fields)


class Watched(Strategy):
    """The strategy that it was made of, in all but that it remembers. Copies remember together."""

    _read: set[str] = PrivateAttr(default_factory=set)

    def __getattribute__(self, name: str) -> Any:
        if name in _OPTIONS:
            object.__getattribute__(self, "__pydantic_private__")["_read"].add(name)
        return super().__getattribute__(name)

    def __repr_name__(self) -> str:
        return Strategy.__name__


def watched(strategy: Strategy) -> Watched:
    """The strategy, none of whose options has been read yet."""
    return Watched.model_construct(set(strategy.model_fields_set), **dict(strategy))


def forget(strategy: Strategy) -> None:
    """As if nothing had been read: what refuses a strategy reads all of it."""
    if isinstance(strategy, Watched):
        strategy._read.clear()


def was_read(strategy: Strategy) -> frozenset[str]:
    """The options that were read since; all of a strategy that does not remember."""
    return frozenset(strategy._read) if isinstance(strategy, Watched) else _OPTIONS
