"""A script that starts a training with `accelerate launch`, torchrun, Python alone or `trl sft`, and the Trainer's arguments behind the program.

Names of the launcher: accelerate 16cb6eb8 (2026-07-24), commands/launch.py launch_command_parser; of TRL's: trl f2cd5771 (2026-07-24), cli/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.documents import SAID
from symsim.importers.keys import Unresolved, natural
from symsim.importers.launched import is_script, program_in, read_script
from symsim.importers.ranks import WORLD, world_size
from symsim.importers.shell.options import Option, options
from symsim.importers.shell.reader import Command
from symsim.importers.shell.scope import Word
from symsim.inputs.reading import Document, read_json, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_SIGNS = ("--per_device_train_batch_size", "--model_name_or_path", "--gradient_accumulation_steps", "--fsdp")
_OF_TRL = ("sft", "dpo", "kto", "grpo", "rloo", "reward")
_TOLD = f"no command starts a training: 'accelerate launch', or a .py with {_SIGNS[0]}"
_KINDS = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "use_megatron_lm": "MEGATRON_LM", "multi_gpu": "MULTI_GPU", "cpu": "NO"}
_SECTIONS = {
    "fsdp_": "fsdp_config",
    "megatron_lm_": "megatron_lm_config",
    "parallelism_config_": "parallelism_config",
    "dynamo_": "dynamo_config",
    "deepspeed_": "deepspeed_config",
    "offload_": "deepspeed_config",
    "zero": "deepspeed_config",
    "gradient_": "deepspeed_config",
}
# of accelerate launch, and of torchrun, which it takes too
_LAUNCHERS = frozenset(
    """config_file quiet module no_python tee role log_dir rdzv_conf max_restarts monitor_interval num_cpu_threads_per_process fp8_backend
    nproc_per_node nproc-per-node nnodes node_rank master_addr master_port rdzv_id rdzv_endpoint standalone use_xpu tpu debug""".split()
)
# trl/accelerate_configs: what a step reads of the files that TRL has by these names
_SHIPPED: dict[str, dict[str, Any]] = {
    "single_gpu": {"distributed_type": "NO"},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    **{f"zero{stage}": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": stage}} for stage in (1, 2, 3)},
    **{f"fsdp{version}": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": version}} for version in (1, 2)},
}


@dataclass(frozen=True)
class Started:
    """launch: the launcher's options, as keys of an Accelerate file; None of another launcher. rest: the other files."""

    launch: Document | None
    arguments: Document
    rest: tuple[str, ...]
    options: "Options"


def of_script(inputs: Sequence[str], asked: "Options") -> Started | None:
    """What a script starts, with the ranks that it says; None where no input is one. InputError where a file that it names is not there."""
    scripts = [path for path in inputs if is_script(path)]
    if not scripts:
        return None
    if len(scripts) > 1:
        raise InputError(f"{scripts[1]}: a second script; 'symsim import accelerate' reads one")
    (path,) = scripts
    launched = read_script(path, asked.variables, _start, _TOLD)
    rest = [other for other in inputs if other != path]
    words = [word.text for word in launched.launcher]
    by_trl, accelerated = "trl" in words, "trl" in words or "accelerate" in words
    given = options(launched.launcher[_launched(words) : -1])[1]
    data = dict(launched.document.data)
    if by_trl:
        own = {name for name in data if name == "accelerate_config" or name in _KINDS or name in ("num_processes", "num_machines", "config_file")}
        where = f"{path}:{launched.document.lines.get(('num_processes',), 1)}"
        given = [Option(f"--{name}", (Word(str(data.pop(name)), where, None),), where) for name in own]
    arguments = _configured(replace(launched.document, data=data), path, rest)
    said = {name: text for name, text in asked.variables.items() if name in (*WORLD, *SAID, "seq_length")}
    if launched.world is not None and world_size(asked) is None and not accelerated:
        said["world"] = str(launched.world)
    launch = _launch(given, path, rest) if accelerated else None
    return Started(launch, arguments, tuple(rest), replace(asked, variables=said))


