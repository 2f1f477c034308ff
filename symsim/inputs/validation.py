"""Plain data as a frozen model, or one sentence about the first thing that does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from symsim.errors import InputError, cut
from symsim.inputs.reading import Document, KeyPath, dotted, from_validation_error

Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], data: Mapping[str, Any], where: str, document: Document | None = None) -> Model:
    """`data` as `model`; InputError for the first thing that does not fit, with file, line and key."""
    try:
        made = model.model_validate(dict(data))
    except ValidationError as error:
        raise from_validation_error(error, document, where, model) from None
    _refuse_coercion(data, made, (), where, document)
    return made


def _refuse_coercion(given: Any, made: Any, path: KeyPath, where: str, document: Document | None) -> None:
    """pydantic reads `true` as 1 and "8" as 8; in a configuration either is a mistake."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            child = made.get(key) if isinstance(made, Mapping) else getattr(made, key, None)
            _refuse_coercion(value, child, (*path, key), where, document)
    elif isinstance(given, (list, tuple)) and isinstance(made, tuple) and len(given) == len(made):
        for index, (value, child) in enumerate(zip(given, made)):
            _refuse_coercion(value, child, (*path, index), where, document)
    elif isinstance(made, (bool, int, float, str)) and not isinstance(given, BaseModel):
        for kind, wanted in ((bool, "true or false"), (str, "text")):
            if isinstance(given, kind) != isinstance(made, kind):
                place = document.place(path) if document is not None else where
                needed = wanted if isinstance(made, kind) else "a number"
                shown = f'"{cut(given)}"' if isinstance(given, str) else str(given).lower()
                raise InputError(f"{place}: {dotted(path)} is {shown}; it should be {needed}")
