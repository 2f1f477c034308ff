"""The picture of a sweep: a heat map over two axes, a curve over one, the front of two quantities.

Over one or two axes all points are evaluated, and each place shows the best of all other axes: of the points that meet the conditions, else,
hatched, of those that do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symsim.errors import InputError, cut, nearest
from symsim.evaluation.quantities import QUANTITIES, Entry
from symsim.grid.conditions import Node, evaluate, names, parse_quantity
from symsim.grid.names import field_of, is_whole
from symsim.grid.question import Question, ask, largest_first
from symsim.grid.space import Space
from symsim.grid.sweep import Sweep, as_column
from symsim.inputs.known import UNITS
from symsim.inputs.settings import text_of
from symsim.report.chart import HEIGHT, WIDTH, Chart, amount, chart
from symsim.report.charted import Charted
from symsim.report.heat import HATCH, Heat, legend, panel, three
from symsim.report.shapes import svg

# all points of a picture are evaluated and kept
_MOST_POINTS = 4_000_000
_MOST_PLACES = 64
_OF_A_GRID, _OF_ROWS = ("cannot run", "conditions are not met", "the best that meets them"), ("no row is here", "", "the best")
_LETTER = 9.0  # of a title, at most
# of a quantity, by its unit: what one of its numbers is divided by, and what is said of it
_UNITS = {"byte": (2.0**30, "GiB"), "s": (1.0, "s"), "1/s": (1.0, ""), "USD": (1.0, "USD"), "MWh": (1.0, "MWh")}


@dataclass(frozen=True)
class _Places:
    """values: along each axis that is drawn. best: of each place (positions along them), and whether a point there meets the conditions."""

    over: Sequence[str]
    values: Sequence[Sequence[Any]]
    best: Mapping[tuple[int, ...], float]
    meets: set[tuple[int, ...]]
    words: tuple[str, str, str] = _OF_A_GRID


def front_picture(question: Question, rows: Mapping[str, Any], labels: Sequence[str], title: str) -> str:
    """The points that no other beats in both, as SVG. labels: what each says when it is pointed at."""
    across, up = question.by
    points = [(_in_unit(across, float(a)), _in_unit(up, float(b))) for a, b in zip(rows[across], rows[up])]
    told = dict(zip(points, labels))
    made = Chart(title, _said(across), _said(up), {"": sorted(points)}, steps=True, labels=told)
    return svg(WIDTH, HEIGHT, title, chart(made))


def grid_picture(sweep: Sweep, over: Sequence[str], title: str) -> str:
    """A curve over one axis or a heat map over two of what the sweep's first objective is, as SVG. InputError for axes that are none."""
    return _drawn(_places(sweep, drawn_axes(sweep.space, over)), sweep.question.by[0], sweep.question.largest[0], title)


def rows_picture(rows: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], over: Sequence[str], by: str, title: str) -> tuple[str, Charted]:
    """The same of rows that are there, and what it draws: axes, their values in order, by name. InputError for axes that are none, and for what
    is no quantity."""
    node = parse_quantity(by, "by")
    for name in names(node):
        if name not in rows:
            raise InputError(f"by='{cut(by)}': the rows have no '{cut(name)}': {nearest(name, list(rows))}")
    if not len(next(iter(rows.values()), ())):
        raise InputError("plot(): there are no rows to draw")
    several = {name: [v for v in _distinct(values) if v in there] for name, values in axes.items() if len(there := set(rows[name].tolist())) > 1}
    chosen = _chosen(list(several), over, "plot(over=...)")
    value, best = np.asarray(_at(node, rows), dtype=float), largest_first(node)
    values = [several[name] for name in chosen]
    found = _reduced(rows, chosen, values, value, np.ones(len(value), dtype=bool), largest=best)
    every = len(found[0]) == math.prod(map(len, values))
    places = _Places(chosen, values, *found, ("" if every else _OF_ROWS[0], *_OF_ROWS[1:]))
    return _drawn(places, by, best, title), _charted(places, by)


