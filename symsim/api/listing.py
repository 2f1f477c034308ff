"""What `symsim list` prints: the names of one kind, and what each means. Nothing heavy is imported until a list needs it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns; a cell wider than its column's limit pushes the rest of its own row."""
    if not rows:
        return ""
    widths = [min(max(len(row[column]) for row in rows), 40) for column in range(len(rows[0]))]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n" for row in rows)


def wrapped(text: str) -> str:
    return textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False) + "\n"


def _models() -> str:
    from symsim.inputs.shipped import list_models

    return _lines(list_models())


def _systems() -> str:
    from symsim.inputs.shipped import list_systems

    return _lines(list_systems())


def _strategies() -> str:
    from symsim.inputs.shipped import list_strategies

    return _lines(list_strategies())


def _lines(names: Sequence[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _options() -> str:
    from symsim.inputs.strategy import Strategy

    return "".join(map(option_text, Strategy.model_fields)) + f"world=  (integer)\n{wrapped('number of ranks, from which dp follows')}"


def option_text(name: str) -> str:
    """An option of a strategy: its default, the values that it takes, and its meaning."""
    from symsim.inputs.strategy import Strategy

    field = Strategy.model_fields[name]
    default = field.default
    shown = "" if default is None else "+".join(default) if isinstance(default, tuple) else str(default)
    return f"{name}={shown.lower() if isinstance(default, bool) else shown}  ({values_of(field.annotation)})\n{wrapped(field.description or '')}"


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


def _model_types() -> str:
    from symsim.inputs.hf.reader import supported

    return _lines(supported())


def _symbols() -> str:
    from symsim.algebra.vocabulary import SYMBOLS

    return columns([(name, entry.latex, entry.unit, entry.meaning) for name, entry in SYMBOLS.items()])


def _assumptions() -> str:
    from symsim.inputs.assumptions import ASSUMPTIONS

    return "".join(map(assumption_text, ASSUMPTIONS))


def assumption_text(name: str) -> str:
    """Its default and choices, meaning and source, and what each alternative moves in three known models."""
    from symsim.inputs.assumptions import ASSUMPTIONS
    from symsim.inputs.effects import said, stored

    assumption = ASSUMPTIONS[name]
    moved = "".join(wrapped(said(effect)) for effect in stored().effects if effect.assumption == name)
    told = f"{wrapped(assumption.meaning)}{wrapped(f'source: {assumption.source}')}{moved}"
    return f"{name}={assumption.default}  ({' | '.join(assumption.choices)})\n{told}"


def _quantities() -> str:
    from symsim.evaluation.quantities import QUANTITIES

    return columns([(name, known.unit, known.meaning) for name, known in QUANTITIES.items()])


def _definitions() -> str:
    """Of every kind of definition one: its symbol, what its key has, and its meaning."""
    from symsim.api.python import derive

    result = derive("mixtral-8x7b", "tp=2,sp=true,pp=2,ep=2,etp=1,dp=2,num_microbatches=4,recompute=full", system="h100-sxm")
    kinds: dict[tuple[object, ...], tuple[str, str, str]] = {}
    for definition in result.definitions():
        key = definition.key
        has = [name for name, value in key._asdict().items() if value and name not in ("quantity", "scope", "again", "part", "tier")]
        said = f"{key.quantity}, {key.scope}{': ' if has else ''}{', '.join(has)}"
        kinds.setdefault((said, "" if has else key.part), (definition.symbol, said, definition.meaning))
    return columns(list(kinds.values()))


def _sources() -> str:
    """Every text that something cites, once, and what cites it."""
    cited: dict[str, dict[str, list[str]]] = {}
    for text, kind, name in _citations():
        cited.setdefault(" ".join(text.split()), {}).setdefault(kind, []).append(name)
    return "".join(
        textwrap.fill(text, 80, subsequent_indent="  ", break_on_hyphens=False)
        + "\n"
        + wrapped("for " + "; ".join(f"{kind} {', '.join(dict.fromkeys(names))}" for kind, names in by.items()))
        for text, by in cited.items()
    )


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


LISTS: dict[str, Callable[[], str]] = {
    "models": _models,
    "systems": _systems,
    "strategies": _strategies,
    "options": _options,
    "symbols": _symbols,
    "assumptions": _assumptions,
    "quantities": _quantities,
    "definitions": _definitions,
    "sources": _sources,
    "model_types": _model_types,
}
