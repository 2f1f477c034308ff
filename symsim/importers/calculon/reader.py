"""Calculon's three files, application, execution and system, as a job.

Keys and meanings: Calculon (git caa4b11), calculon/llm/llm.py, Llm.Application and Llm.Execution; every key of an execution must be given
there. What its own formulas do otherwise is said in the ledger and by `--compat calculon`, not imitated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.calculon import system as calculon_system
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys, of_document, silent
from symsim.importers.rules import settle
from symsim.importers.several import as_name, by_kind
from symsim.inputs.architecture import Architecture
from symsim.inputs.models import load_model
from symsim.inputs.reading import Document
from symsim.inputs.validation import validate

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_WHO = "Calculon"
_VOCABULARY = 51200  # of its count of parameters, llm.py Application.num_parameters
_DROPOUT = 0.1  # it has the masks and no rate; Megatron-LM's default
_LINKS = "which links a group runs over follows from the ranks of its tiers here"
_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8": "bf16"}

_TABLE = {
    **silent(
        "not_modelled",
        "an activation inside its product would keep no input: 2 b s f / tp bytes a layer; here it is a kernel that keeps it",
        "fused_activation",
    ),
    **silent(
        "not_modelled",
        "weights of all blocks but two would wait in the second memory: 2 bytes a parameter; offload_parameters does it with zero=3",
        "weight_offload",
    ),
}
_MODEL_TABLE = silent("no_cost_effect", "a label", "name")
_FIELDS = """
    num_procs tensor_par pipeline_par data_par tensor_par_net pipeline_par_net data_par_net batch_size microbatch_size datatype fused_activation
    attention_type activation_recompute pipeline_interleaving optimizer_sharding tensor_par_comm_type tensor_par_overlap seq_par_ag_redo
    data_par_overlap weight_offload activations_offload optimizer_offload training""".split()


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of APPLICATION.json EXECUTION.json SYSTEM.json, in any order; each may be left out. InputError for what is none of them."""
    files = by_kind(inputs, _what)
    rows: list[Entry] = []
    settings = _execution(files["execution"], options.lenient) if "execution" in files else None
    architecture, sequence = (load_model(options.model).architecture if options.model else None), None
    if "application" in files:
        model = Keys("Calculon's application", of_document(files["application"]), _MODEL_TABLE, options.lenient)
        data, sequence = _model(model, files["application"])
        if settings is not None and settings.choice(
            "attention_type", {"multihead": False, "multiquery": True}, False, to="attention.num_query_groups"
        ):
            data["attention"] |= {"num_query_groups": 1}
        architecture = validate(Architecture, data, files["application"].where)
        rows += model.finish()
    strategy: dict[str, Any] | None = None
    assumptions: dict[str, str] = {}
    if settings is not None:
        strategy = _strategy(settings, sequence, assumptions)
        _offloaded(settings, strategy, architecture)
        settle(settings, strategy, architecture, _WHO)
        rows += settings.finish()
    elif sequence is not None:
        strategy = {"seq_length": sequence}
    multiplied = str(settings.given["datatype"].value) if settings is not None and settings.has("datatype") else None
    system, found = calculon_system.read(files["system"], options.lenient, multiplied) if "system" in files else (None, ())
    given = {what: document.data for what, document in files.items()}
    return Job("calculon", (*rows, *found), architecture, strategy, system, assumptions, given=given)


def _execution(document: Document, lenient: bool) -> Keys:
    keys = Keys("Calculon's execution", of_document(document), _TABLE, lenient, known=set(_FIELDS))
    missing = next((key for key in _FIELDS if key not in keys.given), None)
    if missing is not None and not lenient and all(key in keys.known for key in keys.given):
        raise InputError(f"{document.where}: {missing} is not given; Calculon asks for every key of an execution; --lenient takes false, none or 1")
    return keys


def _what(document: Document) -> str:
    if {"matrix", "vector", "networks", "mem1"} & document.data.keys():
        return "system"
    if {"hidden", "feedforward", "num_blocks"} & document.data.keys():
        return "application"
    if set(_FIELDS) & document.data.keys():
        return "execution"
    raise InputError(f"{document.where}: no file of Calculon: a system has 'matrix', an application 'hidden', an execution 'tensor_par'")


