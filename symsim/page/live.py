"""The section of an HTML report that answers: its formulas as JavaScript, what a reader can move, and what follows at once.

The page stands alone: nothing is loaded, and its state is in the fragment of its address. Numbers are those of `symsim eval`, in doubles.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Any

from markupsafe import Markup

from symsim.algebra.written import Substitutions
from symsim.cost.step_time import exposed_axes
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.quantities import EXPOSED, QUANTITIES
from symsim.inputs.limits import LARGEST_QUANTITY
from symsim.inputs.settings import text_of
from symsim.page.allowed import Rule, only_possible, rules_of
from symsim.page.inputs import SIZES, Input, inputs_of, of_choice
from symsim.page.variants import Variants, variants
from symsim.program.javascript import javascript
from symsim.program.together import together
from symsim.program.unrolled import unroll
from symsim.report.machine import meaning, tier_of
from symsim.report.mathml import mathml
from symsim.report.picture import COLOURS
from symsim.report.step import MEMORY_PARTS, carried
from symsim.report.templating import template

_GROUPS = (
    ("sizes", "Sizes and degrees", True),
    ("machine", "The machine", True),
    ("coefficients", "Coefficients: shares, latencies and the host", False),
)
# rows of the table of results; time and memory that pictures show are not among them
_RESULTS = (
    "time.step",
    "tokens_per_second",
    "mfu",
    "hfu",
    "cost_per_trillion_tokens",
    "energy_per_trillion_tokens",
    "memory.peak",
    "params.per_rank",
    "flops.forward",
    "flops.recompute",
    "world",
)


def live_section(result: Evaluation) -> Markup:
    """The section as HTML. A run's length and unnamed quantities are not in it."""
    axes = list(exposed_axes(result.derivation)) if result.system is not None else []
    times = ["time.compute", "time.bubble", *(f"{EXPOSED}{axis}" for axis in axes), "time.optimizer"] if result.system is not None else []
    memory = [f"memory.{part}" for part in MEMORY_PARTS]
    results = [name for name in _RESULTS if name == "world" or QUANTITIES[name].symbol in result.derivation.definitions]
    asked = [*results, *times, *memory, "memory.reserve", *(["memory.capacity"] if result.system is not None else [])]
    beside, substitutions = variants(result), Substitutions()
    made = together([unroll(one, None, asked, substitutions=substitutions) for one in beside.derived])
    own = [replace(one, meaning=meaning(result.system, one.name)) if tier_of(one.name) else one for one in inputs_of(made.arguments, result.system)]
    rules = rules_of(beside.derived, own)
    inputs = [*own, *map(of_choice, beside.choices)]
    data = {
        "inputs": [_as_data(one) for one in inputs],
        "possible": [list(one.values) for one in only_possible(inputs, rules[0])],
        **_refusals(beside, rules),
        "results": [{"name": n, "meaning": QUANTITIES[n].meaning.replace("10^12", "10\u00b9\u00b2"), "unit": QUANTITIES[n].unit} for n in results],
        "time": [{"name": n, "label": _time_label(result, n)} for n in times],
        "memory": [{"name": f"memory.{n}", "label": label} for n, label in MEMORY_PARTS.items()] + [{"name": "memory.reserve", "label": "reserve"}],
        "largest": float(LARGEST_QUANTITY),
        "colours": [f"#{c}" for c in COLOURS],
    }
    script = f"const PAGE = {quoted(data)};\n{javascript(made)}{_script()}"
    groups = [(title, opened, [(k, one) for k, one in enumerate(inputs) if one.group == group]) for group, title, opened in _GROUPS]
    fixed = _fixed(result, [one.name for one in beside.choices])
    tools = {"symbol": lambda one: Markup(mathml(one.latex)), "shown": _shown}
    page = template("live.html.j2", **tools).render(groups=[g for g in groups if g[2]], fixed=fixed, timed=bool(times), script=Markup(script))
    return Markup(page)


def _refusals(beside: Variants, rules: Sequence[Sequence[Rule]]) -> dict[str, object]:
    """variants: of every combination of what is chosen the place of its derivation, or the sentence that refuses it. rules: of each derivation the
    numbers of its rules."""
    places, numbers = count(), dict[Rule, int]()
    own = [[numbers.setdefault(rule, len(numbers)) for rule in of] for of in rules]
    every = [{"over": rule.over, "broken": rule.broken, "sentences": rule.sentences} for rule in numbers]
    return {"variants": [one if isinstance(one, str) else next(places) for one in beside.made], "rules": own, "rule": every}


def quoted(data: Any) -> str:
    """JSON that may stand in a page's script: no tag of HTML begins in it."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _as_data(one: Input) -> dict[str, object]:
    moved: dict[str, object] = {"values": one.values, "whole": bool(one.values), "share": one.share, "fills": one.name in SIZES}
    moved |= {"least": one.least, "zero": one.zero, "within": one.within}
    moved |= {"labels": one.labels} if one.labels else {}
    return {"name": one.name, "base": float(one.base), **moved, "unit": one.unit, "scale": one.scale}


def _shown(one: Input) -> str:
    """The base in the unit that a reader sees."""
    return one.labels[0] if one.labels else str(one.base) if one.values else f"{float(one.base) / one.scale:.6g}"


def _time_label(result: Evaluation, name: str) -> str:
    shows = result.values.get("t_launch") and result.assumptions["host_launch"] != "hidden"
    launched = "kernels and launches" if shows else "kernels"
    words = {"time.compute": launched, "time.bubble": "pipeline bubble", "time.optimizer": "optimizer"}
    return words.get(name) or carried(result, name.removeprefix(EXPOSED))


def _fixed(result: Evaluation, chosen: Sequence[str]) -> str:
    """What the page cannot move, in a sentence, and the command that can."""
    strategy = result.strategy
    depth = [] if "pipeline" in chosen else [f"pp = {strategy.pp}"] + [f"vpp = {strategy.vpp}"] * (strategy.vpp > 1)
    ones = [f"{n} = 1" for n in ("tp", "cp", "ep", "dp") if getattr(strategy, n) == 1]
    switches = [f"{n} = {text_of(getattr(strategy, n))}" for n in ("recompute", "sp") if n not in chosen and (n != "sp" or strategy.tp > 1)]
    return ", ".join([*depth, *ones, *switches, "the other options of the strategy, as above"])


@cache
def _script() -> str:
    return (files("symsim.page") / "live.js").read_text(encoding="utf-8")
