"""A model and a strategy as another system's files, and what those files cannot say.

What is written is read back by the reader of the same system (`symsim/importers`), and every choice that does not come back is a
sentence: nothing is left out in silence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from symsim.errors import InputError, nearest
from symsim.exporters.registry import TARGETS
from symsim.importers.job import Job
from symsim.importers.keys import shown
from symsim.importers.reading import Options, read_job
from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.arithmetic import OF_STRETCHED
from symsim.inputs.assumptions import ASSUMPTIONS, resolve
from symsim.inputs.reading import write_text
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.trained import depths
from symsim.lowering.tuned import untuned
from symsim.pipeline.stages import stages

# labels, and what two spellings of one strategy may differ in
_MOST_LAYERS_SHOWN = 12
_SPLIT = (
    "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
# what a layer may have between its norm and its feed-forward network in a file that is written
_MIXERS = ("attention", "linear_attention")
_COMMENTED = (".sh", ".toml", ".py", ".yaml")
_LABELS = {"name", "source", "fact", "modelling", "arithmetic"}


@dataclass(frozen=True)
class Asked:
    """What is to be written; assumptions: those that differ from their defaults; idle: those, and options, that move nothing, so that they are not
    lost. suffix: of the file, where a target has several."""

    architecture: Architecture
    strategy: Strategy
    system: System | None = None
    assumptions: Mapping[str, str] = field(default_factory=dict)
    idle: Collection[str] = ()
    suffix: str = ""


def export(kind: str, asked: Asked, place: Path) -> tuple[list[Path], list[str]]:
    """Write the files of a target; returns their paths and a sentence for every choice that they do not carry, which a file that takes comments
    begins with too.

    InputError as `files`, and for what cannot be written.
    """
    asked = replace(asked, architecture=untuned(asked.architecture), suffix=place.suffix)
    target, made = TARGETS.get(kind), files(kind, asked, place)
    assert target is not None
    said = [*lost(kind, asked, made), *import_module(f"symsim.exporters.{target.module}").said(asked)]
    if target.suffix:
        (text,) = made.values()
        write_text(place, _headed(text, said) if place.suffix in _COMMENTED else text)
        return [place], said
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place}: the directory cannot be made: {error.strerror}") from None
    for name, text in made.items():
        write_text(place / name, text)
    return [place / name for name in made], said


def exported(kind: str, asked: Asked, place: Path) -> list[str]:
    """Write the files of a target; a sentence for every choice that they do not carry, and last where they are. InputError as `export`."""
    written, said = export(kind, asked, place)
    return [*said, f"wrote {', '.join(map(str, written))}"]


def _headed(text: str, said: Sequence[str]) -> str:
    """The text with sentences in comments, behind those that it begins with."""
    lines = text.splitlines(keepends=True)
    begin = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join([*lines[:begin], *(f"# {sentence}\n" for sentence in said), *lines[begin:]])


def files(kind: str, asked: Asked, place: Path) -> Mapping[str, str]:
    """What the files of a target say, by name. InputError for a target that there is not, a place that does not fit it, and a model that it cannot
    say."""
    if kind not in TARGETS:
        raise InputError(f"symsim does not export '{kind}': {nearest(kind, list(TARGETS))}")
    target = TARGETS[kind]
    if target.suffix and place.suffix not in target.suffix.split():
        raise InputError(f"{place}: a file for {target.title} ends in {target.suffix.replace(' ', ' or ')}")
    halves = [name for name, kind in asked.architecture.layer_kinds.items() if "none" in (kind.mixer, kind.ffn)]
    if target.has_model and set(halves) & set(asked.architecture.kind_names()):
        raise InputError(f"{target.title} cannot say the layers of {asked.architecture.name}: {halves[0]} is half a layer (mixer or ffn: none)")
    mixers = {mixer: name for name in asked.architecture.kind_names() for mixer in asked.architecture.layer_kinds[name].mixers}
    other = next((m for m in mixers if m not in _MIXERS), None)
    if asked.architecture.linear_attention is not None and asked.architecture.linear_attention.kind != "gated_delta_net":
        other = other or next((m for m in mixers if m == "linear_attention"), None)
    if target.has_model and other is not None:
        raise InputError(f"{target.title} cannot say the layers of {asked.architecture.name}: {mixers[other]} has mixer: {other}")
    if target.has_model and (own := _beyond(asked.architecture)):
        raise InputError(f"{target.title} cannot say what {asked.architecture.name} has: {own}")
    if target.suffix and not place.parent.is_dir():
        raise InputError(f"{place}: it cannot be written: there is no directory {place.parent}")
    made: Mapping[str, str] = import_module(f"symsim.exporters.{target.module}").files(asked)
    return made


def unwritten(kind: str, architecture: Architecture) -> str:
    """Why no file of a target says a model, in the words of the last of its suffixes; "" where one does."""
    try:
        _first_files(kind, Asked(architecture, Strategy()))
    except InputError as error:
        return str(error)
    return ""


def read_back(kind: str, asked: Asked) -> tuple[list["Unsaid"], Job]:
    """What the files of a target do not say, and the job that they do. InputError as `files`, in the words of the last of its suffixes."""
    asked, made = _first_files(kind, asked)
    job = _job_of(kind, made)
    return _unsaid(asked, job, TARGETS[kind].says_arithmetic), job


def _first_files(kind: str, asked: Asked) -> tuple[Asked, Mapping[str, str]]:
    """Files of the first suffix that says a model, and as which it was asked for."""
    asked = replace(asked, architecture=untuned(asked.architecture))
    *others, last = TARGETS[kind].suffix.split() or [""]
    for suffix in others:
        with suppress(InputError):
            return (own := replace(asked, suffix=suffix)), files(kind, own, Path(f"job{suffix}"))
    return (own := replace(asked, suffix=last)), files(kind, own, Path(f"job{last}"))


_OF_KINDS = ("kv_channels", "num_attention_heads", "num_query_groups", "sinks", "rotary_fraction", "keys_as_values", "shared_keys", "norms",
             "activation_sparsity", "beside_experts", "weights", "gated_norms", "indexer")  # fmt: skip


def _beyond(model: Architecture) -> str:
    """What an architecture has that no file of another system says; "" where there is nothing."""
    for section in ("embedding_rows", "per_layer_input", "hyper_connections", "compressed_attention", "shared_block", "altup", "laurel_rank"):
        if getattr(model, section) is not None:
            return section
    for name in model.kind_names():
        for field_of in _OF_KINDS:
            if getattr(model.layer_kinds[name], field_of) != LayerKind.model_fields[field_of].default:
                return f"{field_of} of its layers {name}"
    if model.attention.qk_norm == "plain" or model.embedding_norm_weight is not None:
        return "attention.qk_norm: plain" if model.attention.qk_norm == "plain" else "embedding_norm_weight"
    if own := next(
        (
            name
            for name in ("differential", "latent_gate", "flat_heads", "log_scaling", "dsa_indexer_input_norm", "dsa_indexer_block")
            if getattr(model.attention, name)
        ),
        "",
    ):
        return f"attention.{own}"
    if model.attention.kind == "mla" and (model.attention.output_gate or model.attention.sinks):
        return "attention.output_gate of latent attention" if model.attention.output_gate else "attention.sinks of latent attention"
    if model.attention.head_gate or (model.attention.kind == "gqa" and model.attention.v_head_dim):
        return "attention.head_gate" if model.attention.head_gate else "attention.v_head_dim"
    return ""


class Unsaid(NamedTuple):
    """A choice that comes back otherwise when it is read: what it is, and what it comes back as."""

    name: str
    value: Any
    back: Any

    @property
    def said(self) -> str:
        """As -s takes it."""
        return f"{self.name}={_text(self.value)}"

    @property
    def instead(self) -> str:
        return _text(self.back)


def lost(kind: str, asked: Asked, made: Mapping[str, str]) -> list[str]:
    """What the files do not say: choices that come back otherwise when they are read."""
    job, title = _job_of(kind, made), TARGETS[kind].title
    said = [f"{title} cannot say {one.said}: what is written means {one.instead}" for one in _unsaid(asked, job, TARGETS[kind].says_arithmetic)]
    chosen = _chosen(asked)
    own = {n: v for n, v in resolve(job.assumptions).items() if v != ASSUMPTIONS[n].default and n not in {*chosen, *asked.idle}}
    if own:
        settings = " ".join(f"--set assume.{name}={value}" for name, value in own.items())
        said.append(f"{title} does otherwise by itself what was assumed: {settings} computes so")
    return said


def _job_of(kind: str, made: Mapping[str, str]) -> Job:
    """Files as the reader of their system reads them."""
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for name, text in made.items():
            paths.append(str(Path(directory) / name))
            Path(paths[-1]).write_text(text)
        return read_job(kind, paths, Options())


def _chosen(asked: Asked) -> list[str]:
    """The assumptions besides the defaults that move something."""
    return [name for name, value in asked.assumptions.items() if value != ASSUMPTIONS[name].default and name not in asked.idle]


def _unsaid(asked: Asked, job: Job, says_arithmetic: bool) -> list[Unsaid]:
    said: list[Unsaid] = []
    trained = {depths(asked.architecture, asked.strategy.mtp_num_layers)}
    if job.strategy is not None:
        back = load_strategy(job.strategy)
        there, model = plain(back), asked.architecture
        same = stages(model, asked.strategy, model.mtp_num_layers) == stages(model, back, model.mtp_num_layers)
        # what says nothing in what is asked is not lost ("")
        differ = [name for name, value in plain(asked.strategy).items() if value not in (there[name], "") and name not in asked.idle]
        differ = [name for name in differ if not (same and name in _SPLIT)]
        trained.add(depths(job.architecture or asked.architecture, back.mtp_num_layers))
        differ = [name for name in differ if name != "mtp_num_layers" or len(trained) > 1]
        if "recompute" in differ:
            differ = [name for name in differ if not name.startswith("recompute_")]
        said += [Unsaid(name, plain(asked.strategy)[name], there[name]) for name in differ]
    if job.architecture is not None:
        ours, theirs = (_leaves(plain_model(a)) for a in (asked.architecture, job.architecture))
        # a model's own depths are those that its strategy trains
        skipped = "mtp_num_layers" if len(trained) == 1 else ""
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name) and name != skipped]
        said += [Unsaid(name, ours.get(name), theirs.get(name)) for name in names]
        said += [Unsaid(f"arithmetic.{name}", *one) for name, *one in _otherwise(asked.architecture, job.architecture, says_arithmetic)]
    held = resolve(job.assumptions)
    differ = [name for name in _chosen(asked) if asked.assumptions[name] != held[name]]
    return [*said, *(Unsaid(f"assume.{name}", asked.assumptions[name], held[name]) for name in differ)]


def _otherwise(model: Architecture, back: Architecture, said: bool) -> Iterator[tuple[str, Any, Any]]:
    """Numbers from which no cost follows that come back otherwise: name, value, and that. said: whether one that does not come back is another;
    of a file that says none it is that of the model which the file names."""
    ours, theirs = (one.arithmetic.model_dump() if one.arithmetic is not None else {} for one in (model, back))
    # numbers of another way to stretch angles say nothing
    kinds = ours.get("rope_type") == theirs.get("rope_type")
    for name, value in ours.items() if kinds else [(n, v) for n, v in ours.items() if n not in OF_STRETCHED]:
        other = theirs.get(name)
        if value is not None and other != value and (said or other is not None):
            yield name, value, other


def plain(strategy: Strategy) -> dict[str, Any]:
    """Every option with the value that holds: two spellings of one strategy are equal."""
    data = strategy.model_dump()
    data |= {"etp": strategy.expert_tp, "num_microbatches": strategy.microbatches, "global_batch_size": None}
    if strategy.pipeline_flushes == 1 and strategy.gradient_sync == "every_flush":
        data["gradient_sync"] = "last_microbatch"
    if not strategy.overlap_p2p_comm or strategy.vpp == 1:
        data["overlap_p2p_comm_warmup_flush"] = None
    if strategy.pp == 1 or strategy.vpp > 1 or strategy.schedule != "1f1b":
        data["p2p_comm"] = ""
    if strategy.pp == 1:
        data |= {"batch_p2p_sync": None, "variable_seq_lengths": None}
    if strategy.schedule == "1f1b" and strategy.vpp > 1:
        data["schedule"] = "interleaved"
    if strategy.recompute != "selective":
        data["recompute_modules"] = ()
    if strategy.recompute != "full":
        data |= {"recompute_method": "", "recompute_num_layers": 0}
    if strategy.cp == 1:
        data |= {"cp_comm_type": "", "hierarchical_context_parallel_sizes": None}
    return data


def plain_model(architecture: Architecture) -> dict[str, Any]:
    """Every field with the value that holds, and layers by what they are, not by the names of their kinds."""
    data = architecture.model_dump(exclude=_LABELS)
    data["attention"] |= {"num_query_groups": architecture.query_groups, "qk_norm_bias": architecture.qk_norm_bias}
    # what Hugging Face's modules do is no part of the model
    del data["attention"]["fused_qkv"], data["attention"]["fused_gate"]
    if data["linear_attention"] is not None:
        del data["linear_attention"]["fused_in_proj"], data["linear_attention"]["separate_qkv"]
    if data["mlp"] is not None:
        del data["mlp"]["fused_gate_up"]
    if data["moe"] is not None and data["moe"]["moe_latent_size"] is None:
        del data["moe"]["latent_bias"]
    data["attention"]["kv_channels"] = architecture.head_dim if architecture.attention.kind == "gqa" else None
    used = [architecture.layer_kinds[kind] for kind in architecture.kind_names()]
    if all(kind.ffn == "moe" for kind in used):
        data["mlp"] = None
    names = {kind: f"kind {number}" for number, kind in enumerate(architecture.kind_names(), 1)}
    data["layer_kinds"] = {names[kind]: architecture.layer_kinds[kind].model_dump() for kind in names}
    data["layers"] = tuple(names[kind] for segment in architecture.layers for _ in range(segment.repeat) for kind in segment.kinds)
    data |= {"embedding_dropout": architecture.dropped_embedding}
    return data


def _leaves(data: Any, inside: str = "") -> dict[str, Any]:
    """Values by dotted names."""
    if isinstance(data, Mapping):
        found: dict[str, Any] = {}
        for key, value in data.items():
            found |= _leaves(value, f"{inside}.{key}" if inside else str(key))
        return found
    return {inside: data}


def _text(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > _MOST_LAYERS_SHOWN:
        return f"{len(value)} layers"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(map(_text, value)) or "none"
    return "none" if value is None else shown(value)
