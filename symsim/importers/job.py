"""A job brought from another system: what symsim takes for it, the ledger of its keys, and the directory that holds both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import FATES, Entry
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.models import ASSUMPTIONS, JOB, MODEL, STRATEGY, SYSTEM, format_model
from symsim.inputs.reading import format_yaml, write_text
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import format_system, load_system

LEDGER = "ledger.json"
GIVEN = "given.json"


@dataclass(frozen=True)
class Job:
    """What a source determines, each in symsim's own terms, and what became of its keys.

    architecture, strategy, system: None where the source does not say. system: the contents of a system file. assumptions: those
    that the source settles, by name. notes: what a user should know that no key says. given: the contents of the source's files by what
    they describe, where `--compat` reads them again.
    """

    kind: str
    rows: tuple[Entry, ...]
    architecture: Architecture | None = None
    strategy: Mapping[str, Any] | None = None
    system: Mapping[str, Any] | None = None
    assumptions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def placed(self) -> Strategy:
        """The strategy, checked by itself. InputError where it cannot be."""
        return load_strategy(self.strategy)

    def spelt(self) -> str:
        """The strategy as text for -s."""
        return ",".join(f"{name}={_spelt(value)}" for name, value in (self.strategy or {}).items())

    def to_json(self) -> dict[str, Any]:
        """The ledger as an object: keys, each with its value, fate, what it is here and why; model, strategy, system."""
        told: dict[str, Any] = {"keys": [{"key": r.key, "value": r.value, "fate": r.fate, "to": r.to, "why": r.why} for r in self.rows]}
        if self.architecture is not None:
            told["model"] = self.architecture.name
        if self.strategy is not None:
            told["strategy"] = self.spelt()
        if self.system is not None:
            told["system"] = str(self.system["name"])
        if self.assumptions:
            told["assumptions"] = dict(self.assumptions)
        return {**told, **({"notes": list(self.notes)} if self.notes else {})}

    def counted(self) -> str:
        """How many keys met each fate, in a line."""
        return ", ".join(f"{sum(r.fate == fate for r in self.rows)} {fate.replace('_', ' ')}" for fate in FATES)


def checked(job: Job) -> Job:
    """The job, once its parts are found to go together. InputError says which key does not."""
    resolve(job.assumptions)
    if job.strategy is None:
        return job
    strategy = job.placed()
    if job.architecture is not None:
        from symsim.lowering.checks import check

        check(job.architecture, strategy)
    return replace(job, strategy=dict(job.strategy))


def write_job(job: Job, directory: Path) -> list[Path]:
    """Write the files of a job's directory, and remove those that an earlier import left and this one does not make."""
    texts = {LEDGER: json.dumps(job.to_json(), indent=1) + "\n"}
    if job.architecture is not None:
        texts[MODEL] = format_model(job.architecture)
    if job.strategy is not None:
        texts[STRATEGY] = format_yaml(job.strategy)
    if job.system is not None:
        texts[SYSTEM] = format_system(job.system)
    if job.assumptions:
        texts[ASSUMPTIONS] = format_yaml(job.assumptions)
    if job.given:
        texts[GIVEN] = json.dumps({"kind": job.kind, **job.given}) + "\n"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in (*JOB, LEDGER, GIVEN):
            if name not in texts:
                (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: the directory cannot be made: {error.strerror}") from None
    for name, text in texts.items():
        write_text(directory / name, text)
    if job.system is not None:
        load_system(str(directory / SYSTEM))
    return [directory / name for name in texts]


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "+".join(map(str, value))
    return cut(str(value), 1000)