def _model(keys: Keys, document: Document) -> tuple[dict[str, Any], int]:
    """The architecture as Megatron-LM's GPT has it, and the length of sequences."""
    hidden = _needed(keys, "hidden", "hidden_size")
    wide = _needed(keys, "feedforward", "mlp.ffn_hidden_size")
    sequence = _needed(keys, "seq_size", "seq_length, position_embedding_rows")
    heads = _needed(keys, "attn_heads", "attention.num_attention_heads")
    width = _needed(keys, "attn_size", "attention.kv_channels")
    blocks = _needed(keys, "num_blocks", "layers")
    keys.note("vocab_size", "derived", "vocab_size", f"{_VOCABULARY}: that of its count of parameters; it has no embedding and no head else")
    keys.note("dropout", "derived", "hidden_dropout, attention_dropout", f"{_DROPOUT}: it counts the masks, and has no rate")
    keys.note("gated", "derived", "mlp.gated", "two matrices, GeLU between them, LayerNorm, biases: its block")
    return {
        "name": as_name(document.where.rpartition("/")[2].rpartition(".")[0], "calculon"),
        "source": "an application of Calculon",
        "hidden_size": hidden,
        "vocab_size": _VOCABULARY,
        "layers": f"{blocks} * dense",
        "attention": {"num_attention_heads": heads, "kv_channels": width, "qkv_bias": True, "out_bias": True, "fused_qkv": True},
        "mlp": {"ffn_hidden_size": wide, "gated": False, "activation": "gelu", "bias": True},
        "normalization": "LayerNorm",
        "norm_bias": True,
        "tie_word_embeddings": True,
        "position_embedding": "learned",
        "position_embedding_rows": sequence,
        "hidden_dropout": _DROPOUT,
        "attention_dropout": _DROPOUT,
        "modelling": "gpt2",
    }, sequence


def _needed(keys: Keys, key: str, to: str) -> int:
    found = keys.integer(key, None, to=to, least=1)
    if found is None:
        raise keys.wrong(key, "a whole number from 1 up")
    return int(found)


def _strategy(keys: Keys, sequence: int | None, assumptions: dict[str, str]) -> dict[str, Any]:
    """Execution but offloading, which asks for the model."""
    found: dict[str, Any] = {}
    for key, option in (("tensor_par", "tp"), ("pipeline_par", "pp"), ("data_par", "dp")):
        found[option] = keys.integer(key, 1, to=option, least=1)
    world = keys.integer("num_procs", None, to="dp", why="tensor_par pipeline_par data_par", least=1)
    each = found["tp"] * found["pp"] * found["dp"]
    if world is not None and world != each:
        raise keys.wrong("num_procs", f"tensor_par pipeline_par data_par = {each}")
    for key in ("tensor_par_net", "pipeline_par_net", "data_par_net"):
        keys.integer(key)
        if keys.has(key):
            keys.note(key, "no_cost_effect", why=_LINKS)
    found |= {"seq_length": sequence} if sequence is not None else {}
    found |= _batch(keys, found)
    keys.choice("attention_type", {"multihead": 0, "multiquery": 0}, to="attention.num_query_groups")
    found["precision"] = keys.choice("datatype", _TYPES, "bf16", to="precision")
    if keys.has("datatype") and keys.given["datatype"].value == "float8":
        found["fp8"] = "tensorwise"
        keys.note("datatype", to="fp8", why="products in FP8; there every tensor, weight and gradient has one byte")
    found["zero"] = 1 if keys.flag("optimizer_sharding", False, to="zero", why="1") else 0
    found["grad_reduce_in_fp32"] = False
    keys.note("grad_reduce_in_fp32", "derived", "grad_reduce_in_fp32", "false: gradients travel in the type of weights there")
    assumptions["attention_kernel"] = "math"
    keys.note("attention_kernel", "derived", "assume.attention_kernel", "math: scores, softmax and dropout written out, as there")
    _tensor_parallel(keys, found, assumptions)
    again = keys.choice("activation_recompute", {"none": "none", "attn_only": "selective", "full": "full"}, "none", to="recompute")
    if again != "none":
        found["recompute"] = again
    if keys.flag("data_par_overlap", False, to="overlap_grad_reduce", why="and overlap_param_gather where the optimizer is sharded"):
        found |= {"overlap_grad_reduce": True} | ({"overlap_param_gather": True} if found["zero"] else {})
    if keys.flag("training", True) is False:
        keys.refuse("training", "inference is another workload, without backward and optimizer; give training true")
    elif keys.has("training"):
        keys.note("training", "no_cost_effect", why="a training step, as here")
    return found


