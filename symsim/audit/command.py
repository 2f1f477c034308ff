"""`symsim audit`: what is asked for, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from symsim.audit.running import audit, chosen
from symsim.audit.table import audit_table


def run(sources: Sequence[str], as_json: bool, show: Callable[[str], None], say: Callable[[str], None]) -> int:
    """The exit status: 1 where a verdict is not the one approved, 2 where a claim does not read."""
    found = audit(chosen(sources))
    show(json.dumps(found.to_json(), indent=2) + "\n" if as_json else audit_table(found))
    for error in found.errors:
        say(error)
    return 2 if found.errors else 0 if found.passes else 1
