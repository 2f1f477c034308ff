"""A formula with its reductions over stages written out: plain sums and maxima, and the cases of what a stage holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from symsim.algebra.expr import ZERO, Expr, Number, maximum, of_largest, symbol
from symsim.algebra.key import Key
from symsim.algebra.quantity import NONE, Definition
from symsim.algebra.reductions import OverLine, Stages, named, reduced
from symsim.algebra.typeset import entry, latex


class Substitutions:
    """Values that were put into expressions: what derivations of one model have alike is written once."""

    def __init__(self) -> None:
        # of a body its symbols, and by their values what they made of it
        self._made: dict[Expr, tuple[tuple[str, ...], dict[Hashable, Expr]]] = {}

    def of(self, body: Expr, values: Callable[[str], Expr | Number | None]) -> Expr:
        """The body with these in place of its symbols; one without a value stays."""
        own = self._made.get(body)
        if own is None:
            own = self._made[body] = tuple(sorted(body.symbols())), {}
        names, before = own
        found = [*map(values, names)]
        if all(value is None for value in found):
            return body
        # 2.0 is 2, and not as exact
        key = (*found, *map(type, found))
        made = before.get(key)
        if made is None:
            made = before[key] = body.substitute({name: value for name, value in zip(names, found) if value is not None})
        return made


class WrittenOut:
    """A stage's definitions for the stages that count: each once for every class, and what depends on the place for every place, as
    NAME_at_STAGE. What comes out a number is put in.

    made: the definitions so far, each after what it uses. placed: names of a stage that depend on its place.
    """

    def __init__(self, definitions: Iterable[Definition], line: Stages, substitutions: Substitutions | None = None):
        self.line = line
        self._put = (substitutions or Substitutions()).of
        self.of_stage = {d.symbol: d for d in definitions if d.key.scope == "stage"}
        self.made: dict[str, Definition] = {}
        placed = {"i"}
        for d in self.of_stage.values():
            if d.expr.symbols() & placed:
                placed.add(d.symbol)
        self.placed = frozenset(placed)
        self._known: dict[tuple[str, int], Expr] = {}
        self._held: dict[int, Mapping[str, Expr]] = {}

    def at(self, name: str, stage: int) -> Expr:
        """What a name stands for at a stage: a number, the name of the stage's definition, or the name itself."""
        stage = stage if name in self.placed else self.line.stands_for(stage)
        if (name, stage) not in self._known:
            self._known[name, stage] = self._instance(name, stage)
        return self._known[name, stage]

    def _instance(self, name: str, stage: int) -> Expr:
        if name in self.of_stage:
            own = self.of_stage[name]
            return self._define(own, self._put(own.expr, lambda name: self.at(name, stage)), stage)
        if stage not in self._held:
            self._held[stage] = self.line.own(stage)
        held = self._held[stage]
        if name == "i" or name not in held:
            return held.get(name, self.line.also.get(name, symbol(name)))
        said = entry(name)
        return self._define(Definition(Key(name, "pipeline"), held[name], NONE, said.meaning, said.latex), held[name], stage)

    def _define(self, own: Definition, body: Expr, stage: int) -> Expr:
        if body.is_constant:
            return body
        label = self.line.label(stage)
        meaning = own.meaning.replace("stage i", self.line.said(stage))
        made = replace(own, key=own.key.at(label), expr=body, meaning=meaning, latex=_at(own.latex or entry(own.symbol).latex, label))
        self.made[made.symbol] = made
        return symbol(made.symbol)

    def plain(self, expression: Expr, rising: Collection[Expr] = ()) -> Expr:
        """An expression with its reductions as plain sums and maxima. rising: of which a stage has no less than one that holds no more."""

        def at(stage: int, body: Expr, given: Mapping[str, Any]) -> Expr:
            return self._put(body, lambda name: given[name] if name in given else self.at(name, stage))

        body, nodes = named(expression)
        if not nodes and not body.symbols() & self.line.also.keys():
            return expression
        over = OverLine(self.line, at, self.placed, lambda xs: maximum(*xs), of_largest)
        parts = {name: reduced(call, over, rising) for name, call in nodes.items()}
        return self._put(body, lambda name: parts[name] if name in parts else self.line.also.get(name))


def written_out(definitions: Sequence[Definition], line: Stages) -> tuple[Definition, ...]:
    """Definitions with their reductions over the classes of equal stages, and those of a stage that they stand on (`WrittenOut`)."""
    stages = WrittenOut(definitions, line)
    for definition in definitions:
        if definition.key.scope != "stage":
            stages.made[definition.symbol] = replace(definition, expr=stages.plain(definition.expr))
    return tuple(stages.made.values())


def _at(text: str, label: int | str) -> str:
    """The LaTeX of a stage's definition for one class of stages."""
    place = str(label) if isinstance(label, int) else rf"\mathrm{{{label}}}"
    return text.replace("(i)", f"({place})") if "(i)" in text else rf"{{{text}}}^{{({place})}}"


def cases(line: Stages) -> list[str]:
    """What stage i holds, a line for each class of equal stages: its name, where it lies, how many stages it is."""
    said = []
    for label, runs, holds in line.spread:
        count = sum((last - first + 1 for first, last in runs), ZERO)
        many = "" if count == 1 else f" ({_text(count)} stages)"
        where = ", ".join(f"i = {_text(a)}" if a == b else f"{_text(a)} <= i <= {_text(b)}" for a, b in runs)
        held = ", ".join(f"{name} = {_text(amount)}" for name, amount in holds.items() if amount)
        said.append(f"{'' if label.isdigit() else f'{label}, '}{where}{many}: {held}")
    return said


def cases_latex(line: Stages) -> list[str]:
    """The same in LaTeX, an equation for each symbol of a stage that is not zero on all."""
    made = []
    for name in next(iter(line.spread))[2]:
        amounts = [holds[name] for _, _, holds in line.spread]
        if not any(amounts):
            continue
        if len(set(amounts)) == 1:
            made.append(f"{entry(name).latex} = {latex(amounts[0])}")
            continue
        places: dict[Expr, list[str]] = {}
        for amount, (_, runs, _) in zip(amounts, line.spread):
            where = [f"i = {latex(a)}" if a == b else rf"{latex(a)} \le i \le {latex(b)}" for a, b in runs]
            places.setdefault(amount, []).extend(where)
        rows = [rf"{latex(amount)} & {', '.join(where)}" for amount, where in places.items() if amount]
        rows += [r"0 & \text{otherwise}"] if ZERO in places else []
        made.append(rf"{entry(name).latex} = \begin{{cases}} " + r" \\ ".join(rows) + r" \end{cases}")
    return made


def _text(amount: Expr) -> str:
    """An expression that does not begin with what is taken off."""
    text = str(amount)
    taken, plus, rest = text.removeprefix("-").partition(" + ")
    return f"{rest} - {taken}" if text.startswith("-") and plus else text
