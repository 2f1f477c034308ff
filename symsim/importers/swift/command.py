"""Where ms-swift's arguments stand: in a script, in a file of arguments, YAML or JSON, or on the command line; and for which of its commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from symsim.errors import InputError, cut
from symsim.importers.keys import Given, Unresolved, of_document
from symsim.importers.shell.options import options
from symsim.importers.shell.reader import Command, commands
from symsim.importers.shell.scope import Word
from symsim.importers.shell.texts import json_written
from symsim.inputs.reading import Document, read_json, read_text, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options

Program = Literal["megatron", "swift"]
_METHODS = ("sft", "pt", "rlhf")
_ASSIGNED = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_SCRIPT_OF = re.compile(r"(?:.*/)?swift/cli/(_megatron/)?(sft|pt|rlhf)\.py")
# arguments that only one of the two programs has
_OF_MEGATRON = frozenset(
    """micro_batch_size global_batch_size tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size
    context_parallel_size recompute_granularity train_iters mcore_model load lr finetune cross_entropy_loss_fusion""".split()
)
_OF_TRAINER = frozenset(
    """per_device_train_batch_size gradient_accumulation_steps deepspeed fsdp gradient_checkpointing learning_rate warmup_ratio
    attn_impl max_steps""".split()
)
# arguments that name a file of settings, which a script may write
_CONFIGURED = frozenset(["deepspeed", "fsdp"])
_LARGEST = 2**20


@dataclass(frozen=True)
class Run:
    """A command of ms-swift. program: `megatron` trains with Megatron-Core, `swift` with Hugging Face's trainer."""

    program: Program
    method: str
    arguments: Mapping[str, Given]
    environment: Mapping[str, Given]
    where: str
    notes: tuple[str, ...] = field(default=())


def read_run(inputs: Sequence[str], options: "Options") -> Run:
    """The command that trains. InputError where there is none, or more than one."""
    first = inputs[0]
    if len(inputs) == 1 and not first.startswith("-") and _ASSIGNED.fullmatch(first) is None:
        if os.path.splitext(first)[1].lower() in (".yaml", ".yml", ".json"):
            return _of_document(first)
        return _of_script(first, options)
    words = tuple(Word(text, f"argument {place}") for place, text in enumerate(inputs, 1))
    environment: dict[str, Word] = {}
    while words and (match := _ASSIGNED.fullmatch(words[0].text)) is not None:
        environment[match[1]] = Word(match[2], words[0].where)
        words = words[1:]
    return _of_command(Command(words, 1, environment), "the arguments")


def _of_script(path: str, options: "Options") -> Run:
    text = read_text(path, _LARGEST)
    found = commands(text, path, options.variables)
    if text.lstrip().startswith("--"):
        words = tuple(word for command in found for word in command.words)
        return _of_command(Command(words, 1, found[0].environment), path)
    training = [command for command in found if _program(command) is not None]
    if not training:
        raise InputError(f"{path}: no command 'megatron sft', 'swift sft' or the like (pt, rlhf) stands in it")
    if len(training) > 1:
        lines = ", ".join(str(command.line) for command in training[:8])
        raise InputError(f"{path}: {len(training)} commands train (lines {lines}); a file with one of them is needed")
    return _of_command(training[0], path)


def _program(command: Command) -> tuple[Program, str, int] | None:
    """Which program the words start, its method and where its arguments begin."""
    texts = [word.text for word in command.words]
    for place, text in enumerate(texts):
        name = text.rpartition("/")[2]
        if name in ("megatron", "swift") and texts[place + 1 : place + 2] and texts[place + 1] in _METHODS:
            return ("megatron" if name == "megatron" else "swift"), texts[place + 1], place + 2
        match = _SCRIPT_OF.fullmatch(text)
        if match is not None:
            return ("megatron" if match[1] else "swift"), match[2], place + 1
    return None


