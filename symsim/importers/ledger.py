"""The ledger of a job as a table for a terminal."""

from __future__ import annotations

import shutil
import textwrap

from symsim.importers.job import Job

_KEY, _VALUE, _TO = 44, 16, 28
_NARROWEST = 20


def ledger_text(job: Job) -> str:
    """Every key with its value, its fate and what it is here, as wide as the terminal; the counts of fates below."""
    width = max(shutil.get_terminal_size((160, 24)).columns, 60)
    key = min(max((len(r.key) for r in job.rows), default=0), _KEY, width // 3)
    value = min(max((len(r.value) for r in job.rows), default=0), _VALUE, width // 6)
    lines = []
    for row in job.rows:
        told = "; ".join(part for part in (f"-> {row.to}" if row.to else "", row.why) if part)
        head = f"{row.key:{key}}  {_cut(row.value, value):{value}}  {row.fate.replace('_', ' '):14}  "
        room = max(width - len(head), _NARROWEST)
        rest = textwrap.wrap(told, room) or [""]
        lines.append((head + rest[0]).rstrip())
        lines += [" " * min(len(head), width - room) + more for more in rest[1:]]
    return "\n".join([*lines, "", f"{len(job.rows)} keys: {job.counted()}"]) + "\n"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2] + ".."