def _start(command: Command) -> int | None:
    """Where the arguments of a training begin."""
    words = [word.text for word in command.words]
    for at, word in enumerate(words):
        if word == "trl" and words[at + 1 : at + 2] and words[at + 1] in _OF_TRL:
            return at + 2
    # what puts a job on a cluster may stand in front (mason.py .. -- accelerate launch ..)
    begins = _launched(words)
    program = program_in(words[begins:], _SIGNS)
    if program is None:
        return None
    program += begins
    signed = begins or any(word.partition("=")[0] in _SIGNS for word in words[program:])
    return program + 1 if signed else None


def _launched(words: Sequence[str]) -> int:
    """Where the words behind `accelerate launch` begin; 0 of another launcher."""
    return next((at + 2 for at, word in enumerate(words) if word.endswith("accelerate") and words[at + 1 : at + 2] == ["launch"]), 0)


def _configured(arguments: Document, path: str, rest: list[str]) -> Document:
    """Arguments over those of the YAML that `--config` names (trl/scripts/utils.py TrlParser), with the section that `--fsdp_config` names."""
    data, lines = dict(arguments.data), dict(arguments.lines)
    named = data.get("config")
    if isinstance(named, str):
        file = _found(named, path, rest)
        if file is None:
            raise InputError(f"{path}: --config names '{named}', which is not here; give that file behind the script")
        base = read_yaml(file)
        del data["config"]
        data, lines = {**base.data, **data}, {**base.lines, **lines}
    section = data.get("fsdp_config")
    if isinstance(section, str) and (file := _found(section, path, rest)) is not None:
        data["fsdp_config"] = read_json(file).data
    return Document(data, arguments.where, lines)


def _found(name: str, path: str, rest: list[str]) -> str | None:
    """A file that a script names: one given behind it of that name, or as paths from the root of a checkout are."""
    last = Path(name).name
    for other in rest:
        if Path(other).name == last:
            rest.remove(other)
            return other
    folder = Path(path).resolve().parent
    places = (Path(name), *(above / name for above in (folder, *folder.parents)), folder / last)
    try:
        return next((str(place) for place in places if place.is_file()), None)
    except (OSError, ValueError):
        return None


def _launch(given: Sequence[Option], path: str, rest: list[str]) -> Document:
    """The file of --config_file, and the launcher's other options over it."""
    data: dict[str, Any] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    values = {one.name[2:]: (_value(one), one.where) for one in given}
    named, where = values.pop("config_file", (None, path))
    if named is not None:
        file = _found(str(named), path, rest)
        if file is None:
            raise InputError(f"{where}: --config_file names '{named}', which is not here; give that file behind the script")
        document = read_json(file) if file.endswith(".json") else read_yaml(file)
        data, lines = dict(document.data), dict(document.lines)
    shipped, where = values.pop("accelerate_config", (None, path))
    if shipped is not None and shipped not in _SHIPPED:
        raise InputError(f"{where}: --accelerate_config {shipped}: it should be one of {', '.join(_SHIPPED)}, or a file given behind the script")
    if shipped is not None:
        data = {"mixed_precision": "bf16", **_SHIPPED[str(shipped)]}
    for name, (value, at) in values.items():
        kind = _KINDS.get(name)
        section = next((section for prefix, section in _SECTIONS.items() if name.startswith(prefix)), None)
        if kind is not None:
            data["distributed_type"] = kind
        elif name in _LAUNCHERS:
            continue
        elif section is not None and name != "dynamo_backend":
            data[section] = {**(data.get(section) or {}), name: value}
        else:
            data[name] = value
        line = natural(at.rpartition(":")[2])
        if line is not None:
            lines[(name,) if kind is None else ("distributed_type",)] = line
    section = data.get("deepspeed_config")
    named = section.get("deepspeed_config_file") if isinstance(section, dict) else None
    if isinstance(section, dict) and isinstance(named, str) and (file := _found(named, path, rest)) is not None:
        data["deepspeed_config"] = {**section, "deepspeed_config_file": file}
    return Document(data, path, lines)


def _value(option: Option) -> Any:
    if not option.values:
        return True
    if len(option.values) > 1:
        return [word.known() for word in option.values]
    (word,) = option.values
    return word.text if word.why is None else Unresolved(word.text, word.why)