def _batch(keys: Keys, found: dict[str, Any]) -> dict[str, Any]:
    """Micro-batches, and the interleaved chunks that ask for a number of them."""
    size = keys.integer("microbatch_size", 1, to="micro_batch_size", least=1)
    together = keys.integer("batch_size", found["dp"] * size, to="num_microbatches", why="batch_size / (data_par microbatch_size)", least=1)
    count, left = divmod(together, found["dp"] * size)
    if left:
        raise keys.wrong("batch_size", f"a multiple of data_par microbatch_size = {found['dp'] * size}")
    made: dict[str, Any] = {"micro_batch_size": size, "num_microbatches": count}
    chunks = keys.integer("pipeline_interleaving", 1, to="vpp", least=1)
    if chunks == 1:
        return made
    made["vpp"] = chunks
    if count % found["pp"]:
        group = next((n for n in range(found["pp"], count + 1) if count % n == 0), None)
        if group is None:
            why = f"{count} micro-batches do not fill pp={found['pp']} stages of {chunks} chunks, which Megatron-Core asks for; "
            why += "give pipeline_interleaving 1, or a larger batch_size"
            keys.refuse("pipeline_interleaving", why)
            return {name: value for name, value in made.items() if name != "vpp"}
        made["microbatch_group_size_per_vp_stage"] = group
        why = f"{group}: {count} micro-batches are no multiple of pp={found['pp']}; there a shorter group leaves a bubble in every chunk"
        keys.note("microbatch_group_size_per_vp_stage", "derived", "microbatch_group_size_per_vp_stage", why)
    return made


def _tensor_parallel(keys: Keys, found: dict[str, Any], assumptions: dict[str, str]) -> None:
    how = keys.choice("tensor_par_comm_type", {"ar": "ar", "p2p_rs_ag": "p2p_rs_ag", "rs_ag": "rs_ag"}, "ar", to="sp")
    if how == "rs_ag":
        found["sp"] = True
    if how == "p2p_rs_ag":
        assumptions["pipeline_scatter_gather"] = "true"
        keys.note("tensor_par_comm_type", to="assume.pipeline_scatter_gather", why="boundary tensors travel as shares of tensor ranks")
    redone = keys.flag("seq_par_ag_redo", False, to="assume.save_gathered", why="false: shares are kept and gathered again")
    if how == "rs_ag" and not redone:
        assumptions["save_gathered"] = "true"
    beside = keys.choice("tensor_par_overlap", {"none": False, "ring": True, "pipe": True}, False, to="tp_comm_overlap")
    if beside and how == "rs_ag":
        found["tp_comm_overlap"] = True
    elif beside:
        keys.note(
            "tensor_par_overlap", "not_modelled", why="all-reduces in pieces beside their products; without sequence parallelism they wait here"
        )


def _offloaded(keys: Keys, strategy: dict[str, Any], architecture: Architecture | None) -> None:
    if keys.flag("activations_offload", False, to="cpu_offloading_num_layers"):
        layers = architecture.num_layers if architecture is not None else 0
        if strategy["pp"] == 1 and strategy.get("recompute", "none") == "none" and layers > 1:
            strategy["cpu_offloading_num_layers"] = layers - 1
            keys.note("activations_offload", to="cpu_offloading_num_layers", why="all layers but the last")
        else:
            why = (
                "saved bytes of all blocks but two would wait in the second memory; Megatron-Core offloads them without a pipeline and recomputation"
            )
            keys.note("activations_offload", "not_modelled", why=why)
    if keys.flag("optimizer_offload", False, to="optimizer_cpu_offload"):
        if strategy["zero"]:
            strategy |= {"optimizer_cpu_offload": True, "use_precision_aware_optimizer": True, "store_param_remainders": False}
            keys.note("optimizer_offload", to="optimizer_cpu_offload", why="the update runs on the host too; there states travel in every backward")
        else:
            keys.note(
                "optimizer_offload", "not_modelled", why="states would wait in the second memory: 12 bytes a parameter; asks for a sharded optimizer"
            )
