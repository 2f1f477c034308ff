"""GPT-NeoX's YAML files, which are read together: the model, the mesh, and the keys that go on to DeepSpeed.

What its keys do: gpt-neox ea7aefd8 (2026-05-19), megatron/neox_arguments/arguments.py, megatron/model/transformer.py, megatron/training.py; DeepSpeed
edaa72212, runtime/pipe/engine.py, runtime/engine.py _configure_zero_optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut
from symsim.importers.deepspeed.reader import of_settings
from symsim.importers.deepspeed.tables import WHOLE
from symsim.importers.gpt_neox.model import model_of
from symsim.importers.gpt_neox.tables import DEEPSPEED, SILENT
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Given, Keys
from symsim.importers.optimizers import OPTIMIZERS
from symsim.importers.preferences import preferred
from symsim.importers.ranks import known_variables, world_size
from symsim.importers.rules import split_sequence, uneven_stages
from symsim.importers.sections import of_sections
from symsim.inputs.reading import Document, read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_PRECISIONS = {"fp16": "fp16", "fp32": "fp32", "bfloat16": "bf16"}
_OTHER_LAYERS = "layers of this kind are not modelled; give global, flash, local, sparse_* or mamba"
_EVENTS = "timers record events, which nothing waits for but what logs every steps_per_print steps"
_PIPELINE = "pipelines reduce gradients when the last backward is done: DeepSpeed switches it off"
_FUSIONS = {
    "bias_gelu_fusion": "bias_activation_fusion",
    "bias_dropout_fusion": "bias_dropout_fusion",
    "scaled_upper_triang_masked_softmax_fusion": "masked_softmax_fusion",
    "scaled_masked_softmax_fusion": "masked_softmax_fusion",
}


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of GPT-NeoX's files. InputError for a key that there is not or a value that cannot be."""
    known_variables(options, ("vocab_size",))
    own, settings = _given(inputs)
    keys = Keys("a GPT-NeoX file", own, SILENT, options.lenient)
    strategy: dict[str, Any] = {"micro_batch_size": 1, "num_microbatches": 1, "clip_grad": 1.0, "precision": "fp32", "fusion": "te"}
    assumptions: dict[str, str] = {}
    whole = _mesh(keys, strategy)
    architecture = model_of(keys, options, int(strategy.get("tp", 1)), inputs[0])
    strategy["seq_length"] = keys.integer("seq_length", None, to="seq_length", least=1)
    if strategy["seq_length"] is None:
        raise InputError(f"{inputs[0]}: seq_length is not given in any file")
    _stages(keys, strategy, architecture)
    _kernels(keys, strategy, assumptions)
    _checkpoints(keys, strategy)
    _precision(keys, settings)
    settings.setdefault("gradient_clipping", Given(1.0, "(default)"))
    if whole and "zero_optimization.overlap_comm" in settings:
        settings["zero_optimization.overlap_comm"] = replace(settings["zero_optimization.overlap_comm"], value=False)
    rows = of_settings(settings, keys, strategy, assumptions, architecture, _ranks(keys, options), by_arguments=False)
    _states(keys, strategy, assumptions)
    _preferences(keys, strategy)
    for key, option in (("log_grad_pct_zeros", "log_num_zeros_in_grad"), ("log_param_norm", "log_params_norm")):
        if keys.flag(key, False, to=option):
            strategy[option] = True
    split_sequence(keys, strategy, architecture, "GPT-NeoX")
    if strategy.get("zero") == 3 and strategy.get("pp", 1) > 1:
        raise keys.wrong("pipe_parallel_size", "0 or 1 with ZeRO-3: DeepSpeed's pipelines take stages 0 and 1")
    notes = () if architecture is not None else ("no file describes a model: --of MODEL gives one",)
    told = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    return Job("gpt-neox", (*told, *(_of_pipeline(row, whole) for row in rows)), architecture, strategy, None, assumptions, notes)


def _preferences(keys: Keys, strategy: dict[str, Any]) -> None:
    """Pairs of rows, and a frozen copy for their reference unless its outputs are in the data, or none is asked for (training.py pretrain)."""
    if "train_impl" not in keys.given or keys.given["train_impl"].value != "dpo":
        return
    known = keys.text("precompute_model_name", None, to="reference_models", why="the reference's outputs are in the data")
    free = keys.flag("dpo_reference_free", False, to="reference_models")
    preferred(keys, "train_impl", "orpo" if known is not None or free else "dpo", strategy)


