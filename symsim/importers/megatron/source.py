"""What Megatron-LM is given, in any of its shapes, as arguments of its command line with where each stands.

Shapes: launch scripts, argument lists, YAML or JSON of arguments or of configuration fields, and the nested overrides of a recipe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from symsim.errors import InputError, cut
from symsim.importers.assumed import ALLOCATOR
from symsim.importers.deepspeed.reader import is_deepspeed
from symsim.importers.keys import Entry, Given, Silent, Unresolved, shown
from symsim.importers.megatron.adapters import ARGUMENTS
from symsim.importers.megatron.arguments import FLAGS, FORKS, LISTS, RENAMED, SEVERAL, SWITCHED_OFF, VALUED
from symsim.importers.megatron.bridge import BRIDGE, INNER
from symsim.importers.megatron.configured import TABLE as CONFIGURED
from symsim.importers.megatron.configured import is_configured, of_configured
from symsim.importers.megatron.experiments import is_experiment, ranks_of, rows_of, training_file
from symsim.importers.megatron.gaps import GAPS
from symsim.importers.megatron.nemo import PRIMUS, TABLE, is_nemo, is_primus, of_nemo, of_primus
from symsim.importers.megatron.silent import SILENT
from symsim.importers.repeated import read_repeated
from symsim.importers.shell.command import which
from symsim.importers.shell.options import Option, options
from symsim.importers.shell.reader import Command, assigned, scripts
from symsim.importers.shell.scope import Word
from symsim.importers.shell.slurm import header
from symsim.importers.shell.texts import json_written
from symsim.importers.shell.words import value_of
from symsim.inputs.reading import Document, read_json, read_text, read_yaml

Dialect = Literal["arguments", "fields", "recipe"]

# sections of a recipe, and of files that name their arguments in groups
_SECTIONS = frozenset(
    """
    model train training peft ddp optimizer dist comm_overlap mixed_precision dataset data tokenizer MODEL_ARGS
    """.split()
)
_RUN_SECTIONS = frozenset(
    """
    checkpoint logger scheduler rng profiling validation straggler ft nvrx_straggler inprocess_restart rerun_state_machine tensor_inspect
    env ENV_VARS ft_package METRICS LAUNCHER SKIP_PYTEST N_REPEAT TEST_TYPE MODE BEFORE_SCRIPT AFTER_SCRIPT tensor_inspect opentelemetry
    """.split()
)
# sections of FlagScale's training files
_OF_FLAGSCALE = ("system", "model")
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)=(.*)", re.DOTALL)
_RECIPE_ARGUMENTS = {"peft_scheme": "peft.scheme", "seq_length": "seq_length", "packed_sequence": "packed_sequence"}
_RECIPE_RUN = ("dataset", "step_func", "mode", "hf_path", "dryrun", "debug")
_RECIPE = "what it names is not read: beside the overrides, defaults of Megatron-Core, and the model of --of MODEL"
_LONGEST_SCRIPT = 2**19
# of Megatron-LM before 2022-05, where there was no other way than whole layers
_OLDER = {
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
}


@dataclass
class Source:
    """Arguments by name, with `_`; the ranks where they are told; and every key as it was written.

    dialect: whose defaults hold. entry: the program that is started. written: (key, value, argument) as written. run: rows of keys that
    belong to no argument. settings: DeepSpeed's JSON. configured: whether a file stands instead of the command line (--yaml-cfg).
    """

    dialect: Dialect = "arguments"
    name: str = "megatron"
    entry: str = ""
    given: dict[str, Given] = field(default_factory=dict)
    written: list[tuple[str, str, str]] = field(default_factory=list)
    run: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    world: int | None = None
    ranks: str = ""
    settings: Document | None = None
    configured: bool = False

    def put(self, argument: str, written: str, value: Any, where: str, turned: bool = False, said: str | None = None) -> None:
        """Take a value for an argument. turned: the key says the opposite of the argument. said: what the key says, where it is another value."""
        said = shown(value) if said is None else said
        if turned:
            value = _opposite(value, written, where)
        before = self.given.get(argument)
        if before is not None and shown(before.value) != shown(value):
            if self.dialect != "arguments":
                raise InputError(f"{where}: {written} is {cut(said)}, and {before.where} gives {cut(shown(before.value))} for the same")
            self.notes.append(f"{where}: {written} is given again, and the last one holds, as on Megatron-LM's command line")
        self.written.append((written, said, argument))
        self.given[argument] = Given(value, where)

    def rename(self, own: str, name: str, value: Any = None) -> None:
        """Take what an argument is given for another's, with that value where there is one; of both, the latter's stays."""
        if own not in self.given:
            return
        one = self.given.pop(own)
        self.given.setdefault(name, one if value is None else replace(one, value=value))
        self.written[:] = [(key, said, name if argument == own else argument) for key, said, argument in self.written]


def read_source(inputs: Sequence[str], variables: Mapping[str, str], lenient: bool = False) -> Source:
    """The arguments in files and on the command line; later ones hold. lenient: of keys given twice in YAML too, with a row. InputError names
    the line of what does not fit."""
    found = Source()
    start = next((at for at, text in enumerate(inputs) if text.startswith("--")), len(inputs))
    files = [text for text in inputs[:start] if not _OVERRIDE.fullmatch(text)]
    texts: list[tuple[str, str]] = []
    for file in files:
        suffix = Path(file).suffix.lower()
        if suffix in (".yaml", ".yml", ".json"):
            _document(found, read_json(file) if suffix == ".json" else _yaml(found, file, lenient), variables)
        elif suffix == ".py":
            raise InputError(f"{file}: Python is not run; of a recipe, its overrides are read, from YAML or as model.tensor_model_parallel_size=2")
        else:
            texts.append((read_text(file, _LONGEST_SCRIPT), file))
        found.name = Path(file).stem or found.name
    if texts:
        _scripts(found, texts, variables)
    for text in inputs[:start]:
        if (match := _OVERRIDE.fullmatch(text)) is not None:
            found.dialect = "recipe"
            _override(found, match, Word(match[2], "the command line"))
    _arguments(found, [Word(text, "the command line") for text in inputs[start:] if text != "--"])
    return found


def _yaml(found: Source, file: str, lenient: bool) -> Document:
    document, rows = read_repeated(file, lenient, "the loader of Megatron-LM's tests")
    found.run += rows
    return document


def _scripts(found: Source, texts: Sequence[tuple[str, str]], variables: Mapping[str, str]) -> None:
    commands = scripts(texts, variables)
    if commands and all(one.words[0].text.startswith("--") for one in commands):
        _arguments(found, [word for one in commands for word in one.words])
        return
    if commands and all(_OVERRIDE.fullmatch(word.text) for one in commands for word in one.words):
        found.dialect = "recipe"
        for word in (word for one in commands for word in one.words):
            match = _OVERRIDE.fullmatch(word.text)
            assert match is not None
            _override(found, match, Word(match[2], word.where, word.why))
        return
    start = _launch(commands, texts[-1][1])
    if start is None:
        _open(commands)
        _lists(found, texts, variables)
        return
    command, at = start
    found.entry = next((word.text.rpartition("/")[2] for word in command.words[:at][::-1] if word.text.endswith(".py")), "")
    _ranks(found, command.words[:at], "\n".join(text for text, _ in texts))
    for name, word in command.environment.items():
        if name in ALLOCATOR:
            found.put(name, name, word.text if word.why is None else Unresolved(word.text, word.why), word.where)
    rest = command.words[at:]
    if found.configured and any(word.text in _CONFIGURED for word in rest):
        why = "Megatron-LM leaves arguments aside beside --yaml-cfg"
        found.run += [Entry(one.name, " ".join(word.text for word in one.values), "no_cost_effect", why=why) for one in options(rest)[1]]
        return
    overrides = [(word, match) for word in rest if (match := _OVERRIDE.fullmatch(word.text)) is not None and not word.text.startswith("--")]
    if overrides:
        found.dialect = "recipe"
        for word, match in overrides:
            _override(found, match, Word(match[2], word.where, word.why))
        _of_recipe(found, options([word for word in rest if all(word is not other for other, _ in overrides)])[1])
        return
    _arguments(found, rest)
    _settings(found, command)


def _of_recipe(found: Source, given: Sequence[Option]) -> None:
    """What the program that starts a recipe is told besides overrides, which hold (Megatron-Bridge scripts/training/run_recipe.py)."""
    for option in given:
        name = option.name[2:].replace("-", "_")
        argument = _RECIPE_ARGUMENTS.get(name)
        value: Any = True
        if option.values:
            (word, *_) = option.values
            value = word.text if word.why is None else Unresolved(word.text, word.why)
        if argument is not None and argument not in found.given:
            found.put(argument, option.name, value, option.where)
        else:
            of_run = argument is not None or name in _RECIPE_RUN
            why = "an override holds" if argument is not None else "of the run: its data, and what calls a step" if of_run else _RECIPE
            found.run.append(Entry(option.name, shown(value), "no_cost_effect" if of_run else "not_modelled", why=why))


def _settings(found: Source, command: Command) -> None:
    """DeepSpeed's JSON, where the script writes it and no other is given."""
    named = found.given.get("deepspeed_config")
    text = command.files.get(str(named.value)) if named is not None else None
    if text is None or found.settings is not None:
        return
    if text.why is not None:
        found.notes.append(f"the JSON that {cut(found.name)} writes for DeepSpeed is not read: {text.why}")
    else:
        found.settings = json_written(text)


