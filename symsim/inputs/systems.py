"""From what a user names to a system, and the system with other numbers at some places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from symsim.algebra.grammar import parse_value
from symsim.errors import InputError, cut, nearest, printable
from symsim.inputs.known import Known
from symsim.inputs.reading import Document, format_yaml, read_yaml
from symsim.inputs.shipped import for_claims, list_systems, models_directory
from symsim.inputs.system import System
from symsim.inputs.validation import validate

# numbers that no step stands on
ASIDE = (("accelerator", "price"), ("accelerator", "power"), ("accelerator", "memory"), ("host", "memory"))


def load_system(reference: str, changes: Mapping[tuple[str, ...], str] | None = None) -> System:
    """A system by name or from a YAML file, with the numbers that `changes` gives at the path to each.

    InputError names file, line and key of whatever does not fit (symsim/inputs/system.py has the schema).
    """
    document, system = _read(reference)
    return changed_system(document, changes) if changes else system


def system_document(reference: str) -> Document:
    """The file of a system, by name or path; InputError for a name that there is not, and for what does not fit."""
    return _read(reference)[0]


def _read(reference: str) -> tuple[Document, System]:
    names = list_systems()
    if reference in names:
        path = str(models_directory() / "systems" / f"{reference}.yaml")
    elif reference.lower().endswith((".yaml", ".yml")):
        path = reference
    elif os.path.exists(reference):
        raise InputError(f"{reference}: a system file ends in .yaml or .yml")
    elif not reference.strip():
        raise InputError("SYSTEM is empty; name a system ('symsim list systems') or a YAML file")
    elif (own := for_claims("systems", reference)) is not None:
        raise InputError(f"{reference} is a system of 'symsim audit' alone; its file is one for every command: {own}")
    else:
        hint = nearest(reference, names, "'symsim list systems' has them")
        raise InputError(f"no system or file is named '{cut(reference)}': {hint}")
    document = read_yaml(path)
    return document, validate(System, document.data, path, document)


def system_of(data: Mapping[str, Any]) -> System:
    """A system from the contents of its file."""
    return changed_system(Document(dict(data), f"system {data.get('name', '')}"), {})


def changed_system(document: Document, changes: Mapping[tuple[str, ...], str]) -> System:
    """A system with other numbers at some places; InputError names the place."""
    if not changes:
        return validate(System, document.data, document.where, document)
    data = deepcopy(dict(document.data))
    data["sources"]["--set"] = "the command line"
    # steps were measured with the numbers that it has, not with others
    if any(where not in ASIDE for where in changes):
        data.pop("anchored", None)
    for where, text in changes.items():
        _change(data, where, text)
    return validate(System, data, "--set", Document(data, "--set"))


def no_system(changes: Mapping[tuple[str, ...], str]) -> InputError:
    return InputError(f"--set {'.'.join(next(iter(changes)))} changes a system's number, and none is named: give one with -y")


def format_system(data: Mapping[str, Any]) -> str:
    """The contents of a system's file as YAML."""
    lists = ("network", "anchored")
    text = format_yaml({key: value for key, value in data.items() if key not in lists})
    for name in lists:
        text += f"{name}:\n" if data.get(name) else ""
        for member in data.get(name, ()):
            text += "  - " + format_yaml(member, "    ")[4:]
    return text


def override_system(system: System | None, changes: Mapping[tuple[str, ...], str]) -> System | None:
    """The system with other numbers at some places; InputError names the place, or that there is no system."""
    if not changes:
        return system
    if system is None:
        raise no_system(changes)
    return changed_system(Document(plain_system(system), "--set"), changes)


def plain_system(part: Any) -> Any:
    """A part of a system as its file has it."""
    if isinstance(part, Known):
        return [part.text, part.tag, part.source]
    if isinstance(part, BaseModel):
        return {name: plain_system(value) for name in type(part).model_fields if (value := getattr(part, name)) is not None}
    if isinstance(part, Mapping):
        return {key: plain_system(value) for key, value in part.items()}
    return [plain_system(member) for member in part] if isinstance(part, tuple) else part


def _change(data: dict[str, Any], where: tuple[str, ...], text: str) -> None:
    """Put a number at its place in a system's plain data; a tier is found by its name, or by its place from 1."""
    *above, last = where
    place: Any = data
    for position, part in enumerate(above):
        if where[:position] == ("network",):
            found = next((tier for i, tier in enumerate(place, 1) if part in (str(i), tier["name"])), None)
            if found is None:
                hint = nearest(part, [tier["name"] for tier in place])
                raise InputError(f"--set {'.'.join(where)}: {data['name']} has no tier '{cut(part)}': {hint}")
            place = found
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        else:
            break
    if not isinstance(place, dict):
        raise InputError(f"--set {'.'.join(where)}: {'.'.join(above)} is not a group of numbers")
    place[last] = parse_value(text) if last == "ranks" else [printable(text), "estimated", "--set"]
