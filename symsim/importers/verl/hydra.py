"""Keys of a program that Hydra configures: overrides in a launch script or on the command line, or its YAML."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Given, Unresolved
from symsim.importers.sections import of_sections, referred
from symsim.importers.shell.command import which
from symsim.importers.shell.options import options
from symsim.importers.shell.reader import Command, scripts
from symsim.importers.shell.scope import Word
from symsim.inputs.reading import read_text, read_yaml

_OVERRIDE = re.compile(r"(~|\+{0,2})([A-Za-z_][\w/@-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_ENOUGH = 3
_LONGEST = 2**19


@dataclass
class Overrides:
    """program: what is started (`verl.trainer.main_ppo`). chosen: --config-name. given: keys, the last value of each. launched: the launcher's
    own options, of torchrun."""

    program: str = ""
    chosen: str = ""
    given: dict[str, Given] = field(default_factory=dict)
    launched: dict[str, Word] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_overrides(inputs: Sequence[str], variables: Mapping[str, str], what: str) -> Overrides:
    """The keys of scripts, YAML files and overrides; later ones hold. InputError where a script starts no such program, or several."""
    found = Overrides()
    texts: list[tuple[str, str]] = []
    loose: list[Word] = []
    for text in inputs:
        suffix = os.path.splitext(text)[1].lower()
        if _OVERRIDE.fullmatch(text) and not os.path.exists(text):
            loose.append(Word(text, "the command line"))
        elif suffix in (".yaml", ".yml"):
            found.given |= of_sections(read_yaml(text), ("defaults", "hydra"))
        else:
            texts.append((read_text(text, _LONGEST), text))
    if texts:
        command = _command(scripts(texts, variables), texts[-1][1], what)
        _program(found, command)
        _put(found, command.words)
    _put(found, loose)
    found.given = referred(found.given)
    return found


def _command(commands: Sequence[Command], where: str, what: str) -> Command:
    starts = [one for one in commands if sum(_OVERRIDE.fullmatch(word.text) is not None for word in one.words) >= _ENOUGH]
    if not starts:
        raise InputError(f"{where}: no command here starts {what}, with overrides such as trainer.nnodes=1")
    different = {tuple(word.text for word in one.words) for one in starts}
    if len(different) > 1:
        lines = ", ".join(one.words[0].where.rpartition(":")[2] for one in starts[:5])
        raise InputError(f"{where}: {len(starts)} commands here start a training (lines {lines}); {which(starts)}")
    return starts[0]


def _program(found: Overrides, command: Command) -> None:
    texts = [word.text for word in command.words]
    if "-m" in texts[:-1]:
        found.program = next((texts[at + 1] for at, text in enumerate(texts[:-1]) if text == "-m" and "." in texts[at + 1]), "")
    else:
        found.program = next((text for text in texts if text.endswith(".py")), "")
    for option in options(command.words)[1]:
        if option.name in ("--config-name", "--config_name") and option.values:
            found.chosen = option.values[0].text.strip("'\"")
        elif option.values:
            found.launched[option.name.lstrip("-").replace("-", "_")] = option.values[0]


def _put(found: Overrides, words: Sequence[Word]) -> None:
    for word in words:
        match = _OVERRIDE.fullmatch(word.text)
        if match is None:
            continue
        key = match[2].replace("/", ".").partition("@")[0]
        if match[1] == "~":
            found.given.pop(key, None)
            continue
        found.given[key] = Given(_value(match[3]) if word.why is None else Unresolved(match[3], word.why), word.where)


def _value(text: str) -> Any:
    """What an override's text stands for; numbers stay text, which whoever reads the key takes as one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in ("null", "None", "none", ""):
        return None
    if text.startswith("[") and text.endswith("]"):
        return [part.strip().strip("'\"") for part in cut(text[1:-1], 10_000).split(",") if part.strip()]
    return text.strip("'\"")