def _open(commands: Sequence[Command]) -> None:
    """InputError for a command that is nothing but variables, the last of which hangs on one that nothing sets."""
    for words in (command.words for command in commands):
        name = re.search(r"has no value; --var (\w+)=VALUE", words[-1].why or "")
        if name is not None and re.fullmatch(r"\$\{?\w+\}?", words[-1].text) and all(word.why is not None for word in words):
            raise InputError(f"{words[-1].why}; --var {name[1]}= leaves it empty")


def _lists(found: Source, texts: Sequence[tuple[str, str]], variables: Mapping[str, str]) -> None:
    """The arguments of a file that only sets variables, for another to start with. InputError where there are none."""
    lists = {name: words for name, words in assigned(texts, variables).items() if words and words[0].text.startswith("--")}
    if not any(_tells(word.text) for words in lists.values() for word in words):
        raise InputError(f"{texts[-1][1]}: no command here starts a training of Megatron-LM, a .py with arguments such as --num-layers")
    launcher = {name for name, words in lists.items() if any(word.text.replace("_", "-") in ("--nnodes", "--nproc-per-node") for word in words)}
    _ranks(found, [word for name in launcher for word in lists[name]], "\n".join(text for text, _ in texts))
    taken = [name for name in lists if name not in launcher]
    found.notes.append(f"no command starts a training; its arguments are taken from {', '.join(f'${name}' for name in taken)}")
    _arguments(found, [word for name in taken for word in lists[name]])