def _given(inputs: Sequence[str]) -> tuple[dict[str, Given], dict[str, Given]]:
    """Keys of all files: GPT-NeoX's own, and those that go on to DeepSpeed by their dotted names. InputError for one that two files have."""
    own: dict[str, Given] = {}
    settings: dict[str, Given] = {}
    seen: dict[str, str] = {}
    for path in inputs:
        if path.rpartition(".")[2].lower() not in ("yml", "yaml", "json"):
            raise InputError(f"{path}: 'symsim import gpt-neox' reads .yml files")
        document = read_yaml(path)
        named: dict[str, Any] = {}
        lines: dict[tuple[str | int, ...], int] = {}
        for key, value in document.data.items():
            name = str(key).replace("-", "_")
            if name in seen:
                raise InputError(f"{document.place((key,))}: '{cut(key)}' is given in {seen[name]} too; GPT-NeoX takes a key once")
            seen[name] = path
            if name not in DEEPSPEED:
                own[name] = Given(value, document.place((key,)))
                continue
            named[name] = value
            lines |= {(name, *place[1:]): line for place, line in document.lines.items() if place and place[0] == key}
        settings |= of_sections(Document(named, path, lines), WHOLE)
    return own, settings


def _mesh(keys: Keys, strategy: dict[str, Any]) -> bool:
    """Degrees; whether DeepSpeed's pipeline engine runs, which one stage does too."""
    tp = max(keys.integer("model_parallel_size", 1, to="tp"), 1)
    pp = keys.integer("pipe_parallel_size", 0, to="pp")
    if tp > 1:
        strategy["tp"] = tp
    if pp > 1:
        strategy |= {"pp": pp, "schedule": "ds_default"}
    if keys.flag("sequence_parallel", False, to="sp"):
        if tp > 1:
            strategy["sp"] = True
        else:
            keys.note("sequence_parallel", "no_cost_effect", why="nothing to split at model_parallel_size=1")
    return bool(pp >= 1)


def _stages(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """Layers over stages: as many each, or one more in the first ones."""
    way = str(keys.text("pipe_partition_method", "type:transformer|mlp", to="pp"))
    pp = int(strategy.get("pp", 1))
    if pp == 1:
        if "pipe_partition_method" in keys.given:
            keys.note("pipe_partition_method", "no_cost_effect", why="one stage has all layers")
        return
    if not way.startswith("type:") and way != "uniform":
        keys.note("pipe_partition_method", "not_modelled", why="stages of equal parameters, embedding and head among them; of equal layers here")
    if architecture is None or architecture.num_layers % pp == 0:
        return
    if architecture.num_layers < pp:
        raise keys.wrong("pipe_parallel_size", f"at most the number of layers, {architecture.num_layers}")
    each = architecture.num_layers // pp
    strategy["pipeline_model_parallel_layout"] = uneven_stages(architecture.num_layers, pp)
    keys.note("pipe_partition_method", "derived", "pipeline_model_parallel_layout", f"{each} or {each + 1} layers a stage")


def _kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Which kernels are one: Megatron-LM's of 2021, each by its own switch; weight gradients are added in a pass of their own."""
    strategy["gradient_accumulation_fusion"] = False
    why = "weight gradients are written and then added"
    keys.rows["gradient_accumulation_fusion"] = Entry("gradient_accumulation_fusion", "(default)", "derived", "gradient_accumulation_fusion", why)
    for option in dict.fromkeys(_FUSIONS.values()):
        strategy[option] = False
    for key, option in _FUSIONS.items():
        if keys.flag(key, False, to=option):
            strategy[option] = True
    _gates(keys, strategy)
    _loss(keys, strategy)
    norm = str(keys.given["norm"].value) if keys.has("norm") else "layernorm"
    fused = [keys.flag(key, False, to="norm_fusion") for key in ("layernorm_fusion", "rmsnorm_fusion")]
    # PyTorch's own LayerNorm is one kernel; its RMSNorm is written out there
    strategy["norm_fusion"] = "layernorm" in norm or norm.startswith("te_") or fused[1]
    if keys.flag("rope_fusion", False, to="assume.apply_rope_fusion"):
        assumptions["apply_rope_fusion"] = "true"
    _attention(keys, assumptions)
    if keys.flag("te_layernorm_mlp", False, to="bias_activation_fusion, norm_fusion, assume.layernorm_linear_fusion"):
        strategy |= {"bias_activation_fusion": True, "norm_fusion": True}
        assumptions["layernorm_linear_fusion"] = "fused"
    if keys.flag("te_mha", False, to="assume.attention_kernel", why="Transformer Engine's attention, which is fused"):
        assumptions.pop("attention_kernel", None)


def _loss(keys: Keys, strategy: dict[str, Any]) -> None:
    """flash-attn's loss (losses/cross_entropy.py) in Stability's fork: one kernel, its gradient over the logits, as TransformerEngine's is."""
    if keys.flag("use_flash_cross_entropy", False, to="cross_entropy_fusion"):
        strategy["cross_entropy_fusion"] = "te"


def _gates(keys: Keys, strategy: dict[str, Any]) -> None:
    """Gate, activation and their product in flash-attention's kernel, one forward and one backward, of SwiGLU alone."""
    if not keys.flag("use_flashattn_swiglu", False, to="bias_activation_fusion"):
        return
    if keys.has("activation") and str(keys.given["activation"].value) == "swiglu":
        strategy["bias_activation_fusion"] = True
    else:
        keys.note("use_flashattn_swiglu", "no_cost_effect", why="read with activation=swiglu alone")


def _attention(keys: Keys, assumptions: dict[str, str]) -> None:
    """Kinds of attention by layer, [[[KIND, ..], TIMES], ..]; written out unless it says flash."""
    kinds = sorted({str(kind) for kind in _words(keys.given["attention_config"].value)}) if keys.has("attention_config") else []
    for kind in kinds:
        if kind not in ("global", "flash", "local", "all", "mamba") and not kind.startswith("sparse_") and not kind.isdigit():
            keys.refuse("attention_config", f"{cut(kind)}: {_OTHER_LAYERS}")
    if {kind for kind in kinds if not kind.isdigit() and kind != "all"} == {"mamba"}:
        keys.note("attention_config", to="layer_kinds.mixer", why="no layer attends: Mamba-1 in all of them")
        return
    if "flash" not in kinds:
        assumptions["attention_kernel"] = "math"
    if not keys.has("attention_config"):
        keys.note("attention_config", "derived", "assume.attention_kernel", "global by default: scores are written out")
    elif any(kind.startswith(("sparse_", "local")) for kind in kinds):
        keys.note("attention_config", "not_modelled", "assume.attention_kernel", "scores of chosen blocks alone there; of all pairs here")
    elif "attention_config" not in keys.rows:
        keys.note("attention_config", to="assume.attention_kernel", why="with Mamba-1 in the other layers" if "mamba" in kinds else "")


def _words(value: Any, depth: int = 0) -> list[Any]:
    """All that is in lists of lists, four deep as GPT-NeoX has them."""
    if isinstance(value, list) and depth < 4:
        return [word for one in value for word in _words(one, depth + 1)]
    return [value] if not isinstance(value, (list, dict)) else ["(nested)"]


def _checkpoints(keys: Keys, strategy: dict[str, Any]) -> None:
    many = keys.integer("checkpoint_num_layers", 1, to="recompute_num_layers", least=1)
    split = keys.flag("partition_activations", False, to="distribute_saved_activations")
    if not keys.flag("checkpoint_activations", False, to="recompute"):
        for key in ("checkpoint_num_layers", "partition_activations", "synchronize_each_layer", "contiguous_checkpointing", "checkpoint_in_cpu"):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="read with checkpoint_activations alone")
        return
    strategy["recompute"] = "full"
    if keys.flag("synchronize_each_layer", False, to="synchronize_checkpoint_boundary"):
        strategy["synchronize_checkpoint_boundary"] = True
    if many > 1:
        strategy["recompute_num_layers"] = many
    if split and strategy.get("tp", 1) > 1 and not strategy.get("sp"):
        strategy["distribute_saved_activations"] = True
    elif split:
        keys.note("partition_activations", "no_cost_effect", why="nothing is whole on several tensor-parallel ranks")


