"""A torchtune configuration.

What its keys do: torchtune bd2a0fc7 (2026-04-23), recipes/full_finetune_distributed.py and its siblings, torchtune/training/_distributed.py,
torchtune/modules/loss, torchtune/models/llama3/_parallelism.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut, nearest
from symsim.importers.adapted import stored_base
from symsim.importers.assumed import deterministic
from symsim.importers.compiled import of_compiler
from symsim.importers.documents import SAID, documents_said, packed_rows
from symsim.importers.fsdp import HOST_PARAMETERS, host_states
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys
from symsim.importers.optimizers import OPTIMIZERS, of_class
from symsim.importers.ranks import NODE, known_variables, variable, world_size
from symsim.importers.rules import settle
from symsim.importers.sections import of_sections, referred, under
from symsim.importers.targets import targets
from symsim.importers.torchtune.tables import SECTIONS, SILENT, model_named, of_checkpoints
from symsim.importers.trainer import OTHER_MODELS
from symsim.inputs.models import load_model
from symsim.inputs.optimizers import OPTIMIZERS as STATES
from symsim.inputs.reading import read_yaml

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_TYPES = {"bf16": "bf16", "fp32": "fp32", "fp16": "fp16"}
_MAPS = {"output_proj": "o_proj"}
_WORKLOADS = ("teacher_model", "policy_model", "reward_and_value_model", "ref_checkpointer", "orchestration", "inference", "kd_loss")
_EVERYTHING = "the kept inputs of every layer but the last over the host link each way"
_CHECKPOINTS = "checkpoints go to the host too: 2 bytes a hidden state and layer over its link each way"
_PIECES = "fp32 copies of logits are there for an eighth of the tokens at a time, and 4 bytes of every logit are kept"
_WHOLE_LOGITS = "; logits in 16 bits are whole here, and in the loss an eighth of them: up to 2 bytes a logit more at the peak"
_PURE = "weights, gradients and states are all bf16"


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a torchtune YAML. InputError for a key that there is not or a value that cannot be."""
    if len(inputs) != 1:
        raise InputError(f"'symsim import torchtune' reads one YAML, and {len(inputs)} files are given")
    known_variables(options, ("seq_length", *SAID))
    written = of_sections(read_yaml(inputs[0]), ("datasets", "reward_functions"))
    given = referred(written)
    keys = Keys("a torchtune file", given, {**under(SECTIONS, given), **SILENT}, options.lenient)
    strategy: dict[str, Any] = {"fusion": "eager"}
    assumptions: dict[str, str] = {}
    architecture = _model(keys, options)
    _precision(keys, strategy)
    _mesh(keys, strategy, assumptions, options, alone="single_device" in inputs[0])
    _batch(keys, strategy, options)
    _update(keys, strategy, assumptions)
    _activations(keys, strategy, architecture)
    _kernels(keys, strategy, assumptions)
    _adapters(keys, strategy, architecture)
    deterministic(keys, assumptions, "cudnn_deterministic_mode")
    _in_backward(keys, strategy)
    settle(keys, strategy, architecture, "torchtune")
    told = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    notes = () if architecture is not None else ("no model of that name comes with symsim; --of MODEL says which",)
    plain = {"tp": 1, "cp": 1}
    strategy = {name: value for name, value in strategy.items() if plain.get(name) != value or name not in plain}
    return Job("torchtune", tuple(told), architecture, strategy, None, assumptions, notes)


def _model(keys: Keys, options: "Options") -> "Architecture | None":
    """The model of the builder's name, else of the directory of weights; what else is trained or asked is said."""
    component = str(keys.text("model._component_", ""))
    directory = keys.given.get("checkpointer.checkpoint_dir")
    for key in _WORKLOADS:
        if any(name == key or name.startswith(f"{key}.") for name in keys.given):
            keys.rows["workload"] = Entry("workload", key, "not_modelled", why=OTHER_MODELS)
    name = options.model or model_named(component) or (of_checkpoints(str(directory.value)) if directory is not None else None)
    if name is None:
        keys.known.update(f"model.{key}" for key in _SIZES)
        keys.note("model._component_", "refused", why="no model that comes with symsim has this name; --of MODEL names one")
        return None
    architecture = load_model(name).architecture
    keys.note("model._component_", to=f"model {architecture.name}", why="named by --of" if options.model else "")
    keys.known.update(f"model.{key}" for key in _SIZES)
    return architecture


