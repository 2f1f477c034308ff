"""The formulas that a result has, by chapter: what `symsim formula MODEL` lists."""

from __future__ import annotations

from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import Definition
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.quantities import QUANTITIES
from symsim.report.columns import WIDTH, wrapped

_CHAPTERS = {
    "sizes": "Sizes that follow from others",
    "model": "The model",
    "stage": "Stage i of the pipeline, one rank of it",
    "pipeline": "The pipeline",
    "network": "The network: what a message's seconds are made of",
    "step": "The step",
}
_NAME = 34


def chapters(result: Evaluation) -> str:
    """Names, units and meanings in 80 columns: quantities first, then definitions of the model, of every block, of stages and of the step."""
    book = result.derivation.definitions
    named = {n: q.symbol for n, q in QUANTITIES.items() if q.symbol in book}
    made = ["Quantities", *(_line(n, book[symbol]) for n, symbol in named.items())]
    by_section: dict[str, list[Definition]] = {}
    for definition in book.values():
        by_section.setdefault(definition.key.section, []).append(definition)
    order = ["model", *(s for s in by_section if s not in _CHAPTERS), "stage", "pipeline", "network", "step", "sizes"]
    for section in (s for s in order if s in by_section):
        title = _CHAPTERS.get(section) or f"One layer or block: {in_words(section)}"
        made += ["", title, *(_line(d.symbol, d) for d in by_section[section])]
    made += ["", wrapped("'symsim formula MODEL NAME' prints one; 'symsim list definitions' says of which further kinds there are.")]
    return "\n".join(made) + "\n"


def _line(name: str, definition: Definition) -> str:
    text = f"  {name.ljust(_NAME)}  {definition.meaning}" + ("" if str(definition.unit) == "1" else f" [{definition.unit}]")
    return text if len(text) <= WIDTH else wrapped(text.strip(), indent="  ", hanging=_NAME + 4)
