"""What the header of a job asks of Slurm, and the variables that the job sees for it (sbatch(1), output environment variables)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from symsim.importers.shell.scope import Scope

_ASKED = re.compile(
    r"^#SBATCH\s+(?:--(nodes|ntasks|ntasks-per-node|gpus-per-node|gres|cpus-per-task)[=\s]\s*|-([Nnc])\s*)(?:\w+:)*([0-9]{1,7})(?![-,.\w])",
    re.MULTILINE,
)
_SHORT = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task"}


def header(text: str) -> dict[str, int]:
    """The numbers that `#SBATCH --NAME=..` lines ask for, by name."""
    return {match[1] or _SHORT[match[2]]: int(match[3]) for match in _ASKED.finditer(text)}


def scheduled(text: str, submitted: Sequence[str] = ()) -> dict[str, str]:
    """The variables that Slurm sets in the job, as far as its header tells them, and the options of sbatch, which stand above it."""
    asked = header(text) | header(re.sub(r" (?=-)", "\n#SBATCH ", " " + " ".join(submitted)))
    nodes, each = asked.get("nodes"), asked.get("ntasks-per-node")
    tasks = asked.get("ntasks", nodes * each if nodes is not None and each is not None else None)
    numbers = {
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks),
        "SLURM_NTASKS_PER_NODE": each,
        "SLURM_GPUS_ON_NODE": asked.get("gpus-per-node", asked.get("gres")),
        "SLURM_GPUS_PER_NODE": asked.get("gpus-per-node"),
        "SLURM_CPUS_PER_TASK": asked.get("cpus-per-task"),
    }
    return {name: str(number) for name, number in numbers.items() if number is not None}


def begun(scope: Scope, text: str, where: str, submitted: Sequence[str] = ()) -> str:
    """The text of a script, once what Slurm sets for it is set."""
    for name, value in scheduled(text, submitted).items():
        if scope.get(name) is None:
            scope.set(name, scope.marked(value, where))
            scope.exported.add(name)
    return text