def _launch(commands: Sequence[Command], where: str) -> tuple[Command, int] | None:
    """The command that starts the training, and where its arguments begin; None where there is none."""
    starts: list[tuple[Command, int]] = []
    for command in commands:
        texts = [word.text for word in command.words]
        script = next((at + 1 for at, text in enumerate(texts) if text.endswith(".py") and not text.startswith("-")), None)
        if script is None:
            script = next((at for at, text in enumerate(texts) if _tells(text)), None)
        if script is not None and any(_tells(text) or _OVERRIDE.fullmatch(text) for text in texts[script:]):
            starts.append((command, script))
    if not starts:
        return None
    different = {tuple(word.text for word in command.words[at:]) for command, at in starts}
    if len(different) > 1:
        lines = ", ".join(command.words[0].where.rpartition(":")[2] for command, _ in starts[:5])
        raise InputError(f"{where}: {len(starts)} commands here start a training (lines {lines}); {which([one for one, _ in starts])}")
    return starts[0]


_CONFIGURED = ("--yaml-cfg", "--yaml_cfg")
_TELLING = frozenset(
    ["--yaml-cfg", "--num-layers", "--tensor-model-parallel-size", "--micro-batch-size", "--hidden-size", "--global-batch-size", "--seq-length"]
)


def _tells(text: str) -> bool:
    # forks write names with underscores
    return text.replace("_", "-") in _TELLING