def _of_command(command: Command, where: str) -> Run:
    found = _program(command)
    words = command.words[found[2] :] if found is not None else command.words
    environment = {**_launched(command.words[: found[2]] if found is not None else ()), **{n: _known(w) for n, w in command.environment.items()}}
    arguments: dict[str, Given] = {}
    notes: list[str] = []
    before, given = options(words)
    if before and os.path.splitext(before[0].text)[1].lower() in (".yaml", ".yml", ".json") and found is not None:
        more = _of_file(_found(before[0], where))
        arguments, environment = dict(more[0]), {**more[1], **environment}
        before = before[1:]
    if before:
        raise InputError(f"{before[0].where}: '{cut(before[0].text)}' is no argument of ms-swift; arguments are --name value")
    for option in given:
        name = option.name[2:].replace("-", "_")
        if name == "config" and option.values:
            more = _of_file(_found(option.values[0], where))
            arguments, environment = {**more[0], **arguments}, {**more[1], **environment}
            continue
        if name in arguments:
            notes.append(f"--{name} is given more than once; the last holds, as in ms-swift")
        values = [_known(word) for word in option.values]
        arguments[name] = (
            Given("true", option.where) if not values else values[0] if len(values) == 1 else Given([one.value for one in values], option.where)
        )
    for name in _CONFIGURED & arguments.keys():
        text = command.files.get(str(arguments[name].value))
        if text is not None:
            arguments[name] = Given(json_written(text).data if text.why is None else Unresolved(text.text, text.why), text.where)
    program, method = found[:2] if found is not None else _guessed(arguments, where)
    if found is None:
        notes.append(f"taken as arguments of '{program} {method}'")
    return Run(program, method, arguments, environment, where, tuple(notes))


def _found(word: Word, script: str) -> str:
    """The file that a word names, from here or, where it is not there, from beside the script."""
    name = os.path.basename(word.text)
    beside = os.path.join(os.path.dirname(script), name)
    if "$" not in name and os.path.exists(beside) and (word.why is not None or not os.path.exists(word.text)):
        return beside
    return word.known()


def _launched(words: Sequence[Word]) -> dict[str, Given]:
    """What a launcher before the program (torchrun, python -m torch.distributed.run) says of the ranks."""
    told = {"nproc_per_node": "NPROC_PER_NODE", "nnodes": "NNODES"}
    found: dict[str, Given] = {}
    for option in options(words)[1]:
        name = told.get(option.name[2:].replace("-", "_"))
        if name is not None and option.values:
            found[name] = _known(option.values[0])
    return found


def _known(word: Word) -> Given:
    """The word as a value; one that only a run could tell carries the reason, for whoever needs it."""
    return Given(word.text if word.why is None else Unresolved(word.text, word.why), word.where)


def _of_document(path: str) -> Run:
    arguments, environment = _of_file(path)
    program, method = _guessed(arguments, path)
    return Run(program, method, arguments, environment, path, (f"taken as arguments of '{program} {method}'",))


def _of_file(path: str) -> tuple[dict[str, Given], dict[str, Given]]:
    """The arguments of a YAML or JSON file, and the variables of its key ENV."""
    document: Document = read_json(path) if path.lower().endswith(".json") else read_yaml(path)
    arguments = {key.removeprefix("--").replace("-", "_"): given for key, given in of_document(document).items()}
    trained = arguments.pop("train", None)
    if trained is not None:
        arguments |= _of_ray(trained, document)
    variables = arguments.pop("ENV", None)
    if variables is None or variables.value is None:
        return arguments, {}
    if not isinstance(variables.value, dict) or not all(isinstance(value, (str, int, float)) for value in variables.value.values()):
        raise InputError(f"{variables.where}: ENV should be a mapping of variables to their values")
    return arguments, {name: Given(value, document.place(("ENV", name))) for name, value in variables.value.items()}


def _of_ray(trained: Given, document: Document) -> dict[str, Given]:
    """The arguments of the ranks that train, where Ray gives every part of a job its own; `gpus` is how many they are."""
    if not isinstance(trained.value, dict):
        raise InputError(f"{trained.where}: train should be a mapping of arguments to their values")
    return {key.replace("-", "_"): Given(value, document.place(("train", key))) for key, value in trained.value.items()}


def _guessed(arguments: Mapping[str, Given], where: str) -> tuple[Program, str]:
    """The program and the method whose arguments these are."""
    megatron, trainer = len(_OF_MEGATRON & arguments.keys()), len(_OF_TRAINER & arguments.keys())
    if not arguments or megatron == trainer:
        raise InputError(f"{where}: whose arguments these are is not plain; begin with 'megatron sft' or 'swift sft' (pt, rlhf)")
    return ("megatron" if megatron > trainer else "swift"), "rlhf" if "rlhf_type" in arguments else "sft"
