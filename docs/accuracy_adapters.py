"""The section of docs/accuracy.md on published runs of adapters: every row that trains some of its parameters, against two bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from measured_row import Case

TIME, MEMORY = 0.10, 0.05

# what is known of rows beyond a bar; sizes in GiB
KNOWN = {
    "torchtune/llama3.1-8b LoRA on 4090": "weights, checkpoints, and two projections of a layer that runs again with one gradient, the least that "
    "the printed settings can hold, are 16.3, of which 16.2 were printed; with checkpoints on the host, an option of the recipe that its "
    "file leaves off, it would be 16.05",
    "torchtune/llama3.1-70b LoRA": "weights 16.4, the root's table and head gathered 3.9, checkpoints 5.0 and two layers gathered 3.2 are 28.5, of "
    "which 27.6 were printed; with checkpoints on the host it would be 27.5, as parameters of the root and of the first layer are gathered; the "
    "recipe had that option nine days after the table",
    "axolotl/olmo3": "with the loss of transformers in place of the file's plugin it would be 11.0; the number came a month after the file, in the "
    "commit that first refuses two patches of the loss at once (372f664c6)",
}


def adapters_section(cases: Iterable[Case], errors: Mapping[tuple[str, str], float]) -> list[str]:
    """errors: (predicted - measured) / measured by row and quantity, "step" or "memory"; a dagger marks what lies beyond its bar."""
    rows = [case for case in cases if case.strategy.tuner_type == "lora"]
    found = {what: [errors[case.id, what] for case in rows if (case.id, what) in errors] for what in ("step", "memory")}
    within = {what: sum(abs(error) <= bar for error in found[what]) for what, bar in (("step", TIME), ("memory", MEMORY))}
    lines = [
        "## Adapters",
        "",
        f"Published runs of LoRA and QLoRA. Steps within {TIME:.0%}: {within['step']} of {len(found['step'])}; peaks within {MEMORY:.0%}:",
        f"{within['memory']} of {len(found['memory'])}. A dagger marks the others.",
        "",
        "| row | step time | peak memory |",
        "|---|---|---|",
    ]
    beyond = []
    for case in rows:
        if any(abs(errors.get((case.id, what), 0)) > bar for what, bar in (("step", TIME), ("memory", MEMORY))) and case.id in KNOWN:
            beyond.append(f"- `{case.id}`: {KNOWN[case.id]}.")
        cells = (_cell(errors.get((case.id, what)), bar) for what, bar in (("step", TIME), ("memory", MEMORY)))
        lines.append(f"| `{case.id}` | {' | '.join(cells)} |")
    return [*lines, "", *beyond, *([""] if beyond else [])]


def _cell(error: float | None, bar: float) -> str:
    return "" if error is None else f"{error:+.1%}{' †' if abs(error) > bar else ''}"
