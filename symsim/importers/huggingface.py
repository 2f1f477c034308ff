"""A Hugging Face config.json: the model alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Fate, shown
from symsim.inputs.models import import_hf
from symsim.inputs.reading import read_json

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_FATES: dict[str, Fate] = {"mapped": "mapped", "default": "derived", "no cost effect": "no_cost_effect"}


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a config.json. InputError where it is no model that symsim knows."""
    if len(inputs) != 1:
        raise InputError(f"'symsim import hf' reads one config.json, and {len(inputs)} files are given")
    given = read_json(inputs[0], infinite=True).data
    loaded = import_hf(inputs[0])
    rows = []
    for key, said, note in loaded.rows:
        fate = _FATES.get(said, "refused")
        rows.append(Entry(key, shown(given[key]) if key in given else "", fate, *((note, "") if fate == "mapped" else ("", note))))
    return Job("hf", tuple(rows), loaded.architecture)
