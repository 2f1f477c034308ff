"""The part of docs/accuracy.md on what fits: symsim's verdict of every measured run, those that ran out of memory among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from measured_row import Case

SAID = {"yes": "fits", "tight": "fits, tight", "no": "does not fit"}


def fits_section(ran: Mapping[str, Case], ran_out: Mapping[str, Case], verdicts: Mapping[str, str]) -> list[str]:
    """A table of verdicts (by a case's id: yes, tight or no) by source, against whether the runs ran; and the runs that are wrong or tight."""
    lines = [
        "## What fits",
        "",
        "What symsim says of every run, by whether it ran. Tight is a peak that leaves less than CUDA, NCCL and the allocator may need",
        "(`docs/memory.md`).",
        "",
        f"| rows | runs | {' | '.join(SAID.values())} |",
        "|---|---|---|---|---|",
    ]
    for title, cases in (("ran", ran), ("ran out of memory", ran_out)):
        for source in dict.fromkeys(case.source for case in cases.values()):
            lines.append(_row(f"{source}: {title}", [verdicts[n] for n, case in cases.items() if case.source == source and n in verdicts]))
        lines.append(_row(f"all that {title}", [verdicts[n] for n in cases if n in verdicts]))
    apart = [(n, "ran", verdicts[n]) for n in ran if verdicts.get(n, "yes") != "yes"]
    apart += [(n, "ran out of memory", verdicts[n]) for n in ran_out if verdicts.get(n) != "no"]
    lines += ["", *(f"- `{name}` {what}; symsim: {SAID[verdict]}." for name, what, verdict in apart)]
    return [*lines, *([""] if apart else [])]


def _row(title: str, verdicts: list[str]) -> str:
    found = Counter(verdicts)
    return f"| {title} | {len(verdicts)} | {' | '.join(str(found[v]) for v in SAID)} |"
