"""A script that starts a training with the Trainer's arguments on the command line: LLaMA-Factory's (or a YAML and keys behind it,
hparams/parser.py read_args), or any that DeepSpeed's launcher starts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Unresolved, natural
from symsim.importers.shell.command import which
from symsim.importers.shell.options import options
from symsim.importers.shell.reader import Command, commands
from symsim.importers.shell.scope import Word
from symsim.importers.shell.texts import beside, json_written
from symsim.inputs.reading import Document, read_json, read_text, read_yaml

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".txt")
_LONGEST = 2**19
_KEY = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_EACH, _NODES = ("nproc_per_node", "num_gpus", "num_processes", "NPROC_PER_NODE"), ("nnodes", "num_nodes", "NNODES")
Starts = Callable[[Command], int | None]


@dataclass(frozen=True)
class Launched:
    """The arguments of the command that trains, on how many ranks it does, where it says, and the words in front of them."""

    document: Document
    world: int | None
    launcher: tuple[Word, ...] = ()


def read_script(path: str, variables: Mapping[str, str], starts: Starts, told: str) -> Launched:
    """starts: where the arguments of a training begin in a command. InputError where no command trains, as told, or more than one does."""
    found = [(command, start) for command in commands(read_text(path, _LONGEST), path, variables) if (start := starts(command)) is not None]
    if not found:
        raise InputError(f"{path}: {told}")
    if len(found) > 1:
        lines = ", ".join(str(one.line) for one, _ in found[:8])
        raise InputError(f"{path}: {len(found)} commands train (lines {lines}); {which([one for one, _ in found])}")
    command, start = found[0]
    before = tuple(command.words[:start])
    return Launched(_arguments(command, command.words[start:], path), _ranks(command, before), before)


def _arguments(command: Command, words: Sequence[Word], path: str) -> Document:
    data: dict[str, Any] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    before, given = options(words)
    if before and before[0].text.lower().endswith((".yaml", ".yml", ".json")):
        name = before[0].known()
        file = beside(before[0], (path,)) or name
        base = read_json(file) if name.lower().endswith(".json") else read_yaml(file)
        data, before = dict(base.data), before[1:]
    pairs = [(match[1], (Word(match[2], word.where, word.why),), word.where) for word in before if (match := _KEY.fullmatch(word.text)) is not None]
    other = next((word for word in before if _KEY.fullmatch(word.text) is None), None)
    if other is not None:
        raise InputError(f"{other.where}: '{cut(other.text)}' is no argument of a training; they are --name value, or a YAML and name=value")
    for name, values, where in [*pairs, *((one.name[2:].replace("-", "_"), one.values, one.where) for one in given)]:
        data[name] = _value(values, command)
        line = natural(where.rpartition(":")[2])
        if line is not None:
            lines[(name,)] = line
    return Document(data, path, lines)


def _value(values: Sequence[Word], command: Command) -> Any:
    """A flag, a value, several of them; of a file that the script writes, what it holds."""
    if not values:
        return True
    if len(values) > 1:
        return [word.known() for word in values]
    (word,) = values
    text = command.files.get(word.text)
    if text is not None and text.why is None:
        return json_written(text).data
    return word.text if word.why is None else Unresolved(word.text, word.why)


def _ranks(command: Command, launcher: Sequence[Word]) -> int | None:
    """Ranks of a node times nodes, by the launcher's options and the environment; the devices that are visible are one node's."""
    told = {name: word.text for name, word in command.environment.items() if word.why is None}
    told |= {one.name[2:].replace("-", "_"): one.values[0].text for one in options(launcher)[1] if one.values and one.values[0].why is None}
    each = next((natural(told[name]) for name in _EACH if name in told), None)
    devices = told.get("CUDA_VISIBLE_DEVICES", "")
    if each is None and re.fullmatch(r"[0-9]+(,[0-9]+)*", devices):
        each = len(devices.split(","))
    nodes = next((natural(told[name]) for name in _NODES if name in told), None)
    return each * (nodes or 1) if each else None


def program_in(words: Sequence[str], signs: Sequence[str]) -> int | None:
    """Where a command names its program: a .py, or else the module behind -m that is given one of the signs."""
    found = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if found is None and any(word.partition("=")[0] in signs for word in words):
        found = max((at + 1 for at, word in enumerate(words[:-1]) if word in ("-m", "--module")), default=None)
    return found


def is_script(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in SCRIPTS
