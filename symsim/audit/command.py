"""`symsim audit`: what is asked for, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from symsim.audit.accepting import accept
from symsim.audit.printed import Tables, audit_tables, table_ids, tables_text
from symsim.audit.running import asked, audit, file_of
from symsim.audit.subjects import Derivations
from symsim.audit.table import audit_table
from symsim.audit.verdicts import judge
from symsim.grid.processes import forked
from symsim.inputs.reading import write_file
from symsim.report import rendered, suffix_of


def run_accept(ids: Sequence[str], files: Sequence[str], say: Callable[[str], None]) -> int:
    """Store what is found of some claims; all of them are judged before the first is stored."""
    found = []
    for name in ids:
        claims, number = file_of(name, files)
        found.append((judge(claims[number], Derivations()), number))
    for outcome, number in found:
        say(accept(outcome, number))
    return 0


def run(sources: Sequence[str], as_json: bool, output: Path | None, show: Callable[[str], None], say: Callable[[str], None]) -> int:
    """The exit status: 1 where a verdict is not the one approved, 2 where a claim does not read, and then no report is written."""
    suffix = suffix_of(output) if output is not None else ""
    others = [name for name in sources if name not in table_ids()]
    if sources:
        tables, found = _tables(sources), audit(*asked(others)) if others else audit([])
    else:
        with forked(None, 1) as beside:
            promised = beside.submit(_tables, sources)
            found = audit(*asked(()))
            tables = promised.result()
    errors = (*found.errors, *tables.errors)
    as_object = json.dumps({**found.to_json(), "tables": [t.to_json() for t in tables.found]}, indent=2) + "\n"
    if output is None:
        show(as_object if as_json else (audit_table(found) if others or not sources else "") + tables_text(tables))
    elif not errors:
        from symsim.audit.report import audit_report

        write_file(output, as_object.encode() if suffix == ".json" else rendered(audit_report(found, tables.found), suffix))
        say(f"wrote {output}")
    for error in errors:
        say(error)
    return 2 if errors else 0 if found.passes and tables.passes else 1


def _tables(names: Sequence[str]) -> Tables:
    return audit_tables(names, Derivations())
