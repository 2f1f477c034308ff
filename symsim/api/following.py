"""What `symsim eval` prints: the evaluation, and with --next the changes that would gain most."""

from __future__ import annotations

import json
from collections.abc import Sequence

from symsim.api.result import Result

HINT = "--next: the changes of one option or size that shorten this step most."
Given = tuple[str, str | None, str | None, Sequence[str]]


def evaluation_text(result: Result, further: Given | None, *, as_json: bool, hint: bool) -> str:
    """further: model, strategy, system and settings as they were given, where the next changes are asked for; hint: else say that they may be."""
    told, end = result.to_json() if as_json else {}, f"\n{HINT}\n" if hint and result.system is not None else ""
    if further is not None:
        from symsim.planning.knobs import next_knobs
        from symsim.planning.knobs_text import next_text
        from symsim.program.base import read_base

        found = next_knobs(read_base(*further))
        told, end = {**told, "next": found.to_json()}, "\n" + next_text(found)
    if as_json:
        return json.dumps(told, indent=2, allow_nan=False) + "\n"
    return result.table().rstrip("\n") + "\n" + end
