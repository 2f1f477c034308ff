"""From what a user names to an architecture: by name, from a file or a directory, and with some fields changed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from symsim.errors import InputError, cut, nearest
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.hub import downloaded_config, is_hub_id, shipped_model
from symsim.inputs.layer_pattern import format_layers
from symsim.inputs.reading import format_yaml, from_validation_error, read_json, read_yaml
from symsim.inputs.shipped import for_claims, list_models, list_systems, models_directory
from symsim.inputs.validation import validate

# the files of a directory that `symsim import` writes
MODEL, STRATEGY, SYSTEM, ASSUMPTIONS = JOB = ("model.yaml", "strategy.yaml", "system.yaml", "assumptions.yaml")


@dataclass(frozen=True)
class LoadedModel:
    """An architecture, where it came from and what became of every key of an import; of a directory also its strategy's file, its system's
    and its assumptions, which hold unless others are given; of a job in memory what these files would hold, in place of a path. note: what a user
    should know of how it was found."""

    architecture: Architecture
    where: str
    rows: tuple[Any, ...] = ()
    strategy: str | Mapping[str, Any] | None = None
    system: str | Mapping[str, Any] | None = None
    assumptions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def system_file(self) -> str | None:
        """The path of its system. InputError for a job in memory that has one."""
        if isinstance(self.system, Mapping):
            named = self.system.get("name")
            raise InputError(f"the system {named} of {self.where} has no file: 'symsim import -o DIR' writes one; give DIR as the model")
        return self.system

    def notes(self, strategy: Any) -> list[str]:
        """What a user should know, where this strategy is given beside it or None."""
        return [*([self.note] if self.note else []), *self.replaced(strategy)]

    def replaced(self, strategy: Any) -> list[str]:
        """That a strategy which is given takes the place of the directory's own, where there are both. A job in memory has no -s."""
        if strategy is None or not isinstance(self.strategy, str):
            return []
        return [f"-s replaces the strategy of {os.path.dirname(self.where)}, all of it; --set NAME=VALUE changes single options of it"]


def load_model(reference: str) -> LoadedModel:
    """A model by name or hub id, or from a YAML file, a Hugging Face config.json, or a directory that `symsim import` wrote."""
    names = list_models()
    if reference in names:
        return _from_yaml(str(models_directory() / f"{reference}.yaml"))
    if os.path.isdir(reference):
        return _from_directory(reference)
    suffix = os.path.splitext(reference)[1].lower()
    if suffix == ".json":
        return import_hf(reference)
    if suffix in (".yaml", ".yml"):
        return _from_yaml(reference)
    if os.path.exists(reference):
        raise InputError(f"{reference}: a model file ends in .yaml, .yml or .json")
    if is_hub_id(reference):
        return _of_hub(reference)
    if not reference.strip():
        raise InputError("MODEL is empty; name a model ('symsim list models'), a YAML file or a config.json")
    if (own := for_claims("models", reference)) is not None:
        raise InputError(f"{reference} is a model of 'symsim audit' alone; its file is one for every command: {own}")
    page = re.fullmatch(r"https?://(?:www\.)?huggingface\.co/([\w.-]+/[\w.-]+).*", reference)
    hint = (
        f"nothing is downloaded; {page[1]} is its id"
        if page
        else "it is a system, which -y gives"
        if reference in list_systems()
        else nearest(reference, names, "'symsim list models' has them")
    )
    raise InputError(f"no model or file is named '{reference}': {hint}")


def _of_hub(reference: str) -> LoadedModel:
    """The model that comes with symsim and was read from that id, else a config.json that was downloaded, else one of the same shape."""
    shipped = shipped_model(reference)
    if shipped is None or shipped.source != reference:
        config = downloaded_config(reference)
        if config is not None:
            found = import_hf(config, reference.rpartition("/")[2].lower())
            return replace(found, note="; ".join(filter(None, (f"{reference} is read from {config}", found.note))))
    if shipped is None:
        there = f"https://huggingface.co/{reference}/resolve/main/config.json"
        raise InputError(f"no model or file is named '{reference}'; of a model of a hub give its config.json, as a file: {there}")
    loaded = _from_yaml(str(models_directory() / f"{shipped.name}.yaml"))
    return loaded if shipped.source == reference else replace(loaded, note=f"{reference} is taken for {shipped.name}, read from {shipped.source}")


def model_of_mapping(data: Mapping[str, Any]) -> LoadedModel:
    """A model from the contents of a model file, or of a Hugging Face config.json (which has a model_type)."""
    if "model_type" not in data:
        return LoadedModel(validate(Architecture, data, "the model"), "the model")
    from symsim.inputs.hf import read_config

    architecture, rows = read_config(data, str(data["model_type"]), "the config")
    return LoadedModel(architecture, "the config", tuple(rows))


