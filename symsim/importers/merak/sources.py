"""What Merak is given, from wherever: a Python script, JSON or YAML, a shell script, or arguments as on its command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symsim.errors import InputError, cut, nearest
from symsim.importers.keys import Given, Unresolved
from symsim.importers.merak.python_text import Call, read_script
from symsim.importers.reading import Options
from symsim.importers.shell.options import options
from symsim.importers.shell.reader import Command, commands
from symsim.importers.shell.scope import Word
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import model_of_mapping
from symsim.inputs.reading import Document, read_json, read_text, read_yaml

# Merak.init, Merak/initialize.py: the order of its parameters; docs and README name them in others
DEGREES = ("pp", "tp", "dp", "sp")
_SECTIONS = ("init", "args", "set_tp_layer_lists")
# classes of configs that a script may make, and their model_type
_CONFIGS = {
    "GPT2Config": "gpt2",
    "LlamaConfig": "llama",
    "Qwen2Config": "qwen2",
    "Qwen3Config": "qwen3",
    "MistralConfig": "mistral",
    "OPTConfig": "opt",
    "GPTNeoXConfig": "gpt_neox",
    "GPTJConfig": "gptj",
    "BloomConfig": "bloom",
    "FalconConfig": "falcon",
    "PhiConfig": "phi",
    "GemmaConfig": "gemma",
}
_ENGINE = "backend"
_LONGEST = 2**20


@dataclass
class Sources:
    """What the inputs give: arguments by name, a model where one is made or given, and remarks for the user."""

    given: dict[str, Given] = field(default_factory=dict)
    model: Architecture | None = None
    notes: list[str] = field(default_factory=list)
    faithful: bool = False

    def add(self, key: str, value: Any, where: str) -> None:
        """One argument. InputError where another input gives it another value; what only a run could tell gives way to a value."""
        before = self.given.get(key)
        if before is not None and isinstance(value, Unresolved):
            return
        if before is not None and before.value != value and not isinstance(before.value, Unresolved):
            raise InputError(f"{where}: {key} is {_shown(value)}, and {before.where} gives {_shown(before.value)}; one job has one value")
        self.given[key] = Given(value, where)


def read_sources(inputs: Sequence[str], options_: Options, known: Iterable[str]) -> Sources:
    """All that the inputs give. known: names of arguments, of which a command line may give beginnings."""
    made = Sources(faithful=options_.faithful)
    names = sorted(known)
    files = [*inputs]
    first = next((at for at, one in enumerate(files) if one.startswith("--")), len(files))
    for one in files[:first]:
        _file(made, one, options_, names)
    if first < len(files):
        _arguments(made, [Word(text, "the command line") for text in files[first:]], names)
    return made


def _file(made: Sources, one: str, options_: Options, names: Sequence[str]) -> None:
    suffix = Path(one).suffix.lower() if len(one) < 4096 else ""
    if "(" in one and suffix not in (".py", ".json", ".yaml", ".yml", ".sh"):
        _python(made, one, "the text", options_)
    elif suffix == ".py":
        _python(made, read_text(one, _LONGEST), one, options_)
    elif suffix in (".json", ".yaml", ".yml"):
        _document(made, read_json(one) if suffix == ".json" else read_yaml(one))
    elif suffix in (".sh", ".bash", ".slurm", ".sbatch"):
        _script(made, commands(read_text(one, _LONGEST), one, options_.variables), one, names)
    else:
        raise InputError(f"{cut(one)}: 'symsim import merak' reads .py, .json, .yaml and .sh files, and arguments from the first '--' on")


# Python


def _python(made: Sources, text: str, where: str, options_: Options) -> None:
    readers: dict[str, Callable[[Sources, Call], None]] = {
        "MerakArguments": _keywords,
        "set_tp_layer_lists": _keywords,
        "MerakTrainer": _trainer,
        "init": _init,
    }
    found = False
    script = read_script(text, where, options_.variables)
    for one in script.attributes:
        if one.name == "_attn_implementation":
            made.add("_attn_implementation", one.value, one.where)
    for call in script.calls:
        reader = readers.get(call.name)
        if reader is not None and (call.name != "init" or call.of in ("Merak", "merak")):
            reader(made, call)
            found = True
        elif call.name in _CONFIGS:
            _config(made, call)
    if not found:
        raise InputError(f"{where}: no call of MerakArguments, Merak.init or MerakTrainer is in it")


def _keywords(made: Sources, call: Call) -> None:
    for one in call.keywords:
        if one.name is None:
            made.notes.append(f"{one.where}: what **{one.value} gives is not read")
        else:
            made.add(one.name, one.value, one.where)


def _trainer(made: Sources, call: Call) -> None:
    """Of the trainer, what Merak reads besides the arguments; modules and functions by the name they are written with."""
    for one in call.keywords:
        if one.name in ("leaf_modules", "loss_fn"):
            made.add(one.name, str(one.value), one.where)


def _init(made: Sources, call: Call) -> None:
    """Merak.init(pp, tp, dp, sp): by position, unless the variables there have the degrees' names in another order."""
    if len(call.positional) > len(DEGREES) + 1:
        raise InputError(f"{call.where}: Merak.init takes pp, tp, dp and sp, and {len(call.positional)} values are given")
    written = [one.name for one in call.positional]
    order: Sequence[str | None] = DEGREES[: len(written)]
    known = written == [name for name in written if name in DEGREES] and len(set(written)) == len(written)
    if known and list(order) != written:
        said = f"{call.where}: Merak.init({', '.join(map(str, written))}) is given degrees in another order than its parameters (pp, tp, dp, sp)"
        if made.faithful:
            made.notes.append(f"{said}; taken by position, as Merak runs")
        else:
            made.notes.append(f"{said}; taken by name, as it is meant, while Merak runs them by position (--faithful)")
            order = written
    for name, one in zip(order, call.positional):
        made.add(str(name), one.value, one.where)
    for one in call.keywords:
        if one.name in DEGREES:
            made.add(one.name, one.value, one.where)
        elif one.name != _ENGINE:
            raise InputError(f"{one.where}: Merak.init has no parameter '{one.name}': {nearest(str(one.name), DEGREES)}")