def _precision(keys: Keys, settings: dict[str, Given]) -> None:
    """`precision` in DeepSpeed's own words, where they are not given."""
    kind = keys.choice("precision", _PRECISIONS, None, to="precision")
    switches = [key for key in ("fp16.enabled", "bf16.enabled") if key in settings]
    on = any(str(settings[key].value).lower() in ("true", "1") for key in switches)
    if kind is not None and not on:
        place = keys.given["precision"].where
        settings["fp16.enabled"] = Given(kind == "fp16", place)
        settings["bf16.enabled"] = Given(kind == "bf16", place)
    if keys.flag("fp32_allreduce", False, to="grad_reduce_in_fp32"):
        settings.setdefault("communication_data_type", Given("fp32", keys.given["fp32_allreduce"].where))


def _ranks(keys: Keys, options: "Options") -> "Options":
    """The options with the ranks that the files say, where --var does not."""
    nodes = keys.number("num_nodes", -1, to="dp")
    each = keys.integer("num_gpus", None, to="dp", least=1)
    named = [keys.integer(key, None, to="dp", least=1) for key in ("world_size", "global_num_gpus")]
    world = next((number for number in named if number is not None), None)
    if world is None and each is not None and 0 < nodes <= 2**20:
        world = each * int(nodes)
    if world is None or world_size(options) is not None:
        return options
    return replace(options, variables={**options.variables, "world": str(world)})


def _states(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    if keys.flag("use_bnb_optimizer", False):
        OPTIMIZERS["adamw_bnb_8bit"].apply(keys, "use_bnb_optimizer", strategy, assumptions)


def _of_pipeline(row: Entry, whole: bool) -> Entry:
    """A row of DeepSpeed's keys as GPT-NeoX makes it."""
    if whole and row.key == "zero_optimization.overlap_comm":
        return replace(row, fate="derived", why=_PIPELINE)
    if whole and row.key == "wall_clock_breakdown":
        return replace(row, fate="no_cost_effect", why=_EVENTS)
    if row.key == "gradient_clipping" and row.fate == "mapped":
        return replace(row, why="1.0 by default") if row.value == "1.0" else row
    return row
