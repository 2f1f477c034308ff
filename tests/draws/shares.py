"""What share of the keys of real files is mapped: `python tests/draws/shares.py KIND FILE [FILE,FILE ..] [--var NAME=VALUE] [--of MODEL] [--keys]`.

A key counts where it changes a training step: rows of no cost effect, of the run (checkpoints, evaluation, data, its length) and of other
workloads (roll-outs, other models, images) do not. `FILE,FILE` are read together. A file that is not read is named, with the sentence.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from symsim.errors import InputError  # noqa: E402
from symsim.importers.job import Job  # noqa: E402
from symsim.importers.keys import Entry  # noqa: E402
from symsim.importers.reading import Options, read_job  # noqa: E402

# what the sentences of rows that are of no step have in common
ELSEWHERE = (
    "belong to the run",
    "belongs to the run",
    "the length of the run",
    "bounds a step from below",
    "another workload",
    "other workloads",
    "a reference or reward model's forward",
    "between the steps",
    "outside the steps",
    "between steps",
)
MODEL = "no model that comes with symsim"


def counted(row: Entry) -> bool:
    """Whether the row is of a key that changes a step."""
    if row.value == "(default)" or row.fate == "no_cost_effect" or MODEL in row.why:
        return False
    return row.fate in ("mapped", "derived") or "adapters" in row.why or not any(part in row.why for part in ELSEWHERE)


def tally(jobs: list[Job]) -> tuple[int, int, Counter[str]]:
    """(mapped keys, keys, the others by name)."""
    rows = [row for job in jobs for row in job.rows if counted(row)]
    mapped = sum(row.fate in ("mapped", "derived") for row in rows)
    others = Counter(row.key for row in rows if row.fate not in ("mapped", "derived"))
    return mapped, len(rows), others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--var", action="append", default=[])
    parser.add_argument("--of")
    parser.add_argument("--keys", action="store_true", help="name the keys that are not mapped")
    asked = parser.parse_args()
    variables = dict(one.split("=", 1) for one in asked.var)
    jobs: list[Job] = []
    for files in asked.files:
        try:
            jobs.append(read_job(asked.kind, files.split(","), Options(variables=variables, model=asked.of)))
        except InputError as error:
            print(f"not read: {str(error)[:240]}")
    mapped, keys, others = tally(jobs)
    print(f"{asked.kind}: {len(jobs)} of {len(asked.files)} files, {mapped} of {keys} keys of a step are mapped, {mapped / max(keys, 1):.1%}")
    if asked.keys:
        for key, times in others.most_common(60):
            print(f"{times:5} {key}")


if __name__ == "__main__":
    main()
