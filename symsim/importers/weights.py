"""The model that a configuration names by its weights: an id on a hub, or a directory with a config.json; or the one that the user names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from symsim.importers.keys import Keys
from symsim.inputs.hub import downloaded_config, in_few_bits, is_hub_id, shipped_model
from symsim.inputs.models import load_model

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_STORED = "its weights are stored in few bits: timed in 2 bytes a parameter unless another key says so, by 1/4 to 1 byte and unpacked there"


def model_of(keys: Keys, key: str, options: "Options", config: str | None = None) -> "Architecture | None":
    """The architecture of --of, else of a config.json, else of what the key names; None, and a row that says so, where that is not known here.
    InputError where a file that is named holds no model."""
    beside = options.model or config
    if beside is not None:
        architecture = load_model(beside).architecture
        if keys.has(key):
            keys.note(key, to=f"model {architecture.name}", why="named by --of" if options.model else f"of {beside}")
        return architecture
    reference = keys.text(key)
    if reference is None:
        return None
    folder = reference if os.path.isdir(reference) else os.path.dirname(reference) if reference.endswith("config.json") else ""
    if folder and any(os.path.exists(os.path.join(folder, name)) for name in ("config.json", "model.yaml")):
        architecture = load_model(folder).architecture
        keys.note(key, to=f"model {architecture.name}")
        return architecture
    shipped = shipped_model(reference)
    if shipped is None or shipped.source != reference:
        downloaded = downloaded_config(reference) if is_hub_id(reference) else None
        if downloaded is not None:
            keys.note(key, to=f"model {reference.rpartition('/')[2].lower()}", why=f"of {downloaded}")
            return load_model(reference).architecture
    if shipped is None:
        keys.note(key, "refused", why="no model that comes with symsim has this id, and no directory here a config.json; --of MODEL names one")
        return None
    alike = "" if shipped.exact else f"of the shape of {shipped.source}"
    keys.note(key, to=f"model {shipped.name}", why=f"{alike}; {_STORED}" if in_few_bits(reference) else alike)
    return load_model(shipped.name).architecture
