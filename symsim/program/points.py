"""Values of a program at some points of its grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from symsim.program.value import Value, numpy_operation


class Points:
    """Some points of a grid, by their numbers."""

    def __init__(self, numbers: np.ndarray, sizes: Sequence[int]):
        self.numbers, self.sizes = numbers, sizes
        self._positions: Sequence[np.ndarray] = np.unravel_index(numbers, sizes)
        # of arrays of a shape over the whole grid, or over the box of these points, where the points are in them
        self._places: dict[tuple[bool, tuple[int, ...]], np.ndarray] = {}

    @cached_property
    def _box(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Along every axis the positions that there are, and which of them each point has: the smallest grid that holds the points."""
        return [np.unique(own, return_inverse=True) for own in self._positions]

    def values(self, wanted: Sequence[Value]) -> list[np.ndarray]:
        """Values at the points; those that are not known yet computed on the smallest grid that holds them."""
        boxed = not all(value.known for value in wanted)
        made = _computed(wanted, [own for own, _ in self._box]) if boxed else [value.data for value in wanted]
        return [self._spread(np.asarray(data, dtype=float), boxed) for data in made]

    def spread(self, data: np.ndarray, at: np.ndarray) -> np.ndarray:
        """What is known over some axes of the grid, at some of the points."""
        return np.take(data, self._placed(data.shape, False)[at]) if data.size > 1 else np.full(len(at), data.item())

    def _spread(self, data: np.ndarray, boxed: bool) -> np.ndarray:
        return np.take(data, self._placed(data.shape, boxed)) if data.size > 1 else np.full(len(self.numbers), data.item())

    def _placed(self, shape: tuple[int, ...], boxed: bool) -> np.ndarray:
        key = boxed, shape
        if key not in self._places:
            along = [which for _, which in self._box] if boxed else self._positions
            axes = [axis for axis, length in enumerate(shape) if length > 1]
            self._places[key] = np.ravel_multi_index([along[axis] for axis in axes], [shape[axis] for axis in axes])
        return self._places[key]


def _computed(wanted: Sequence[Value], box: Sequence[np.ndarray]) -> list[Any]:
    """Values on a part of the grid: at these positions along every axis."""
    needed: dict[int, Value] = {}
    waiting = list(wanted)
    while waiting:
        value = waiting.pop()
        if value.id not in needed:
            needed[value.id] = value
            waiting.extend(value.args)
    made: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        # what a value follows from was made before it
        for number in sorted(needed):
            value = needed[number]
            made[number] = _inside(value.data, box) if value.known else numpy_operation(value.op, *(made[a.id] for a in value.args))
    return [made[value.id] for value in wanted]


def _inside(data: Any, box: Sequence[np.ndarray]) -> Any:
    if isinstance(data, np.ndarray):
        for axis, positions in enumerate(box):
            if data.shape[axis] > 1 and len(positions) < data.shape[axis]:
                data = np.take(data, positions, axis=axis)
    return data