def _config(made: Sources, call: Call) -> None:
    """A config made in the script, where all that it is given is known."""
    given = {one.name: one.value for one in call.keywords if one.name is not None}
    if len(given) < len(call.keywords) or call.positional or any(isinstance(one, Unresolved) for one in given.values()):
        made.notes.append(f"{call.where}: the {call.name} that is made here is known only as the script runs; --of names the model")
        return
    made.model = model_of_mapping({"model_type": _CONFIGS[call.name], **given}).architecture


# files of keys


def _document(made: Sources, document: Document) -> None:
    """Arguments at the top, or under args, init and set_tp_layer_lists; or a Hugging Face config.json."""
    if "model_type" in document.data and "train_schedule" not in document.data:
        from symsim.inputs.models import import_hf

        made.model = import_hf(document.where).architecture
        return
    for key, value in document.data.items():
        if key in _SECTIONS and isinstance(value, Mapping):
            for inner, one in value.items():
                made.add(str(inner), one, document.place((key, inner)))
        else:
            made.add(key, value, document.place((key,)))


# command lines


def _script(made: Sources, found: Sequence[Command], where: str, names: Sequence[str]) -> None:
    """The one command of a script that runs a Python file with options."""
    runs = []
    for command in found:
        at = next((n for n, word in enumerate(command.words) if word.text.endswith(".py")), None)
        if at is not None and at + 1 < len(command.words):
            runs.append(command.words[at + 1 :])
    if len(runs) != 1:
        raise InputError(f"{where}: {len(runs)} commands run a Python file with arguments, and one is a job; leave one")
    _arguments(made, runs[0], names)


def _arguments(made: Sources, words: Sequence[Word], names: Sequence[str]) -> None:
    """Options as transformers' HfArgumentParser reads them: the last of two holds, and a beginning stands for the one name it begins."""
    before, found = options(words)
    if before:
        raise InputError(f"{before[0].where}: '{cut(before[0].text)}' stands before the first option; an option is --NAME VALUE")
    last: dict[str, Given] = {}
    for option in found:
        name = _named(option.name.lstrip("-").replace("-", "_"), names)
        values: list[Any] = [word.text if word.why is None else Unresolved(word.text, word.why) for word in option.values]
        value = values if len(values) > 1 else values[0] if values else True
        negated = name.startswith("no_") and name not in names and name[3:] in names
        last[name[3:] if negated else name] = Given(False if negated else value, option.where)
    for name, given in last.items():
        made.add(name, given.value, given.where)


def _named(name: str, names: Sequence[str]) -> str:
    begun = [one for one in names if one.startswith(name)]
    return begun[0] if len(begun) == 1 and len(name) > 3 else name


def _shown(value: Any) -> str:
    return cut(str(value), 40)