_SIZES = "vocab_size num_layers num_heads num_kv_heads embed_dim max_seq_len intermediate_dim attn_dropout norm_eps".split()


def _precision(keys: Keys, strategy: dict[str, Any]) -> None:
    """Everything in one type; autocast is not used."""
    kind = keys.choice("dtype", _TYPES, "bf16", to="precision, main_params_dtype")
    strategy |= {"precision": kind, "grad_reduce_in_fp32": kind == "fp32"}
    if kind != "fp32":
        strategy["main_params_dtype"] = kind
        keys.note("dtype", to="precision, main_params_dtype", why=_PURE if kind == "bf16" else "weights, gradients and states are all fp16")


def _mesh(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], options: "Options", alone: bool) -> None:
    """Degrees, and FSDP over what they leave of the ranks."""
    strategy["tp"] = keys.integer("tensor_parallel_dim", 1, to="tp, sp", least=1)
    strategy["cp"] = keys.integer("context_parallel_dim", 1, to="cp", least=1)
    if strategy["tp"] > 1:
        strategy["sp"] = True
    rotated = keys.choice("context_parallel_rotate_method", {"allgather": "all_gather", "alltoall": "p2p"}, "all_gather", to="cp_comm_type")
    if strategy["cp"] > 1:
        strategy["cp_comm_type"] = rotated
    replicas = keys.integer("data_parallel_replicate_dim", 1, to="num_distributed_optimizer_instances", least=1)
    shards = keys.integer("data_parallel_shard_dim", -1, to="dp", least=-1)
    if shards > 2**20:
        raise keys.wrong("data_parallel_shard_dim", f"at most {2**20} ranks")
    each = strategy["tp"] * strategy["cp"] * replicas
    world = shards * each if shards >= 1 else world_size(options) or (1 if alone else max(1, -(-NODE // each)) * each)
    if world % each:
        raise InputError(f"--var world={world}: it should be a multiple of the {each} ranks of all other degrees")
    if shards < 1:
        told = world_size(options)
        why = "" if told else "the recipe of one device" if alone else f"{world} ranks, since the file does not say; --var world=N does"
        keys.rows["world"] = Entry("world", str(told or "(default)"), "mapped" if told else "derived", "dp", why)
    strategy["dp"] = world // (strategy["tp"] * strategy["cp"])
    again = keys.flag("fsdp_reshard_after_forward", True, to="reshard_after_forward")
    host = [keys.flag(key, False, to="offload_parameters") for key in ("fsdp_cpu_offload", "fsdp.cpu_offload")]
    if strategy["dp"] * strategy["cp"] == 1:
        strategy["zero"] = 0
        return
    strategy["zero"] = 3
    assumptions["fsdp_parameters"] = "main"
    if replicas > 1:
        strategy["num_distributed_optimizer_instances"] = replicas
    if not again:
        strategy["reshard_after_forward"] = False
    if any(host):
        strategy |= {**host_states(str(strategy["precision"])), "offload_parameters": True}
        key = "fsdp_cpu_offload" if host[0] else "fsdp.cpu_offload"
        keys.note(key, to="offload_parameters, optimizer_cpu_offload", why=HOST_PARAMETERS)


def _batch(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    strategy["micro_batch_size"] = keys.integer("batch_size", 1, to="micro_batch_size", least=1)
    strategy["num_microbatches"] = keys.integer("gradient_accumulation_steps", 1, to="num_microbatches", least=1)
    if strategy["num_microbatches"] > 1 and strategy.get("zero") == 3:
        # fully_shard reduces in every backward unless it is told to wait, which the recipes do not
        strategy["gradient_sync"] = "every_microbatch"
    length = keys.integer("tokenizer.max_seq_len", None, to="seq_length", least=1)
    told = variable(options, "seq_length")
    if told is not None:
        keys.rows["seq_length"] = Entry("seq_length", str(told), "mapped", "seq_length", "--var")
    elif length is None:
        keys.note("tokenizer.max_seq_len", "derived", "seq_length", "4096, since rows are as long as their longest sample; --var seq_length=N")
    strategy["seq_length"] = told or length or 4096
    packed = keys.flag("dataset.packed", False, to="seq_length", why="rows of max_seq_len, filled with samples")
    said = documents_said(options, strategy)
    if packed:
        packed_rows(keys, "dataset.packed", said)
    elif "dataset.packed" in keys.given:
        keys.note("dataset.packed", to="seq_length", why="one sample a row; rows are as long as their longest: --var seq_length=N gives their mean")


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    component = str(keys.text("optimizer._component_", "torch.optim.AdamW"))
    name = of_class(component)
    name = {"pagedadamw": "paged_adamw", "pagedadamw8bit": "paged_adamw_8bit"}.get(name, name)
    if name not in OPTIMIZERS:
        raise keys.wrong("optimizer._component_", f"an optimizer of PyTorch, torchao or bitsandbytes ({nearest(name, list(OPTIMIZERS))})")
    OPTIMIZERS[name].apply(keys, "optimizer._component_", strategy, assumptions)
    if not keys.flag("optimizer.fused", False, to="assume.optimizer_implementation") and component.startswith("torch.optim."):
        assumptions["optimizer_implementation"] = "foreach"
    if keys.flag("optimizer.foreach", True, to="assume.optimizer_implementation") is False:
        assumptions["optimizer_implementation"] = "for_loop"
    if keys.has("clip_grad_norm") and str(keys.given["clip_grad_norm"].value).lower().lstrip(".") in ("inf", "infinity"):
        strategy["clip_grad"] = 1.0
        keys.note("clip_grad_norm", to="clip_grad", why="the norm is made and gradients are scaled, at any bound")
    else:
        strategy["clip_grad"] = keys.number("clip_grad_norm", 0.0, to="clip_grad")


def _in_backward(keys: Keys, strategy: dict[str, Any]) -> None:
    """Whether parameters are updated inside backward, which recipes refuse beside what reads all gradients (full_finetune_distributed.py)."""
    if not keys.flag("optimizer_in_bwd", False, to="optimizer_in_bwd"):
        return
    for key, asked in (("clip_grad_norm", strategy["clip_grad"]), ("gradient_accumulation_steps", strategy["num_microbatches"] - 1)):
        if asked:
            raise keys.wrong("optimizer_in_bwd", f"false where {key} is given: torchtune runs one of them")
    row = STATES[strategy.get("optimizer", "adam")]
    if strategy.get("optimizer_cpu_offload") or row.by_shape or row.looped or row.largest:
        keys.note("optimizer_in_bwd", "not_modelled", why="gradients live until their own update alone: less by all but the largest")
    else:
        strategy["optimizer_in_bwd"] = True


def _activations(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    checkpointed = keys.flag("enable_activation_checkpointing", False, to="recompute")
    mode = keys.choice("ac_mode", {"full": "full", "selective": "selective"}, "full", to="recompute")
    option = keys.text("ac_option", "1", to="recompute")
    if checkpointed:
        strategy["recompute"] = "full"
    elif mode == "selective" and option == "op":
        strategy["recompute"] = "sac_mm_attn"
    elif mode == "selective" and option.isascii() and option.isdigit() and 0 < int(option[:6]):
        strategy |= {"recompute": "full", "recompute_method": "block"}
        if architecture is not None:
            strategy["recompute_num_layers"] = -(-architecture.num_layers // int(option[:6]))
    elif mode == "selective":
        raise keys.wrong("ac_option", "op, or a whole number above 0: every so manieth layer runs again")
    if not keys.flag("enable_activation_offloading", False):
        return
    whole = strategy.get("recompute") == "full" and "recompute_method" not in strategy
    if strategy.get("recompute") and not whole:
        keys.note("enable_activation_offloading", "not_modelled", why=_CHECKPOINTS)
    elif architecture is not None and architecture.num_layers > 1:
        strategy["cpu_offloading_num_layers"] = architecture.num_layers - 1
        why = "the inputs of all layers but the last" if whole else _EVERYTHING
        keys.note("enable_activation_offloading", to="cpu_offloading_num_layers", why=why)


def _kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    if keys.flag("enable_fp8_training", False):
        recipe = str(keys.text("fp8_recipe_name", "tensorwise", to="fp8"))
        if not recipe.startswith(("tensorwise", "rowwise")):
            raise keys.wrong("fp8_recipe_name", f"tensorwise or rowwise, not {cut(recipe)}")
        strategy |= {"fp8": "tensorwise", "fusion": "te"}
        keys.note("enable_fp8_training", to="fp8, fusion", why="products in 8 bits are te's kernels here, with the weights' copies that it keeps")
    keys.text("fp8_recipe_name", None, to="fp8")
    loss_compiled = _compiled(keys, strategy, assumptions)
    loss = str(keys.text("loss._component_", ""))
    if loss:
        chunked = "Chunk" in loss or "Linear" in loss
        keys.note("loss._component_", "no_cost_effect", why="the loss of the next token")
    chunks = keys.integer("loss.num_output_chunks", None, to="cross_entropy_chunks", least=1)
    if loss and chunked and strategy["fusion"] != "te":
        compiled = loss_compiled and strategy["tp"] == 1
        how = {"cross_entropy_fusion": "compiled_chunks" if compiled else "output_chunks"}
        strategy |= {**how, **({"cross_entropy_chunks": chunks} if chunks and not compiled else {})}
        keys.note("loss._component_", to="cross_entropy_fusion, cross_entropy_chunks", why=_PIECES + (_WHOLE_LOGITS if "Linear" in loss else ""))


def _adapters(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """LoRA of the builders that have it in their name: attention's linear maps that are listed, and the network's."""
    component = str(keys.given["model._component_"].value) if "model._component_" in keys.given else ""
    asked = [_MAPS.get(name, name) for name in keys.texts("model.lora_attn_modules", [], to="target_modules")]
    if keys.flag("model.apply_lora_to_mlp", False, to="target_modules"):
        asked += ["gate_proj", "up_proj", "down_proj"]
    whole = keys.flag("model.apply_lora_to_output", False, to="target_modules")
    rank = keys.integer("model.lora_rank", 8, to="lora_rank", least=1)
    dropout = keys.number("model.lora_dropout", 0.0, to="lora_dropout", why="a mask of bytes, at any rate above 0")
    if not 0 <= dropout < 1:
        raise keys.wrong("model.lora_dropout", "from 0 to below 1")
    if "lora" not in component.rpartition(".")[2] and "dora" not in component.rpartition(".")[2]:
        return
    found, lost = targets(asked or ["q_proj", "v_proj"], strategy, architecture)
    strategy |= {"tuner_type": "lora", "lora_rank": rank, "lora_dropout": dropout, "target_modules": found}
    keys.rows["tuner_type"] = Entry("tuner_type", "(default)", "derived", "tuner_type", "adapters, by the builder's name")
    if lost:
        keys.note("model.lora_attn_modules", "not_modelled", "target_modules", f"no adapters beside {', '.join(lost)}")
    if whole:
        keys.note("model.apply_lora_to_output", "not_modelled", "target_modules", "no adapter beside the output layer here")
    if "qlora" in component or "qdora" in component:
        _stored(keys, strategy, "model._component_")
    if "dora" in component.rpartition(".")[2] or keys.flag("model.use_dora", False, to="use_dora"):
        _magnitudes(keys, strategy)
    if keys.flag("model.quantize_base", False, to="quantize_base"):
        _stored(keys, strategy, "model.quantize_base")


def _magnitudes(keys: Keys, strategy: dict[str, Any]) -> None:
    """DoRA; of adapters that are split over ranks it has no magnitudes here."""
    if strategy.get("tp", 1) > 1:
        keys.note("model._component_", "not_modelled", why="magnitudes of adapters (DoRA) with tensor parallelism: timed as LoRA")
    else:
        strategy["use_dora"] = True


def _stored(keys: Keys, strategy: dict[str, Any], key: str) -> None:
    """torchao's NF4; the builder's name names the model too."""
    told = keys.rows.get(key)
    model = f"{told.to}, " if told is not None and told.to.startswith("model ") else ""
    compiled = "_compiled" if strategy["fusion"] == "compile" else ""
    stored_base(keys, strategy, f"nf4_torchao{compiled}", key, f"{model}quantize_base")


def _compiled(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> bool:
    """What is compiled: all of the model, its loss and the update, or parts of them; whether the loss is."""
    whole = bool(keys.flag("compile", False, to="fusion")) or any(name.startswith("compile.") for name in keys.given)
    loss = keys.flag("compile.loss", whole, to="cross_entropy_fusion")
    update = keys.flag("compile.optimizer_step", False, to="assume.optimizer_implementation", why="one kernel for many parameters")
    keys.flag("compile.scale_grads", whole)
    if "compile.scale_grads" in keys.given:
        keys.note("compile.scale_grads", "no_cost_effect", why="how gradients are divided by the number of tokens")
    if keys.flag("compile.model", whole):
        of_compiler(keys, strategy, "compile.model" if "compile.model" in keys.given else "compile")
    if update and assumptions.get("optimizer_implementation"):
        del assumptions["optimizer_implementation"]
    return bool(loss)
