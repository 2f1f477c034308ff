"""Inputs that remember which of their fields were read: one that nothing reads moves nothing.

A strategy remembers its options, an architecture its fields and those of its parts (`moe.moe_router_topk`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, PrivateAttr

Of = TypeVar("Of", bound=BaseModel)
Path = tuple[str, ...]


def watched(part: Of) -> Of:
    """The same input, none of whose fields has been read yet. Copies remember together."""
    return _watching(part, set(), ())


def forget(part: BaseModel) -> None:
    """As if nothing had been read: what refuses an input reads all of it."""
    if (read := _reads(part)) is not None:
        read.clear()


@contextmanager
def unheeded(part: BaseModel) -> Iterator[None]:
    """What is read inside is not remembered."""
    read = _reads(part)
    before = set(read or ())
    try:
        yield
    finally:
        if read is not None:
            read.intersection_update(before)


def paths_read(part: BaseModel) -> frozenset[Path] | None:
    """The fields that were read since, with the parts that they lie in; None for an input that does not remember."""
    return None if (read := _reads(part)) is None else frozenset(read)


def was_read(part: BaseModel) -> frozenset[str]:
    """The names of an input's own fields that were read since; all of an input that does not remember."""
    read = _reads(part)
    return frozenset(type(part).model_fields) if read is None else frozenset(path[0] for path in read)


def _reads(part: BaseModel) -> set[Path] | None:
    read: set[Path] | None = (part.__pydantic_private__ or {}).get("_read")
    return read


def _watching(part: Of, read: set[Path], at: Path) -> Of:
    kind = _remembering(type(part))
    own: dict[str, Any] = part.__dict__
    values = {name: _inside(own[name], read, (*at, name)) for name in kind.model_fields if name in own}
    made = object.__new__(kind)
    # as pydantic copies a model: what was checked is not checked again
    private = {**(part.__pydantic_private__ or {}), "_read": read, "_at": at}
    slots = (("__dict__", values), ("__pydantic_fields_set__", set(part.model_fields_set)), ("__pydantic_extra__", None))
    for name, value in (*slots, ("__pydantic_private__", private)):
        object.__setattr__(made, name, value)
    return made


def _inside(value: Any, read: set[Path], at: Path) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, BaseModel):
        return _watching(value, read, at)
    if isinstance(value, Mapping):
        return {key: _inside(one, read, (*at, str(key))) for key, one in value.items()}
    return value


@cache
def _remembering(kind: type[Of]) -> type[Of]:
    """The kind of input, in all but that it remembers."""
    names = frozenset(kind.model_fields)

    def read_of(self: BaseModel, name: str) -> Any:
        if name in names:
            private = object.__getattribute__(self, "__pydantic_private__")
            private["_read"].add((*private["_at"], name))
        return kind.__getattribute__(self, name)

    body = {
        "__module__": __name__,
        "__annotations__": {"_read": "set[Path]", "_at": "Path"},
        "_read": PrivateAttr(default_factory=set),
        "_at": PrivateAttr(default=()),
        "model_config": {"defer_build": True},
        "__getattribute__": read_of,
    }
    metaclass: Any = type(kind)
    made: type[Of] = metaclass(kind.__name__, (kind,), body)
    return made
