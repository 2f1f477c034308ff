"""Arguments of a command that stand in each other's place: which order would be right."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence

from symsim.errors import InputError, cut, nearest
from symsim.inputs.hub import shipped_model
from symsim.inputs.shipped import list_models, list_systems

_FILES = (".json", ".yaml", ".yml")


def is_model(text: str) -> bool:
    """Whether MODEL may be so: a name, the id of a hub's that comes with symsim, a file or a directory."""
    there = os.path.isdir(text) or (text.lower().endswith(_FILES) and os.path.isfile(text))
    return text in list_models() or there or shipped_model(text) is not None


def model_first(command: str, model: str, others: Sequence[str]) -> None:
    """InputError where another argument is a model and the first is none."""
    if is_model(model) or not (meant := next((other for other in others if is_model(other)), "")):
        return
    rest = [model, *(other for other in others if other != meant)]
    raise InputError(f"MODEL comes first, and '{cut(model)}' is none: {_line(command, meant, *rest)}")


def kind_first(command: str, kind: str, others: Sequence[str], kinds: Collection[str]) -> None:
    """InputError where the first argument is none of the systems that a command knows; where another one is, with the order."""
    if kind in kinds:
        return
    if not (meant := next((other for other in others if other in kinds), "")):
        raise InputError(f"symsim does not {command} '{kind}': {nearest(kind, list(kinds))}")
    rest = [kind, *(other for other in others if other != meant)]
    raise InputError(f"KIND comes first, and '{cut(kind)}' is none: {_line(command, meant, *rest)}")


def models_alone(command: str, models: Sequence[str]) -> None:
    """InputError where strategies or systems stand among models, which options give."""
    given = [("-y" if text in list_systems() else "-s" if "=" in text else "", text) for text in models]
    options = [(option, text) for option, text in given if option and not is_model(text)]
    if not options:
        return
    left = [text for text in models if text not in [text for _, text in options]] or ["MODEL"]
    option, text = options[0]
    what = "a system" if option == "-y" else "a strategy"
    said = _line(command, *left, *(word for pair in options for word in pair))
    raise InputError(f"'{cut(text)}' is {what} and no model: {said}")


def _line(command: str, *words: str) -> str:
    return f"symsim {command} {' '.join(shlex.quote(cut(word)) for word in words)}"


def among(words: Sequence[str], said: str) -> str:
    """What is to be added where a system stands behind no option, of a sentence that names it."""
    known = list_systems()
    own = [word for before, word in zip(words, words[1:]) if word in known and word in said and not before.startswith("-")]
    return f", and -y gives a system: -y {own[0]}" if own else ""
