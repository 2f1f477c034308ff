"""Values of a program at some points of its grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symsim.program.program import restricted
from symsim.program.value import Value

_ALL = 1 << 62


def values_at(wanted: Sequence[Value], numbers: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Values at some points of the grid; those that are not known yet computed on the smallest grid that holds them."""
    at: Sequence[np.ndarray] = np.unravel_index(numbers, sizes)
    made = wanted
    if not all(value.known for value in wanted):
        box = [np.unique(p) for p in at]
        _, made = restricted(wanted, box, _ALL)
        at = [np.searchsorted(own, p) for own, p in zip(box, at)]
    found = []
    for value in made:
        data = value.data
        if isinstance(data, np.ndarray):
            data = data[tuple(k if n > 1 else np.zeros_like(k) for k, n in zip(at, data.shape))]
        found.append(np.broadcast_to(np.asarray(data, dtype=float), numbers.shape))
    return found
