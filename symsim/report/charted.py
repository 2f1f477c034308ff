"""What a figure draws, as data, and as objects of plotting libraries where these are installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from symsim.errors import InputError
from symsim.report.document import Gauges, Picture, Roofline
from symsim.report.picture import COLOURS


@dataclass(frozen=True)
class Charted:
    """rows: of each mark `x`, `y`, what `part` it is of, and the `amount` that it is of where it is a share. titles: of x, y, and of the parts.
    log: whether x and y are logarithmic."""

    mark: Literal["bar", "line", "point", "heat"]
    rows: tuple[Mapping[str, Any], ...]
    titles: tuple[str, str, str]
    log: tuple[bool, bool] = (False, False)

    @property
    def parts(self) -> list[str]:
        """Every part, in order of first appearance."""
        return list(dict.fromkeys(row["part"] for row in self.rows))


def of_bars(part: Picture | Gauges) -> Charted:
    bars = part.bars if isinstance(part, Picture) else part.gauges
    rows = [
        {"x": share, "y": f"{bar.label}: {bar.total}", "part": name, "amount": amount, "order": k}
        for bar in bars
        for k, (name, share, amount) in enumerate(bar.parts)
    ]
    return Charted("bar", tuple(rows), ("share" if isinstance(part, Picture) else "share of the scale", "", "part"))


def of_roofline(part: Roofline) -> Charted:
    roofs: list[dict[str, Any]] = []
    for point in part.points:
        roofs.append({"x": point.intensity, "y": point.reached, "part": "kernels", "amount": point.label})
    for name, peak in part.peaks:
        ridge = peak / part.bandwidth
        least, most = min(p.intensity for p in part.points), max(p.intensity for p in part.points)
        corners = sorted({min(least, ridge) / 2, ridge, max(most, ridge)})
        roofs += [{"x": x, "y": min(peak, x * part.bandwidth), "part": name, "amount": "roof"} for x in corners]
    return Charted("point", tuple(roofs), ("FLOP a byte of HBM traffic", "FLOP/s", ""), (True, True))


def altair_chart(title: str, charted: Charted) -> Any:
    """An altair.Chart. InputError without altair."""
    try:
        import altair
    except ImportError:
        raise InputError("to_altair needs the package altair; pip install 'symsim[altair]'") from None
    kinds: list[Literal["log", "linear"]] = ["log" if log else "linear" for log in charted.log]
    across, up, part = charted.titles
    chart = altair.Chart(altair.Data(values=[dict(row) for row in charted.rows]), title=title)
    colour = altair.Color("part:N", title=part or None, sort=charted.parts, scale=altair.Scale(range=["#" + c for c in COLOURS]))
    told = [altair.Tooltip(f"{name}:N") for name in ("part", "amount") if name in charted.rows[0]]
    if charted.mark == "bar":
        x, y = altair.X("x:Q", title=across, stack=True), altair.Y("y:N", title=up or None, sort=None)
        return chart.mark_bar().encode(x, y, colour, altair.Order("order:Q"), tooltip=told)
    if charted.mark == "heat":
        return chart.mark_rect().encode(
            altair.X("x:O", title=across, sort=None), altair.Y("y:O", title=up, sort=None), altair.Color("amount:Q", title=part)
        )
    x, y = (altair.X("x:Q", title=across, scale=altair.Scale(type=kinds[0])), altair.Y("y:Q", title=up, scale=altair.Scale(type=kinds[1])))
    if charted.mark == "line":
        return chart.mark_line(point=True).encode(x, y, colour, tooltip=told)
    points = chart.mark_circle().encode(x, y, colour, tooltip=told).transform_filter("datum.amount != 'roof'")
    return altair.layer(points, chart.mark_line().encode(x, y, colour).transform_filter("datum.amount == 'roof'"))


def matplotlib_figure(title: str, charted: Charted) -> Any:
    """A matplotlib.figure.Figure, of no canvas and no global state. InputError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("to_matplotlib needs the package matplotlib; pip install 'symsim[matplotlib]'") from None
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    across, up, part = charted.titles
    axes.set(title=title, xlabel=across, ylabel=up)
    {"bar": _bars, "heat": _heat, "line": _lines, "point": _lines}[charted.mark](figure, axes, charted)
    for log, axis in zip(charted.log, "xy"):
        if log:
            axes.set(**{f"{axis}scale": "log"})
    if charted.mark != "heat" and (part or len(charted.parts) > 1):
        # beside what is drawn, which fills its paper where it is bars
        figure.legend(title=part or None, loc="outside right upper")
    return figure


def _bars(_: Any, axes: Any, charted: Charted) -> None:
    bars = list(dict.fromkeys(row["y"] for row in charted.rows))
    left = dict.fromkeys(bars, 0.0)
    for k, part in enumerate(charted.parts):
        own = {row["y"]: row["x"] for row in charted.rows if row["part"] == part}
        axes.barh(list(own), list(own.values()), left=[left[bar] for bar in own], color="#" + COLOURS[k % len(COLOURS)], label=part)
        left |= {bar: left[bar] + share for bar, share in own.items()}
    axes.invert_yaxis()


def _lines(_: Any, axes: Any, charted: Charted) -> None:
    for k, part in enumerate(charted.parts):
        own = [row for row in charted.rows if row["part"] == part]
        dots = charted.mark == "point" and not any(row.get("amount") == "roof" for row in own)
        axes.plot([r["x"] for r in own], [r["y"] for r in own], "o" if dots else "-", color="#" + COLOURS[k % len(COLOURS)], label=part)


def _heat(figure: Any, axes: Any, charted: Charted) -> None:
    across, up = (list(dict.fromkeys(row[name] for row in charted.rows)) for name in "xy")
    cells = [[float("nan")] * len(across) for _ in up]
    for row in charted.rows:
        cells[up.index(row["y"])][across.index(row["x"])] = row["amount"]
    drawn = axes.imshow(cells, aspect="auto")
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(up)), up)
    figure.colorbar(drawn, label=charted.titles[2])
