"""Results as pandas DataFrames, for those who have pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError

if TYPE_CHECKING:
    from symsim.evaluation.numbers import Evaluation
    from symsim.grid.rows import Column


def definitions_frame(result: Evaluation) -> Any:
    """The named definitions, in order: symbol, stage, value, unit, meaning, formula, assumptions, source.

    A definition that each stage has its own of has a row for each stage; the stage of all others is missing (NA).
    """
    pandas = _pandas()
    rows = []
    per_stage = {stage.index: result.stage_numbers(stage) for stage in result.stages}
    for symbol, definition in result.derivation.definitions.items():
        whole = result.numbers.get(symbol, result.step_numbers.get(symbol))
        own = {None: whole} if whole is not None else {index: numbers[symbol] for index, numbers in per_stage.items() if symbol in numbers}
        said = (str(definition.unit), definition.meaning, str(definition.expr), ", ".join(definition.assumptions), definition.source)
        rows += [(symbol, stage, float(value), *said) for stage, value in own.items()]
    frame = pandas.DataFrame(rows, columns=["symbol", "stage", "value", "unit", "meaning", "formula", "assumptions", "source"])
    return frame.astype({"stage": "Int64"})


def sweep_frame(columns: Iterable[Column], rows: Mapping[str, Any]) -> Any:
    """The rows of a sweep; attrs['units'] and attrs['meanings'] hold what the columns are."""
    columns = list(columns)
    frame = _pandas().DataFrame({column.name: rows[column.name] for column in columns})
    frame.attrs = {"units": {c.name: c.unit for c in columns}, "meanings": {c.name: c.meaning for c in columns}}
    return frame


def frame_of(rows: list[dict[str, Any]]) -> Any:
    """Rows of one kind, as they are."""
    return _pandas().DataFrame(rows)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError("to_pandas needs the package pandas; pip install 'symsim[pandas]'") from None
    return pandas
