"""From the name of a system and its files to a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module

from symsim.errors import InputError, cut, nearest
from symsim.importers.job import Job, checked
from symsim.importers.keys import Entry
from symsim.importers.registry import KINDS
from symsim.importers.shell.calls import called

# of the command
OPTIONS = ("--output", "--lenient", "--json", "--of", "--version", "--var", "--faithful")


@dataclass(frozen=True)
class Options:
    """What a user says besides the files.

    lenient: keys that are unknown or cannot be answered become rows of the ledger. version: of the system whose defaults hold, where
    there are several. variables: values of a script's variables. model: a model by name or file, where the source has none or another
    is meant. faithful: known defects of the system stay in.
    """

    lenient: bool = False
    version: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    faithful: bool = False


def load_job(
    kind: str,
    *inputs: str,
    lenient: bool = False,
    version: str | None = None,
    variables: Mapping[str, str] | None = None,
    model: str | None = None,
    faithful: bool = False,
) -> Job:
    """The job that files of another system describe, or arguments as on its command line (`symsim import` has the same options).

    lenient: keys that are unknown or cannot be answered become rows of the ledger. version: of the system whose defaults hold, `seed` or
    `head`. variables: values of a script's variables. model: by name or file, where the files name none. faithful: known defects of the
    system stay in. InputError says what does not fit, and where.

    >>> job = load_job("megatron", "--tensor-model-parallel-size", "4", "--sequence-parallel", "--bf16", model="llama3-8b")
    >>> job.strategy["tp"], job.strategy["sp"], [row.to for row in job.rows if row.key == "--bf16"]
    (4, True, ['precision'])
    """
    return read_job(kind, inputs, Options(lenient, version, dict(variables or {}), model, faithful))


def read_job(kind: str, inputs: Sequence[str], options: Options = Options()) -> Job:
    """The job that files of another system describe, found to go together. InputError says what does not fit, and where."""
    if kind not in KINDS:
        raise InputError(f"symsim does not import '{kind}': {nearest(kind, list(KINDS))}")
    if not inputs:
        raise InputError(f"'symsim import {kind}' reads {KINDS[kind].inputs}, and nothing is given")
    _no_option(kind, inputs)
    read = import_module(f"symsim.importers.{KINDS[kind].module}").read
    files, variables = called(inputs, options.variables)
    return checked(_with_joint_products(read(files, replace(options, variables=variables))))


def _with_joint_products(job: Job) -> Job:
    """Adapters of single linear maps, of a job whose kernels multiply several as one."""
    if job.strategy is None or job.architecture is None or "tuner_type" not in job.strategy or job.strategy.get("fusion", "te") != "te":
        return job
    from symsim.importers.targets import as_one_product  # most jobs have no adapters

    changed = as_one_product(job.strategy, job.architecture)
    if not changed:
        return job
    why = "queries, keys and values, or gate and input, are one product in te's kernels, which has one adapter"
    row = Entry("joint products", "(default)", "derived", ", ".join(changed), why)
    kept = {name: value for name, value in {**job.strategy, **changed}.items() if value != [] or name not in changed}
    return replace(job, strategy=kept, rows=(*job.rows, row))


def _no_option(kind: str, inputs: Sequence[str]) -> None:
    """InputError for what looks like an option of symsim's where nothing but files is read."""
    word = next((one for one in inputs if one.startswith("--") and len(one) > 2), None) if KINDS[kind].files else None
    if word is not None:
        name = word.partition("=")[0]
        raise InputError(f"'symsim import {kind}' has no option {cut(name)}: {nearest(name, OPTIONS)}; it reads {KINDS[kind].inputs}")
