"""YAML with keys that are given twice, of which the last holds where a system reads it with PyYAML."""

from __future__ import annotations

from symsim.errors import InputError, cut
from symsim.importers.keys import Entry, shown
from symsim.inputs.reading import Document, Repeated, dotted, read_yaml


def read_repeated(file: str, lenient: bool, loader: str) -> tuple[Document, list[Entry]]:
    """A file, and a row for every value that another one replaces. loader: whose, in a sentence. InputError for them unless lenient."""
    repeated: list[Repeated] = []
    document = read_yaml(file, repeated)
    rows = []
    for one in repeated:
        if not lenient:
            said = f"'{cut(dotted(one.path))}' is given twice (first on line {one.first})"
            raise InputError(f"{file}:{one.line}: {said}; --lenient takes the last, as {loader} does")
        why = f"given again on line {one.line}, and the last one holds, as {loader} has it"
        rows.append(Entry(dotted(one.path).removeprefix("MODEL_ARGS.").lstrip("-"), shown(one.value), "no_cost_effect", why=why))
    return document, rows
