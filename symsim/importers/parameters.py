"""Parameters by the beginnings of their names, or by patterns of them, as modelling code calls them: what symsim calls these."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from time import process_time

from symsim.importers.called import Parameter, parameters
from symsim.inputs.architecture import Architecture

_LAYER = re.compile(r"model\.layers\.\d+\.")
# what is run of a pattern: characters and classes of them, repeated or not, and groups that are not
_ONE = r"(?:\\[.dw]|\[\^?(?:\\[.dw]|[\w.\-])+\]|[\w.\-/])"
_PATTERN = re.compile(rf"(?:{_ONE}[*+?]?|\(\?[:!]|[()|^$])*")
_STEP = re.compile(rf"(?P<one>{_ONE})(?P<often>[*+?]?)|(?P<opens>\((?:\?[:!])?)|(?P<closes>\))|(?P<or>\|)|[\^$]")
_DIGITS = ("\\d", "[\\d]", "[0-9]")
# what is tried with a pattern: so many ways through a name, and so many seconds for all names together
_NAME, _NUMBER, _MOST_WAYS, _SECONDS = 60, 3, 4 * 60**3, 2.0
_LONGEST = 400
_EXCEPT = "(?!"
Called = Sequence[Sequence[Parameter]]
Places = dict[str, set[int | None]]
"""The layers of parameters, by symsim's names of these."""


class _Slow(Exception):
    """A pattern that takes too long."""


def of_beginnings(asked: Iterable[str], architecture: Architecture) -> tuple[list[str], list[str]]:
    """What begins so (`model.layers.1` is layers 10 to 19 too), as entries of freeze_parameters, and what is the beginning of nothing."""
    return _named(architecture, [(text, partial(_begins, text)) for text in asked])


def of_patterns(asked: Iterable[str], architecture: Architecture, at_start: bool = False) -> tuple[list[str], list[str]]:
    """What a pattern finds in names, at_start: from their first letters on; and the patterns that find nothing, or that are not run here, as
    they take too long or are no patterns."""
    compiled = [(text, _compiled(text)) for text in asked]
    finds = [(text, (lambda _: False) if p is None else _finds(p.match if at_start else p.search)) for text, p in compiled]
    return _named(architecture, finds)


def of_parts(asked: Iterable[str], architecture: Architecture) -> tuple[list[str], list[str]]:
    """What has a text in its name, and the texts that none has."""
    return _named(architecture, [(text, partial(_has, text)) for text in asked])


def of_modules(asked: Iterable[str], architecture: Architecture) -> tuple[list[str], list[str]]:
    """What is in a module whose name ends so, and the ends that none has."""
    return _named(architecture, [(text, partial(_in_module, text)) for text in asked])


def whole_modules(pattern: str, weights: Container[str], every: Called) -> Places:
    """Of these weights, by symsim's names, those of modules whose whole name the pattern matches; none where it is not run. every: `parameters` of
    the model."""
    compiled = _compiled(pattern)
    if compiled is None:
        return {}
    matches = _finds(compiled.fullmatch)
    return _placed(every, lambda name: matches(name.rpartition(".")[0]), weights, _EXCEPT in pattern)


def ended_modules(end: str, weights: Container[str], every: Called) -> Places:
    """The same of modules of this name, or whose name ends in it behind a dot (peft tuners/tuners_utils.py check_target_module_exists)."""
    return _placed(every, lambda name: _ends(end, name.rpartition(".")[0]), weights)


def ended_parameters(end: str, weights: Container[str], every: Called) -> Places:
    """The same of parameters (peft target_parameters)."""
    return _placed(every, partial(_ends, end), weights)


def runs(pattern: str) -> bool:
    """Whether a pattern is run here: it is one, and ends in time."""
    return _compiled(pattern) is not None


def matching(pattern: str, names: Iterable[str]) -> set[str]:
    """The names of which the whole is such; none where the pattern is not run."""
    compiled = _compiled(pattern)
    if compiled is None:
        return set()
    matches = _finds(compiled.fullmatch)
    try:
        return {*filter(matches, names)}
    except _Slow:
        return set()


def all_layers(weights: Container[str], every: Called) -> Places:
    """All layers that these weights are in."""
    return _placed(every, lambda _: True, weights)


def _placed(every: Called, holds: Callable[[str], bool], weights: Container[str], by_all: bool = False) -> Places:
    linear: Places = {}
    for p in _found(every, holds, by_all, lambda p: p.own in weights):
        linear.setdefault(p.own, set()).add(p.at)
    return linear