def _charted(found: _Places, by: str) -> Charted:
    """The places as data: a line over numbers, else a heat map, of whose one axis the other is empty."""
    said = _said(by)
    if (along := _numbered(found)) is not None:
        points = sorted((along.numbers[at[0]], _in_unit(by, value)) for at, value in found.best.items() if at in found.meets)
        return Charted("line", tuple({"x": x, "y": y, "part": by} for x, y in points), (along.said, said, ""))
    up, across = found.over if len(found.over) == 2 else ("", *found.over)
    values = found.values if len(found.over) == 2 else [[""], *found.values]
    cells = [((0, *at)[-2:], value) for at, value in sorted(found.best.items())]
    rows = tuple({"x": text_of(values[1][x]), "y": text_of(values[0][y]), "part": by, "amount": _in_unit(by, v)} for (y, x), v in cells)
    return Charted("heat", rows, (across, up, said))


@dataclass(frozen=True)
class _Along:
    """numbers: of an axis's values, in the unit of the first; said: the axis with that unit."""

    numbers: Sequence[float]
    said: str


def _numbered(found: _Places) -> _Along | None:
    """The one axis as numbers, None where there are two, or words."""
    if len(found.over) > 1:
        return None
    numbers, units = [], []
    for value in found.values[0]:
        number, _, unit = str(value).strip().partition(" ")
        plain = is_whole(value) or isinstance(value, float)
        if not plain and (unit not in UNITS or not number.replace(".", "", 1).isdigit()):
            return None
        numbers.append(float(number))
        units.append("" if plain else unit)
    if len({UNITS[unit][0] for unit in units}) > 1:
        return None
    sizes = [float(UNITS[unit][1] / UNITS[units[0]][1]) for unit in units]
    return _Along([n * size for n, size in zip(numbers, sizes)], f"{found.over[0]}, {units[0]}" if units[0] else found.over[0])


def _drawn(found: _Places, by: str, largest: bool, title: str) -> str:
    if (along := _numbered(found)) is not None:
        points = sorted((along.numbers[at[0]], _in_unit(by, value)) for at, value in found.best.items() if at in found.meets)
        if not points:
            raise InputError("--plot: no configuration that can run meets the conditions")
        spread = len(points) > 2 and points[0][0] > 0 and points[-1][0] / points[0][0] >= 16
        marks = [x for x, _ in points] if len(points) <= 12 else ()
        made = Chart(title, along.said, _said(by), {"": points}, (spread, False), marks=marks)
        return svg(WIDTH, HEIGHT, title, chart(made))
    return _heat(found, by, largest, title)


def drawn_axes(space: Space, asked: Sequence[str]) -> list[str]:
    """The axes that are drawn: those that are named, or all that have more than one value. InputError where that is neither one nor two."""
    return _chosen([column.name for column in space.columns.values() if len(_distinct(column.shown)) > 1], asked, "--over")


def _distinct(values: Sequence[Any]) -> list[Any]:
    """The values of an axis as rows have them, each once."""
    return list(dict.fromkeys(as_column(values).tolist()))


def _chosen(several: Sequence[str], asked: Sequence[str], option: str) -> list[str]:
    drawn = "--plot draws" if option == "--over" else "plot() draws"
    if not several:
        raise InputError(f"{drawn} over one or two axes, and none of these rows varies")
    if asked:
        known = {field_of(n): n for n in several}
        for name in asked:
            if field_of(name) not in known:
                raise InputError(f"{option} {name}: it is no axis of more than one value: {nearest(name, several)}")
        found = list(dict.fromkeys(known[field_of(n)] for n in asked))
    else:
        found = list(several)
    if not 1 <= len(found) <= 2:
        told = ", ".join(several)
        raise InputError(f"{drawn} over one or two axes, and these vary: {told}; name two with {option}, and of all others the best is shown")
    return found


