"""The ledger of a job as a table for a terminal."""

from __future__ import annotations

import shutil
import textwrap

from symsim.importers.job import Job
from symsim.importers.keys import Entry

_WIDEST, _NARROWEST = 160, 60
_LONGEST_VALUE = 24


def ledger_text(job: Job) -> str:
    """Every key with its value, its fate and what it is here, as wide as the terminal; the counts of fates below."""
    width = min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
    heads = [f"{row.key} = {_cut(row.value)}" if row.value else row.key for row in job.rows]
    fates = [_said(row) for row in job.rows]
    # a dotted name of the right column is never broken
    longest = max((len(word) for said in fates for word in said.split()), default=0)
    left = max(min(max(map(len, heads), default=0), width // 2, width - 2 - longest), width // 4)
    lines = []
    for head, said in zip(heads, fates):
        rest = textwrap.wrap(said, width - left - 2, break_long_words=False, break_on_hyphens=False) or [""]
        if len(head) > left:
            lines.append(head)
            head = ""
        lines += [f"{start:{left}}  {text}".rstrip() for start, text in zip([head, *[""] * len(rest)], rest)]
    return "\n".join([*lines, "", f"{len(job.rows)} keys: {job.counted()}"]) + "\n"


def _said(row: Entry) -> str:
    """Its fate, where it went and why."""
    told = "; ".join(part for part in (f"-> {row.to}" if row.to else "", row.why) if part)
    return row.fate.replace("_", " ") + (": " if told and not row.to else " ") + told


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 2] + ".."
