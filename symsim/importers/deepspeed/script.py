"""A script that starts a training with a DeepSpeed JSON: `deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 4 ...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from symsim.errors import InputError
from symsim.importers.deepspeed import chat, openrlhf
from symsim.importers.documents import SAID
from symsim.importers.launched import is_script, program_in, read_script
from symsim.importers.ranks import WORLD, world_size
from symsim.importers.shell.reader import Command
from symsim.inputs.reading import Document

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_SIGNS = ("--deepspeed", "--deepspeed_config", "--per_device_train_batch_size")


def of_script(inputs: Sequence[str], options: "Options") -> tuple[list[str], "Options", Document | None]:
    """The other files; options with the ranks that the script starts; its arguments, None without a script."""
    scripts = [path for path in inputs if is_script(path)]
    if not scripts:
        return list(inputs), options, None
    if len(scripts) > 1:
        raise InputError(f"{scripts[1]}: a second script; 'symsim import deepspeed' reads one")
    (path,) = scripts
    told = "no command starts a training: a .py with --deepspeed, --deepspeed_config or --per_device_train_batch_size"
    launched = read_script(path, options.variables, _start, told)
    said = {name: text for name, text in options.variables.items() if name in (*WORLD, *SAID, "seq_length")}
    if launched.world is not None and world_size(options) is None:
        said["world"] = str(launched.world)
    document = launched.document
    if any(_of_openrlhf(word.text) for word in launched.launcher):
        document = openrlhf.told(document)
    elif chat.is_told(document.data):
        document = chat.told(document)
    elif "deepspeed_config" in document.data:
        document = _named(document)
    return [other for other in inputs if other != path], replace(options, variables=said), document


def _named(document: Document) -> Document:
    """The JSON as DeepSpeed's own argument names it (deepspeed/__init__.py add_config_arguments), under the Trainer's name."""
    data = {name: value for name, value in document.data.items() if name not in ("deepspeed", "deepspeed_config")}
    lines = {("deepspeed",) if path == ("deepspeed_config",) else path: line for path, line in document.lines.items() if path != ("deepspeed",)}
    return Document({**data, "deepspeed": document.data["deepspeed_config"]}, document.where, lines)


def _of_openrlhf(word: str) -> bool:
    return openrlhf.PROGRAM.search(word) is not None


def _start(command: Command) -> int | None:
    """Where the arguments of a training begin: behind the .py that is given one of the signs."""
    at = program_in([word.text for word in command.words], _SIGNS)
    of_openrlhf = next((number for number, word in enumerate(command.words) if _of_openrlhf(word.text)), None)
    if of_openrlhf is not None:
        return of_openrlhf + 1
    if at is None or not any(word.text.partition("=")[0] in _SIGNS for word in command.words[at:]):
        return None
    return at + 1