def modules(architecture: Architecture) -> tuple[list[str], list[str]]:
    """The modules of a layer as transformers calls them, and those before and after the layers."""
    names = [(name, p.at) for p in parameters(architecture)[0] for name in p.called]
    inner = (_LAYER.sub("", name).partition(".")[0] for name, at in names if at is not None)
    return list(dict.fromkeys(inner)), list(dict.fromkeys(name.rpartition(".")[0].rpartition(".")[2] for name, at in names if at is None))


def _begins(text: str, name: str) -> bool:
    return name.startswith(text)


def _has(text: str, name: str) -> bool:
    return text in name


def _ends(text: str, name: str) -> bool:
    return name == text or name.endswith(f".{text}")


def _in_module(text: str, name: str) -> bool:
    return name.rpartition(".")[0].endswith(text)


def _finds(look: Callable[[str], object]) -> Callable[[str], bool]:
    end = process_time() + _SECONDS

    def holds(name: str) -> bool:
        if process_time() > end:
            raise _Slow
        return look(name) is not None

    return holds


def _compiled(text: str) -> re.Pattern[str] | None:
    """A pattern that ends in time."""
    if len(text) > _LONGEST or not _PATTERN.fullmatch(text) or _ways(text) > _MOST_WAYS:
        return None
    try:
        return re.compile(text)
    except re.error:
        return None


def _ways(text: str) -> int:
    """How many ways through a name a pattern may try before it gives up, about: what repeats may end anywhere, and alternatives add up."""
    started = text.startswith(("^", ".*", ".+"))
    open_groups = [(0, 1)]  # of each its alternatives so far, and the present one
    for step in _STEP.finditer(text):
        before, now = open_groups[-1]
        if step["opens"]:
            open_groups.append((0, 1))
        elif step["closes"] and len(open_groups) > 1:
            open_groups.pop()
            open_groups[-1] = (open_groups[-1][0], open_groups[-1][1] * (before + now))
        elif step["or"]:
            open_groups[-1] = (before + now, 1)
        elif step["often"]:
            open_groups[-1] = (before, now * (2 if step["often"] == "?" else _NUMBER if step["one"] in _DIGITS else _NAME))
    return sum(sum(group) for group in open_groups) * (1 if started else _NAME)


def _named(architecture: Architecture, asked: Iterable[tuple[str, Callable[[str], bool]]]) -> tuple[list[str], list[str]]:
    every = parameters(architecture)
    found: set[Parameter] = set()
    lost = []
    for text, holds in asked:
        own = _found(every, holds, _EXCEPT in text)
        found |= {*own}
        lost += [] if own else [text]
    return _entries(found, set(every[0])), lost


def _found(every: Called, holds: Callable[[str], bool], by_all: bool, counts: Callable[[Parameter], bool] = lambda _: True) -> list[Parameter]:
    """The parameters that are meant in the first modelling code that has any; none where it takes too long."""
    try:
        for language in every:
            if found := [p for p in language if counts(p) and p.meant(holds, by_all)]:
                return found
    except _Slow:
        pass
    return []


def _entries(found: set[Parameter], every: set[Parameter]) -> list[str]:
    """The fewest entries of freeze_parameters that mean these and no others: names of all layers, then those of runs of layers."""
    left, made = set(found), list[str]()
    for name, own in _by_name(every):
        if own <= found and own & left:
            made.append(name)
            left -= own
    runs: dict[str, list[int]] = {}
    for at in sorted({p.at for p in left if p.at is not None}):
        here, wanted = {p for p in every if p.at == at}, {p for p in found if p.at == at}
        for name, own in _by_name(here):
            if own <= wanted and own & left:
                runs.setdefault(name, []).append(at)
                left -= own
    for name, layers in runs.items():
        made += [f"layers.{a}-{b}" + (f".{name}" if name != "layers" else "") for a, b in consecutive(layers)]
    return made


def _by_name(parameters: Iterable[Parameter]) -> list[tuple[str, set[Parameter]]]:
    """Parameters under each name, those of most first, of the shortest names."""
    found: dict[str, set[Parameter]] = {}
    for p in parameters:
        for name in p.means:
            found.setdefault(name, set()).add(p)
    return sorted(found.items(), key=lambda one: (-len(one[1]), len(one[0]), one[0]))


def consecutive(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of numbers, of each the first and the last."""
    made: list[tuple[int, int]] = []
    for i in indices:
        made = [*made[:-1], (made[-1][0], i)] if made and made[-1][1] == i - 1 else [*made, (i, i)]
    return made