def _places(sweep: Sweep, over: Sequence[str]) -> _Places:
    """Every point of the sweep without its conditions, reduced to the best of each place."""
    space, question = sweep.space, sweep.question
    if space.points > _MOST_POINTS:
        raise InputError(f"--plot: the axes make {space.points:,} points; at most {_MOST_POINTS:,} are drawn")
    nodes = [question.objectives[0], *question.where]
    axes = {field_of(c.name) for c in space.columns.values()} | set(space.derived)
    wanted = dict.fromkeys(n for node in nodes for n in sorted(names(node)) if field_of(n) not in axes)
    all_points = ask(columns=",".join(wanted) or "world", timed=False, everything=True)
    whole = Sweep(space, all_points, backend=sweep.backend)
    whole.prepare()
    parts = [whole.run_part(k) for k in range(len(whole.parts))]
    rows = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    value = _at(nodes[0], rows)
    meets = np.ones(len(value), dtype=bool)
    for node in nodes[1:]:
        meets &= np.asarray(_at(node, rows), dtype=bool)
    values = [_distinct(next(c for c in space.columns.values() if c.name == name).shown) for name in over]
    if max(map(len, values)) > _MOST_PLACES and len(over) == 2:
        raise InputError(f"--plot: an axis of {max(map(len, values))} values is drawn; a heat map has at most {_MOST_PLACES} rows or columns")
    return _Places(over, values, *_reduced(rows, over, values, value, meets, largest=question.largest[0]))


def _reduced(
    rows: Mapping[str, Any], over: Sequence[str], values: Sequence[Sequence[Any]], value: Any, meets: Any, *, largest: bool
) -> tuple[dict[tuple[int, ...], float], set[tuple[int, ...]]]:
    """The best of each place: points that meet the conditions first."""
    order = np.lexsort((-value if largest else value, ~meets))
    place = [{v: k for k, v in enumerate(of)} for of in values]
    positions = list(zip(*([at[v] for v in rows[name].tolist()] for at, name in zip(place, over))))
    best: dict[tuple[int, ...], float] = {}
    meeting = set()
    for k in order.tolist():
        if positions[k] not in best and np.isfinite(value[k]):
            best[positions[k]] = float(value[k])
            if meets[k]:
                meeting.add(positions[k])
    return best, meeting


def _at(node: Node, rows: Mapping[str, Any]) -> Any:
    """An expression at every row; options are texts there, of which true and false are truths."""
    known = {field_of(name): name for name in rows}
    found = {}
    for name in names(node):
        column = rows[known.get(field_of(name), name)]
        if column.dtype == object and len(column) and set(column.tolist()) <= {"true", "false"}:
            column = column == "true"
        found[name] = column
    return np.broadcast_to(evaluate(node, found), (len(next(iter(rows.values()))),))


def _heat(found: _Places, by: str, largest: bool, title: str) -> str:
    two = found if len(found.over) == 2 else _Places(("", *found.over), ([""], *found.values), *_lifted(found), found.words)
    labels = [[text_of(v) for v in of] for of in two.values]
    cells = {at: (labels[0][at[0]], labels[1][at[1]]) for at in two.best}
    values = {cells[at]: _in_unit(by, value) for at, value in two.best.items()}
    # of equal ones the first of the rows
    meets = dict.fromkeys(cells[at] for at in two.best if at in two.meets)
    best = (max if largest else min)(meets, key=lambda cell: values[cell], default=None)
    shown: Callable[[float], str] = three if max(map(abs, values.values())) < 1000 else amount
    heat = Heat(f"{title}: {_said(by)}", labels[0], labels[1], two.over[0], two.over[1], values, shown, meets.keys(), best)
    wide, high = max(heat.width + 40, 16 + heat.margin + len(heat.title) * _LETTER, 700.0), heat.height + 70
    parts = [*panel(16, heat), *legend(16 + heat.margin, heat.height + 30, two.words)]
    return svg(wide, high, title, parts, HATCH)


def _lifted(found: _Places) -> tuple[dict[tuple[int, ...], float], set[tuple[int, ...]]]:
    """One axis as the columns of a single row."""
    return {(0, *at): value for at, value in found.best.items()}, {(0, *at) for at in found.meets}


def _in_unit(by: str, value: float) -> float:
    known = _quantity(by)
    return value / _UNITS.get(known.unit if known is not None else "", (1.0, ""))[0]


def _quantity(by: str) -> Entry | None:
    """The quantity of a name, or of the definition behind it."""
    return QUANTITIES.get(by) or next((known for known in QUANTITIES.values() if known.symbol == by), None)


def _said(by: str) -> str:
    """A quantity with its unit."""
    known = _quantity(by)
    if known is None:
        return by
    unit = _UNITS.get(known.unit, (1.0, "" if known.unit == "1" else known.unit))[1]
    return f"{by}: {known.meaning}{', ' + unit if unit else ''}"