def _from_yaml(path: str) -> LoadedModel:
    document = read_yaml(path)
    return LoadedModel(validate(Architecture, document.data, path, document), path)


def _from_directory(path: str) -> LoadedModel:
    files = {name: os.path.join(path, name) for name in (*JOB, "config.json")}
    there = {name for name, file in files.items() if os.path.exists(file)}
    if MODEL not in there:
        if "config.json" in there:
            return import_hf(files["config.json"])
        hint = "; symsim import with --of MODEL writes one" if STRATEGY in there else ""
        raise InputError(f"{path}: the directory holds no model.yaml and no config.json{hint}")
    loaded = _from_yaml(files[MODEL])
    strategy, system = (files[name] if name in there else None for name in (STRATEGY, SYSTEM))
    return LoadedModel(loaded.architecture, files[MODEL], (), strategy, system, _assumed(files[ASSUMPTIONS]) if ASSUMPTIONS in there else {})


def _assumed(path: str) -> dict[str, str]:
    """The assumptions of a directory. InputError names the line of one that there is not."""
    document = read_yaml(path)
    for name, value in document.data.items():
        try:
            resolve({name: "true" if value is True else "false" if value is False else str(value)})
        except InputError as error:
            raise InputError(f"{document.place((name,))}: {error}") from None
    return {name: str(value).lower() for name, value in document.data.items()}


def import_hf(path: str, called: str = "") -> LoadedModel:
    """A Hugging Face config.json, with what became of each of its keys; a note names those that are not read. called: its name, else that of
    the file or of its directory."""
    document = read_json(path, infinite=True)
    from symsim.inputs.hf import read_config

    stem = Path(path).stem
    name = Path(path).resolve().parent.name if stem == "config" else stem
    try:
        architecture, rows = read_config(document.data, called or name or stem, path)
    except ValidationError as error:
        raise from_validation_error(error, None, path, Architecture) from None
    return LoadedModel(architecture, path, tuple(rows), note=_unread(path, rows))


def _unread(path: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """What a user should know of the keys that are not read: those that another workload or a strategy has, with the reason, and the unknown."""
    refused = {why: [key for key, fate, reason in rows if (fate, reason) == ("refused", why)] for _, fate, why in rows if fate == "refused"}
    said = [f"{_named(keys)}: {why}" for why, keys in refused.items()]
    if unknown := [key for key, fate, _ in rows if fate == "unknown"]:
        said.append(f"{_named(unknown)} {'is' if len(unknown) == 1 else 'are'} not read ('symsim import hf' says why)")
    return f"{path}: {'; '.join(said)}" if said else ""


def _named(keys: Sequence[str]) -> str:
    return f"{', '.join(map(cut, keys[:3]))}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"


def format_model(architecture: Architecture) -> str:
    """The architecture as a file of models/: what differs from the defaults, in the schema's order."""
    data = architecture.model_dump(exclude_defaults=True)
    data["layers"] = format_layers(architecture.layers)
    if "layer_kinds" in data:
        data["layer_kinds"] = {kind: dict(fields) for kind, fields in data["layer_kinds"].items()}
    return format_yaml(data)


def override_architecture(architecture: Architecture, changes: Mapping[tuple[str, ...], Any]) -> Architecture:
    """The architecture with these fields changed, checked again as a whole."""
    if not changes:
        return architecture
    data = architecture.model_dump()
    for path, value in changes.items():
        if path == ("num_layers",):
            data["layers"] = _resized(architecture, value)
            continue
        place = data
        for position, part in enumerate(path[:-1]):
            if not isinstance(place.get(part), dict):
                hint = f": {nearest(part, list(place))}" if position else ""
                raise InputError(f"--set {'.'.join(path)}: {architecture.name} has no {'.'.join(path[: position + 1])}{hint}")
            place = place[part]
        place[path[-1]] = value
    return validate(Architecture, data, "--set")


def _resized(architecture: Architecture, layers: Any) -> Any:
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise InputError(f"--set num_layers={layers}: it should be a whole number above 0")
    if len(architecture.layers) != 1:
        raise InputError(
            f"--set num_layers: {architecture.name} has several runs of layers ({format_layers(architecture.layers)}); "
            "edit the model file's layers instead"
        )
    unit = len(architecture.layers[0].kinds)
    if layers % unit:
        raise InputError(f"--set num_layers={layers}: {architecture.name} repeats {unit} layers, so a multiple of {unit} is needed")
    return [{"repeat": layers // unit, "kinds": architecture.layers[0].kinds}]
