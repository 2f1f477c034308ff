"""The command list: the names of one kind, and what each means. Nothing heavy is imported until a list needs it."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from symsim.api import shipped_lists
from symsim.api.completing import kinds
from symsim.api.shipped_lists import WIDTH, Row, wrapped
from symsim.api.terminal import print_out, say
from symsim.errors import InputError, nearest


@dataclass(frozen=True)
class Listing:
    """rows: what `--json` prints; text: the same for people, with the names of columns in front where a terminal shows it; none: why a list
    may be empty."""

    rows: Callable[[], list[Row]]
    text: Callable[[list[Row], bool], str]
    none: Callable[[], str] = lambda: "nothing is listed"


def columns(rows: Sequence[Sequence[str]], *, folded: bool = False) -> str:
    """Rows in aligned columns; a cell wider than its column's limit pushes the rest of its own row.

    folded: the last column goes on below itself instead of beyond 80 columns, or on lines of its own where it has little room there.
    """
    if not rows:
        return ""
    widths = [min(max(len(row[column]) for row in rows), 40) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "".join(f"{_folded(line, row[-1]) if folded else line}\n" for line, row in zip(lines, rows))


def _folded(line: str, last: str) -> str:
    if len(line) <= WIDTH:
        return line
    before = line.removesuffix(last)
    if len(before) <= WIDTH // 2:
        return textwrap.fill(last, WIDTH, initial_indent=before, subsequent_indent=" " * len(before), break_on_hyphens=False)
    return f"{before.rstrip()}\n{wrapped(last).rstrip()}"


def _table(rows: list[Row], header: bool) -> str:
    """The values of rows whose values are texts."""
    return columns([*([tuple(rows[0])] if header else []), *(tuple(row.values()) for row in rows)], folded=header)


def _each(text: Callable[[str], str]) -> Callable[[list[Row], bool], str]:
    """Of every row the text of its name."""
    return lambda rows, header: "".join(text(row["name"]) for row in rows)


def _options() -> list[Row]:
    from symsim.inputs.strategy import Strategy

    world = {"name": "world", "default": None, "values": "integer", "meaning": "number of ranks, from which dp follows"}
    return [*map(_option, Strategy.model_fields), world]


def _option(name: str) -> Row:
    from symsim.inputs.strategy import Strategy

    field = Strategy.model_fields[name]
    return {"name": name, "default": field.default, "values": values_of(field.annotation), "meaning": field.description or ""}


def option_text(name: str) -> str:
    """An option of a strategy: its default, the values that it takes, and its meaning."""
    return _option_text(_option(name))


def _option_text(row: Row) -> str:
    default = row["default"]
    shown = "" if default is None else "+".join(default) if isinstance(default, tuple) else str(default)
    head = f"{row['name']}={shown.lower() if isinstance(default, bool) else shown}  ({row['values']})"
    return f"{textwrap.fill(head, WIDTH, subsequent_indent='      ', break_on_hyphens=False)}\n{wrapped(row['meaning'])}"


def values_of(annotation: Any) -> str:
    """The values that an option takes, as a reader of a table is told."""
    choices = [a for a in get_args(annotation) if a is not type(None)]
    if get_origin(annotation) is Literal:
        return ", ".join(str(c) for c in choices)
    if get_origin(annotation) is tuple:
        return f"list of {values_of(choices[0])}"
    if choices and annotation is not int and not hasattr(annotation, "__metadata__"):
        return " or ".join(values_of(c) for c in choices)
    plain = choices[0] if hasattr(annotation, "__metadata__") else annotation
    return {"int": "integer", "bool": "true, false", "float": "number", "str": "text"}.get(getattr(plain, "__name__", ""), str(plain))


def _model_types() -> list[Row]:
    from symsim.inputs.hf.reader import supported

    return [{"name": name} for name in supported()]


def _symbols() -> list[Row]:
    from symsim.algebra.vocabulary import SYMBOLS

    return [{"name": name, "latex": entry.latex, "unit": entry.unit, "meaning": entry.meaning} for name, entry in SYMBOLS.items()]


def _assumptions() -> list[Row]:
    from symsim.inputs.assumptions import ASSUMPTIONS
    from symsim.inputs.effects import stored

    moved = stored().effects
    return [
        {
            "name": name,
            "default": a.default,
            "choices": list(a.choices),
            "meaning": a.meaning,
            "source": a.source,
            "moves": {effect.choice: dict(effect.moves) for effect in moved if effect.assumption == name},
        }
        for name, a in ASSUMPTIONS.items()
    ]


def assumption_text(name: str) -> str:
    """Its default and choices, meaning and source, and what each alternative moves in three known models."""
    from symsim.inputs.assumptions import ASSUMPTIONS
    from symsim.inputs.effects import said, stored

    assumption = ASSUMPTIONS[name]
    moved = "".join(wrapped(said(effect)) for effect in stored().effects if effect.assumption == name)
    told = f"{wrapped(assumption.meaning)}{wrapped(f'source: {assumption.source}')}{moved}"
    return f"{name}={assumption.default}  ({' | '.join(assumption.choices)})\n{told}"


def _quantities() -> list[Row]:
    from symsim.evaluation.quantities import QUANTITIES

    return [{"name": name, "unit": known.unit, "meaning": known.meaning} for name, known in QUANTITIES.items()]


def _definitions() -> list[Row]:
    """Of every kind of definition one: its symbol, what its key has, and its meaning."""
    from symsim.api.python import derive

    result = derive("mixtral-8x7b", "tp=2,sp=true,pp=2,ep=2,etp=1,dp=2,num_microbatches=4,recompute=full", system="h100-sxm")
    kinds: dict[tuple[object, ...], tuple[str, str, str]] = {}
    for definition in result.definitions():
        key = definition.key
        has = [name for name, value in key._asdict().items() if value and name not in ("quantity", "scope", "again", "part", "tier")]
        said = f"{key.quantity}, {key.scope}{': ' if has else ''}{', '.join(has)}"
        kinds.setdefault((said, "" if has else key.part), (definition.symbol, said, definition.meaning))
    return [{"name": name, "kind": said, "meaning": meaning} for name, said, meaning in kinds.values()]


def _sources() -> list[Row]:
    """Every text that something cites, once, and what cites it."""
    cited: dict[str, dict[str, list[str]]] = {}
    for text, kind, name in _citations():
        cited.setdefault(" ".join(text.split()), {}).setdefault(kind, []).append(name)
    return [{"name": text, "cited_by": {kind: list(dict.fromkeys(names)) for kind, names in by.items()}} for text, by in cited.items()]


def _sources_text(rows: list[Row], header: bool) -> str:
    said = ((row["name"], "; ".join(f"{kind} {', '.join(names)}" for kind, names in row["cited_by"].items())) for row in rows)
    return "".join(f"{textwrap.fill(text, 80, subsequent_indent='  ', break_on_hyphens=False)}\n{wrapped(f'for {by}')}" for text, by in said)


# strategies under which the formulas that cite something occur
_CITING = (
    ("mixtral-8x7b", "ep=2,moe_expert_capacity_factor=1.25,moe_pad_expert_input_to_capacity=true"),
    ("llama3-8b", "dp=8,zero=3"),
    ("llama3-8b", "cpu_offloading_num_layers=4"),
)


def _citations() -> Iterator[tuple[str, str, str]]:
    """(the source, the kind of what cites it, its name) of formulas, schedules, assumptions, systems, models and published totals."""
    from symsim.api.result import derive
    from symsim.inputs.assumptions import ASSUMPTIONS
    from symsim.inputs.models import load_model
    from symsim.inputs.reading import read_yaml
    from symsim.inputs.shipped import derivations_directory, list_models, list_systems, models_directory
    from symsim.inputs.strategies import load_strategy
    from symsim.inputs.systems import load_system
    from symsim.pipeline.schedules import SCHEDULES

    for model, strategy in _CITING:
        book = derive(load_model(model).architecture, load_strategy(strategy)).derivation.definitions
        yield from ((d.source, "formula", name) for name, d in book.items() if d.source)
    yield from ((s.source, "schedule", name) for name, s in SCHEDULES.items())
    yield from ((a.source, "assumption", name) for name, a in ASSUMPTIONS.items())
    for name in list_systems():
        yield from ((text, "system", f"{name} ({key})") for key, text in load_system(name).sources.items())
    for name in list_models():
        source = read_yaml(models_directory() / f"{name}.yaml").data.get("source")
        if source:
            yield source, "model", name
    for path in sorted(derivations_directory().glob("*.yaml")):
        yield from ((row["source"], "published total", f"{row['model']} ({row['what']})") for row in read_yaml(path).data.get("totals", ()))


LISTS: dict[str, Listing] = {
    "models": Listing(shipped_lists.models, shipped_lists.models_text),
    "downloads": Listing(shipped_lists.downloads, shipped_lists.models_text, shipped_lists.no_downloads),
    "systems": Listing(shipped_lists.systems, shipped_lists.systems_text),
    "strategies": Listing(shipped_lists.strategies, shipped_lists.strategies_text),
    "options": Listing(_options, lambda rows, header: "".join(map(_option_text, rows))),
    "symbols": Listing(_symbols, _table),
    "assumptions": Listing(_assumptions, _each(assumption_text)),
    "quantities": Listing(_quantities, _table),
    "definitions": Listing(_definitions, _table),
    "sources": Listing(_sources, _sources_text),
    "model_types": Listing(_model_types, _table),
}


def list_all(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"What to list: {', '.join(LISTS)}.", autocompletion=kinds(LISTS))],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List what symsim knows."""
    if what not in LISTS:
        raise InputError(f"there is no list of '{what}': {nearest(what, list(LISTS))}")
    rows = LISTS[what].rows()
    header = sys.stdout is not None and sys.stdout.isatty()
    if not rows:
        say(LISTS[what].none())
    if rows or as_json:
        print_out(json.dumps(rows, indent=2) + "\n" if as_json else LISTS[what].text(rows, header))
