"""What comes with symsim or lies on this machine, as tables: models with their sizes, systems with their rates, strategies with their degrees.

Each stands with its source. A row is what `--json` prints; a line of a table begins with the name, and what stands below it is indented.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

Row = dict[str, Any]

WIDTH = 80
_HUB = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)")
_PAPER = re.compile(r"arXiv \d{4}\.\d{4,5}")
_DEGREES = ("tp", "cp", "pp", "vpp", "ep", "dp")


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = (), *, cut: bool = False) -> str:
    """Columns two blanks apart, those of `right` flush right; cut: lines end at 80 columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(c.rjust(w) if n in right else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths))) for row in rows)
    return "".join(f"{_cut(line.rstrip()) if cut else line.rstrip()}\n" for line in lines)


def wrapped(text: str) -> str:
    """Indented lines below a name."""
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False) + "\n"


def _over(lines: str, said: Sequence[str], header: bool) -> str:
    """Lines of a table, each with what stands below it."""
    made = lines.splitlines(keepends=True)
    below = [""] * header + [wrapped(text) for text in said]
    return "".join(line + text for line, text in zip(made, below))


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "~"


def models() -> list[Row]:
    """params: total and active (elements); the whole source."""
    from symsim.inputs.models import load_model
    from symsim.inputs.shipped import list_models

    found = ((name, load_model(name).architecture) for name in list_models())
    return [{"name": name, **_sizes(model), "source": model.source} for name, model in found]


def downloads() -> list[Row]:
    """The same of the configurations that a download of a hub's left on this machine, by their ids; those that cannot be read say why."""
    from symsim.errors import InputError
    from symsim.inputs.hub import downloaded_config, downloaded_ids
    from symsim.inputs.models import import_hf

    rows = []
    for name in downloaded_ids():
        config = downloaded_config(name)
        if config is not None:
            try:
                rows.append({"name": name, **_sizes(import_hf(config, name).architecture), "source": config})
            except InputError as error:
                rows.append({"name": name, "why": str(error), "source": config})
    return rows


def no_downloads() -> str:
    from symsim.inputs.hub import cache_directory

    return f"{cache_directory()} has no model of a hub; HF_HUB_CACHE and HF_HOME say where else one may lie"


def _sizes(model: "Architecture") -> Row:
    from symsim.evaluation.parameters import parameters

    total, active = parameters(model)
    return {"params": {"total": total, "active": active}, "num_layers": model.num_layers, "hidden_size": model.hidden_size}


def models_text(rows: Iterable[Row], header: bool) -> str:
    made = [["model", "total", "active", "layers", "hidden", "source"]] if header else []
    for row in rows:
        if "why" in row:
            made.append([row["name"], "", "", "", "", row["why"]])
            continue
        total, active = (_billions(row["params"][which]) for which in ("total", "active"))
        numbers = [total, active if active != total else "", str(row["num_layers"]), str(row["hidden_size"])]
        made.append([row["name"], *numbers, _short(row["source"])])
    # a line that is searched or copied from keeps its whole source
    return aligned(made, right=range(1, 5), cut=header)


def _billions(count: int) -> str:
    """'70.6B': three digits."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if count >= 0.9995 * size:
            share = count / size
            return f"{share:.{0 if share >= 99.95 else 1 if share >= 9.995 else 2}f}{letter}"
    return str(count)


def _short(source: str) -> str:
    """A hub id, or the number of a paper, where a source names one."""
    found = _HUB.search(source)
    paper = _PAPER.search(source)
    return found[1] if found else paper[0] if paper else source


def systems() -> list[Row]:
    """memory (bytes), peak rates by precision (FLOP/s), memory_bandwidth and links (bytes/s), how many numbers are known how, and all sources."""
    from symsim.inputs.known import TAGS
    from symsim.inputs.shipped import list_systems
    from symsim.inputs.system import quantities
    from symsim.inputs.systems import load_system

    rows = []
    for name in list_systems():
        system = load_system(name)
        chip = system.accelerator
        peaks = {kind: float(known.value) for kind in type(chip.peak).model_fields if (known := getattr(chip.peak, kind)) is not None}
        links = [{"name": t.name, "ranks": t.ranks, "bandwidth": float(t.bandwidth.value)} for t in system.network]
        rates = {"memory": int(chip.memory.value), "peak": peaks, "memory_bandwidth": float(chip.memory_bandwidth.value), "network": links}
        ways = Counter(number.tag for _, number in quantities(system))
        counts = {tag: ways[tag] for tag in TAGS if tag in ways}
        said = {"source": system.sources.get(chip.peak.bf16.source, ""), "known": counts, "sources": dict(system.sources)}
        rows.append({"name": name, "title": system.title, **rates, **said})
    return rows


def systems_text(rows: Iterable[Row], header: bool) -> str:
    from symsim.report.amounts import rate

    rows = list(rows)
    made = [["system", "memory", "bf16", "HBM", "links"]] if header else []
    for row in rows:
        links = ", ".join(f"{t['bandwidth'] / 1e9:.4g}" for t in row["network"]) + " GB/s"
        memory = f"{row['memory'] / 2**30:.4g} GiB"
        made.append([row["name"], memory, rate(row["peak"]["bf16"], "FLOP/s"), rate(row["memory_bandwidth"], "B/s"), links])
    known = (", ".join(f"{count} {how}" for how, count in row["known"].items()) for row in rows)
    said = [f"{row['title']}. {row['source'].partition(';')[0]}. Numbers: {counts}" for row, counts in zip(rows, known)]
    return _over(aligned(made, right=(1, 2, 3)), said, header)


def strategies() -> list[Row]:
    """ranks, the options that are not at their defaults, and the words in front of the file."""
    from symsim.inputs.shipped import list_strategies, models_directory
    from symsim.inputs.strategies import load_strategy

    rows = []
    for name in list_strategies():
        strategy = load_strategy(name)
        text = (models_directory() / "strategies" / f"{name}.yaml").read_text(encoding="utf-8")
        said = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
        rows.append({"name": name, "world": strategy.world_size, "options": strategy.model_dump(mode="json", exclude_defaults=True), "source": said})
    return rows


def strategies_text(rows: Iterable[Row], header: bool) -> str:
    rows = list(rows)
    made = [["strategy", "ranks", "degrees"]] if header else []
    for row in rows:
        degrees = " ".join(f"{name}={row['options'][name]}" for name in _DEGREES if name in row["options"])
        made.append([row["name"], f"{row['world']:,}", degrees])
    return _over(aligned(made, right=(1,)), [row["source"] for row in rows], header)