def _ranks(found: Source, launcher: Sequence[Word], text: str) -> None:
    """The number of ranks that torchrun, DeepSpeed's launcher, or a job's header, starts."""
    given: dict[str, Word] = {}
    for one in options(launcher, short=True)[1]:
        if one.values:
            given[one.name.lstrip("-").replace("-", "_")] = one.values[0]
    asked = header(text)
    nodes = _whole(given.get("nnodes") or given.get("num_nodes") or given.get("N")) or asked.get("nodes")
    each = _whole(given.get("nproc_per_node") or given.get("num_gpus") or given.get("ntasks_per_node") or given.get("gpus_per_node"))
    each = each or max((asked.get(name, 0) for name in ("ntasks-per-node", "gpus-per-node", "gres")), default=0) or None
    if each is not None:
        found.world = each * (nodes or 1)
        found.ranks = f"{nodes or 1} nodes of {each} ranks"
    unknown = next((given[name].why for name in ("nproc_per_node", "nnodes", "num_gpus", "num_nodes") if name in given and given[name].why), None)
    if unknown and (each is None or nodes is None):
        found.world, found.ranks = None, ""
        found.notes.append(f"the number of ranks is not known: {unknown}")


def _whole(word: Word | None) -> int | None:
    return int(word.text) if word is not None and word.why is None and re.fullmatch(r"[0-9]{1,7}", word.text) else None


def _arguments(found: Source, words: Sequence[Word]) -> None:
    before, given = options(words)
    _leave_empty(found, before)
    before = [word for word in before if not word.empty]
    if before:
        raise InputError(_left(before[0]) or f"{before[0].where}: '{cut(before[0].text)}' is the value of no argument")
    for option in given:
        argument = option.name[2:].replace("-", "_")
        argument = _OLDER.get(argument, argument)
        if option.name.endswith(("activations-checkpoint-method", "activations_checkpoint_method")):
            found.given.setdefault("recompute_granularity", Given("full", option.where))
        most = _most(argument)
        if most is not None and len(option.values) > most:
            _leave_empty(found, option.values[most:])
            option = Option(option.name, (*option.values[:most], *(word for word in option.values[most:] if not word.empty)), option.where)
        found.put(argument, option.name, _value(option, argument), option.where)


def _leave_empty(found: Source, words: Sequence[Word]) -> None:
    """Say of variables that nothing sets that they are empty, as a shell has them."""
    found.notes += [f"{word.where}: nothing that is read sets {word.text}: it is taken as empty" for word in words if word.empty]


def _known(argument: str) -> bool:
    return any(argument in names for names in (FLAGS, FORKS, LISTS, VALUED, SILENT, GAPS))


def _most(argument: str) -> int | None:
    """How many values an argument takes; None for any number."""
    return 0 if argument in FLAGS or argument in FORKS else None if argument in LISTS or argument in SEVERAL or not _known(argument) else 1


def _value(option: Option, argument: str) -> Any:
    """The value of an argument as its definition has it. InputError for one too many or too few."""
    values = [word.text if word.why is None else Unresolved(word.text, word.why) for word in option.values]
    most, known = _most(argument), _known(argument)
    if most is not None and len(values) > most:
        extra = option.values[most]
        said = f"{option.name} takes {'one value' if most else 'no value'}, and '{cut(extra.text)}' is the value of no argument"
        raise InputError(_left(extra) or f"{extra.where}: {said}")
    if not values and known and most != 0:
        # a script that is published leaves paths open, as variables that hold nothing
        return Unresolved("", f"{option.where}: {option.name} has no value")
    if most == 0 or not values:
        return True
    return values if argument in LISTS or len(values) > 1 else values[0]


