"""The question that a model, a file or an imported directory asks, with the files it was imported from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from symsim.compat.difference import Question
from symsim.errors import InputError, cut
from symsim.importers.job import GIVEN
from symsim.inputs.models import load_model, override_architecture
from symsim.inputs.reading import read_json
from symsim.inputs.settings import split_settings
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system


def question_of(model: str, strategy: str | None = None, system: str | None = None, settings: Sequence[str] = ()) -> Question:
    """What is to be compared; InputError for settings that are of the answer alone."""
    asked = split_settings(settings)
    if asked.symbols:
        raise InputError(f"--set {cut(next(iter(asked.symbols)))}: another system's numbers are compared at the sizes of the job alone")
    loaded = load_model(model)
    placed = load_strategy(strategy if strategy is not None else loaded.strategy, asked.strategy)
    named = system if system is not None else loaded.system_file
    return Question(
        override_architecture(loaded.architecture, asked.architecture),
        placed,
        {**loaded.assumptions, **asked.assumptions},
        load_system(named, asked.system) if named is not None else None,
        given_of(model),
    )


def given_of(directory: str) -> Mapping[str, Mapping[str, Any]]:
    """The files that a directory was imported from, by what they describe; nothing where there are none."""
    path = os.path.join(directory, GIVEN)
    if not os.path.isdir(directory) or not os.path.exists(path):
        return {}
    return {what: data for what, data in read_json(path).data.items() if isinstance(data, Mapping)}
