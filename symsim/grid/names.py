"""Names that vary in a sweep: which are sizes and degrees, and where each belongs in the input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from annotated_types import Le

from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.spellings import ALIASES
from symsim.inputs.strategy import Strategy
from symsim.inputs.symbols_set import STRATEGY_SYMBOLS

# Fields that say which layers a stage has; a derivation knows them by what its stages hold
SPLITS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
# Names of an axis that are no setting of their own
RANKS = ("world", "world_size")
MACHINE = "system"

# integers of arrays have 64 bits, and sizes are multiplied
_LARGEST = 2**40


@dataclass(frozen=True)
class Place:
    """Where a name of an axis belongs: a part of the input, and the key there."""

    part: str
    key: Any


@dataclass(frozen=True)
class Column:
    """The values of one name along its axis, as the derivation takes them, and as the user wrote them."""

    name: str
    axis: int
    place: Place
    values: tuple[Any, ...]
    shown: tuple[Any, ...]


def field_of(name: str) -> str:
    """The field of the strategy that a symbol or another system's name stands for; else the name itself."""
    return STRATEGY_SYMBOLS.get(name) or ALIASES.get(name) or name


@cache
def largest(field: str) -> int:
    """The most that a size or degree of a strategy, or a number of ranks, may be in a grid."""
    return _LARGEST if field in RANKS else min([_LARGEST, *_bounds(Strategy.model_fields[field].annotation), *_bounds(Strategy.model_fields[field])])


def _bounds(annotation: Any) -> list[int]:
    """The upper bounds that a field's annotation carries."""
    own = [bound.le for bound in getattr(annotation, "metadata", ()) if isinstance(bound, Le) and isinstance(bound.le, int)]
    return own + [bound for part in get_args(annotation) for bound in _bounds(part)]


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def canonical(name: str, place: Place) -> str:
    return place.key if isinstance(place.key, str) else ".".join(place.key)


def is_number(column: Column) -> bool:
    """Whether a name varies as a symbol of one derivation; degrees do above 1. What is not given at some value follows from others there."""
    part, key = column.place.part, column.place.key
    if None in column.values:
        return False
    # how many ranks a tier joins decides what can run, and so do its neighbours'
    return part in ("ranks", "symbol") or (part == "system" and key[-1] != "ranks") or (part == "strategy" and key in (*SIZES, *DEGREES, *SPLITS))