def _left(word: Word) -> str | None:
    """Why a word that is no argument's value is not known; a variable may be left out."""
    name = re.fullmatch(r"\$\{?(\w+)\}?", word.text, re.ASCII)
    return word.why if word.why is None or name is None else f"{word.why}; --var {name[1]}= leaves it empty"


def _override(found: Source, match: re.Match[str], value: Word) -> None:
    section, _, key = match[1].partition(".")
    _nested(found, section, key, _plain(value.text) if value.why is None else Unresolved(value.text, value.why), value.where)


def _document(found: Source, document: Document, variables: Mapping[str, str]) -> None:
    if is_nemo(document.data) or is_primus(document.data) or is_configured(document.data):
        _elsewhere(found, document, variables)
        return
    if is_deepspeed(document.data):
        found.settings = document
        return
    if is_experiment(document.data):
        found.run += rows_of(document)
        found.world, found.ranks = ranks_of(document)
        return _document(found, read_yaml(training_file(document)), variables)
    if all(isinstance(document.data.get(section), dict) for section in _OF_FLAGSCALE):
        _flattened(found, document, (), variables)
        return
    nested = [key for key, value in document.data.items() if isinstance(value, dict) and (key in _SECTIONS or key in _RUN_SECTIONS)]
    if nested:
        found.dialect = "arguments" if "MODEL_ARGS" in nested else "recipe"
    elif not any(key in FLAGS - SWITCHED_OFF.keys() - _FIELDS or key.startswith("-") for key in document.data):
        found.dialect = "fields"
    for key, value in document.data.items():
        if key in _SECTIONS and isinstance(value, dict):
            for name, inner in value.items():
                _nested(found, key, name, _resolved(inner, document.place((key, name)), variables), document.place((key, name)))
        elif key in _RUN_SECTIONS or (key in _SECTIONS and not _known(key)):
            _nested(found, key, "", _resolved(value, document.place((key,)), variables), document.place((key,)))
        else:
            put_field(found, key, key, _resolved(value, document.place((key,)), variables), document.place((key,)))


def _flattened(found: Source, document: Document, path: tuple[str, ...], variables: Mapping[str, str]) -> None:
    """Arguments in sections of any depth, whose names say nothing (FlagScale, whose runner makes a command line of them)."""
    section: Any = document.data
    for name in path:
        section = section[name]
    for key, value in section.items():
        inner = (*path, str(key))
        if isinstance(value, dict):
            _flattened(found, document, inner, variables)
        else:
            where = document.place(inner)
            put_field(found, str(key), ".".join(inner), _resolved(value, where, variables), where)


def _elsewhere(found: Source, document: Document, variables: Mapping[str, str]) -> None:
    """A configuration of NeMo or Primus, or of --yaml-cfg: its keys under Megatron-LM's names, and rows for those that are none of its
    arguments."""
    nemo, found.configured = is_nemo(document.data), is_configured(document.data)
    found.dialect = "fields" if nemo else "arguments"
    keys = of_nemo(document) if nemo else of_configured(document) if found.configured else of_primus(document)
    for argument, written, value, given, where in keys:
        value = _resolved(value, where, variables)
        if argument and isinstance(value, dict):
            # a section of another model, or a misplaced one: no key is called so
            found.put(argument, written, value, where, said=shown(given))
        elif argument:
            put_field(found, argument, written, value, where, shown(given))
        if argument:
            continue
        name = written.removeprefix("model.").removeprefix("overrides.")
        table = TABLE if nemo else CONFIGURED if found.configured else PRIMUS
        known = table.get(name, table.get(name.partition(".")[0]))
        off = not given or known is None or given in known.neutral
        fate = "no_cost_effect" if off or known is None else known.fate
        found.run.append(Entry(written, shown(given), fate, why="off at this value" if off and known and known.fate != fate else _why(known)))


