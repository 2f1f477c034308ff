"""FlagScale's experiments: files that name a training file beside them, and say how many ranks run it (flagscale/runner, read 2026-11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Entry, natural, shown
from symsim.inputs.reading import Document

_RANKS = ("nnodes", "nproc_per_node")
_DEVICES = "CUDA_VISIBLE_DEVICES"


def is_experiment(data: Mapping[str, Any]) -> bool:
    """A file whose defaults name others."""
    return isinstance(data.get("experiment"), dict) and isinstance(data.get("defaults"), list)


def training_file(document: Document) -> str:
    """The file of the training that an experiment names. InputError where it names none, or one that is not there."""
    named = next((one["train"] for one in document.data["defaults"] if isinstance(one, dict) and "train" in one), None)
    where = document.place(("defaults",))
    if named is None:
        others = [str(key) for one in document.data["defaults"] if isinstance(one, dict) for key in one]
        raise InputError(f"{where}: the experiment names no training{f' ({cut(others[0])})' if others else ''}, and trainings are read")
    path = Path(document.where).parent / "train" / f"{named}.yaml"
    if not isinstance(named, str) or re.fullmatch(r"[\w.-]+", named, re.ASCII) is None or not path.is_file():
        raise InputError(f"{where}: the experiment is of train/{cut(str(named))}.yaml, which is not beside it: give that file")
    return str(path)


def ranks_of(document: Document) -> tuple[int | None, str]:
    """Ranks, in a number and in words: of its runner, and else as many a node as it makes visible."""
    experiment = document.data["experiment"]
    runner, variables = experiment.get("runner"), experiment.get("envs")
    told = {name: natural(str(runner[name])) for name in _RANKS if name in runner} if isinstance(runner, dict) else {}
    visible = variables.get(_DEVICES) if isinstance(variables, dict) else None
    each = told.get("nproc_per_node") or (len(str(visible).split(",")) if visible is not None else None)
    nodes = told.get("nnodes", 1)
    return (nodes * each, f"{nodes} nodes of {each} ranks") if nodes and each else (None, "")


def rows_of(document: Document) -> Iterator[Entry]:
    """A row for every key."""
    for key, value in document.data.items():
        for name, one in _leaves(key, value):
            last = name.rpartition(".")[2]
            if last in _RANKS and natural(str(one)) is None:
                yield Entry(name, shown(one), "not_modelled", "dp", "no number here: --world-size N says how many ranks there are")
            elif last in (*_RANKS, _DEVICES):
                yield Entry(name, shown(one), "mapped", "dp", "ranks")
            elif name.startswith("experiment.auto_tuner."):
                yield Entry(name, shown(one), "not_modelled", why="degrees are tried out there: 'symsim plan' finds them")
            else:
                yield Entry(name, shown(one), "no_cost_effect", why="of the run: its name, files, variables and commands")


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves(f"{name}.{key}", one)
    else:
        yield name, value