def _why(known: Silent | None) -> str:
    return known.why if known is not None else "of the run, or off at this value"


# arguments without a value that are fields of the same name, and so do not tell arguments from fields
_FIELDS = frozenset(
    """
    sequence_parallel fp16 bf16 deterministic_mode tp_comm_overlap cross_entropy_loss_fusion overlap_moe_expert_parallel_comm
    delay_wgrad_compute hybrid_context_parallel use_cpu_initialization defer_embedding_wgrad_compute use_ring_exchange_p2p mtp_standalone
    overlap_dispatch_backward_with_experts_wgrad ep_overlap_early_attn_memory_release cpu_offloading_retain_pinned_cpu_buffers
    tp_comm_overlap_rs_dgrad moe_extended_tp async_tensor_model_parallel_allreduce tp_comm_overlap_disable_qkv tp_comm_overlap_disable_fc1
    """.split()
)


def _nested(found: Source, section: str, key: str, value: Any, where: str) -> None:
    """A key inside a section."""
    written = f"{section}.{key}" if key else section
    if section in _RUN_SECTIONS:
        found.run.append(Entry(written, shown(value) if not isinstance(value, dict) else "..", "no_cost_effect", why=f"of the run: {section}"))
    elif not key and section == "mixed_precision" or (section, key) == ("model", "mixed_precision"):
        found.put("mixed_precision", written, value, where)
    elif section == "peft" and written in ARGUMENTS:
        found.put(ARGUMENTS[written], written, value, where)
    elif section == "peft":
        found.run.append(Entry(written, shown(value), "no_cost_effect", why="a number of adapters' beginnings"))
    elif key in INNER and isinstance(value, dict):
        for name, one in value.items():
            _inner(found, f"{written}.{name}", BRIDGE[key], one, where)
    elif key.partition(".")[0] in INNER and "." in key:
        _inner(found, written, BRIDGE[key.partition(".")[0]], value, where)
    elif not key or isinstance(value, dict):
        raise InputError(f"{where}: {cut(written)} is {cut(shown(value))}; it should be {'a section of keys' if not key else 'a value'}")
    else:
        put_field(found, key, key.lstrip("-") if section == "MODEL_ARGS" else written, value, where)


def _inner(found: Source, written: str, known: Silent, value: Any, where: str) -> None:
    """A key of a section inside a section."""
    if written.endswith(".packed_sequence_size"):
        found.put("packed_sequence_size", written, value, where)
    else:
        found.run.append(Entry(written, shown(value), known.fate, why=known.why))


def put_field(found: Source, key: str, written: str, value: Any, where: str, said: str | None = None) -> None:
    name = key.lstrip("-").replace("-", "_")
    if isinstance(value, dict):
        raise InputError(f"{where}: {cut(written)} is a section, and a value is expected")
    if name in SWITCHED_OFF and name not in FLAGS:
        found.put(SWITCHED_OFF[name], written, value, where, True, said)
    else:
        found.put(RENAMED.get(name, name), written, value, where, False, said)


def _opposite(value: Any, written: str, where: str) -> Any:
    text = shown(value).strip().lower()
    if value is None or isinstance(value, Unresolved):
        return value
    if text not in ("true", "false", "1", "0"):
        raise InputError(f"{where}: {written} is {cut(text)}; it should be true or false")
    return text in ("false", "0")


def _resolved(value: Any, where: str, variables: Mapping[str, str]) -> Any:
    """A value of a file with its $VARs put in."""
    if isinstance(value, list):
        return [_resolved(one, where, variables) for one in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    word = value_of(value, where, variables)
    return _plain(word.text) if word.why is None else Unresolved(word.text, word.why)


def _plain(text: str) -> Any:
    """The value that an override's text stands for."""
    if text in ("true", "True", "false", "False"):
        return text.lower() == "true"
    if text in ("null", "None", ""):
        return None
    if re.fullmatch(r"\[[^\[\]]*\]", text):
        return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]
    return text.strip("'\"")
