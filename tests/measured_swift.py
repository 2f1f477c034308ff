"""The benchmark tables of ../shared/measured/swift.yaml: Megatron-SWIFT against DeepSpeed ZeRO-2 and ZeRO-3 on A800.

Rows of packed 8192-token bins; document lengths are not published, and one mean length is guessed for all rows of the one
dataset.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from measured_row import UNITS, Case, Rows, Uncovered, architecture, data_parallel, note, strategy

# tokens of a document of Chinese-DeepSeek-R1-Distill-data-110k-SFT, unpublished: one length for all rows, in the middle of
# those (2048 to 4096) with which the three dense rows agree best
DOCUMENT = 3072

MODELS = {"dense_qwen2.5_14b": "qwen2.5-14b", "moe_qwen1.5_moe_a2.7b": "qwen1.5-moe-a2.7b", "moe_qwen3_30b_a3b": "qwen3-30b-a3b"}

ADAPTED = "swift_adapters"

# Megatron-SWIFT's arguments that are fields of Strategy, or no field of it but a cost
MEGATRON = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "expert_model_parallel_size": "ep",
    "context_parallel_size": "cp",
    "sequence_parallel": "sp",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "max_length": "seq_length",
    "recompute_granularity": "recompute",
    "recompute_method": "recompute_method",
    "recompute_num_layers": "recompute_num_layers",
    "moe_shared_expert_overlap": "moe_shared_expert_overlap",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
    "tp_comm_overlap": "tp_comm_overlap",
}


def rows(data: dict[str, Any]) -> Rows:
    """Every cell of the seed's tables, in the file's order."""
    tables = data["seed_tables"]
    common = next((t["scripts"]["deepspeed"]["args"] for t in tables.values() if _written(t)), None)
    found: Rows = []
    for table, entry in tables.items():
        for system, cell in entry["table"].items():
            name = f"swift/{table}/{system}"
            if not isinstance(cell, dict):
                args = entry["scripts"]["deepspeed"]["args"] if _written(entry) else common
                known = cell == "OOM" and system != "megatron" and table in MODELS and args is not None
                found.append(Uncovered(name, table, f"the table prints {cell}", _ran_out(name, table, entry, system, args) if known else None))
            elif "inter-node network not stated" in entry["hardware"]:
                found.append(Uncovered(name, table, "two nodes, and the network between them is not published"))
            elif table not in MODELS:
                found.append(Uncovered(name, table, "no model here answers to it"))
            elif system == "megatron":
                found.append(_megatron(name, table, entry, cell))
            elif _written(entry) or common:
                found.append(_deepspeed(name, table, entry, cell, system, entry["scripts"]["deepspeed"]["args"] if _written(entry) else common))
            else:
                found.append(Uncovered(name, table, "no DeepSpeed script is published"))
    return found + [_adapted(script) for script in data["script_headers"] if _lora(script)]


def _lora(script: dict[str, Any]) -> bool:
    """Whether a script trains adapters and its header prints seconds and memory."""
    return bool(script["parsed"]) and any(command["args"].get("train_type") == "lora" for command in script["commands"])


def _adapted(script: dict[str, Any]) -> Uncovered:
    """Why a script that trains adapters is no case: swift/megatron/tuners/lora.py makes those of grouped products in fp32."""
    name = f"swift/{script['path'].removeprefix('examples/')}@{script['commit']}"
    commands = [command["args"] for command in script["commands"] if "train_type" in command["args"]]
    if not all(args.get("packing") == "true" for args in commands):
        return Uncovered(name, ADAPTED, "rows are as long as samples of unknown length")
    if any(args.get("deepspeed") == "zero3_offload" for args in commands):
        return Uncovered(name, ADAPTED, "parameters that lie on the host have no name here")
    named = "H20" in str(script["context"])
    return Uncovered(name, ADAPTED, "products of experts' adapters in fp32 have no name here" if named else "the GPU is not named")


def _written(entry: dict[str, Any]) -> bool:
    """Whether the table's DeepSpeed script was ever published."""
    return isinstance((entry.get("scripts") or {}).get("deepspeed"), dict)


def _megatron(name: str, table: str, entry: dict[str, Any], cell: dict[str, Any]) -> Case:
    script = entry["scripts"]["megatron"]
    settings = {MEGATRON[key]: value for key, value in script["args"].items() if key in MEGATRON}
    moe = entry["model"].get("num_experts") is not None
    tp, pp = settings["tp"], settings.get("pp", 1)
    plan, unnamed = strategy(
        {
            **settings,
            "packed_document_length": DOCUMENT,
            "dp": data_parallel(script["nproc"], tp, pp),
            # Megatron-Core 0.12 (arguments.py): etp follows tp, and the auxiliary loss is the default router's
            "etp": tp if moe else None,
            "moe_router_load_balancing_type": "aux_loss" if moe else None,
            "cross_entropy_fusion": "native" if script["args"].get("cross_entropy_loss_fusion") else "unfused",
        }
    )
    software = {"apply_rope_fusion": "true", "te_dummy_wgrad": "false", "library_workspace": "ampere", "moe_probabilities": "combine"}
    return _case(name, table, entry, cell, plan, software, note(unnamed, "Megatron-Core 0.12", "load imbalance not published" if moe else ""))


def _deepspeed(name: str, table: str, entry: dict[str, Any], cell: dict[str, Any], system: str, args: dict[str, Any]) -> Case:
    gpus = int(re.match(r"\d+", cell["mem"])[0])  # type: ignore[index]
    plan, unnamed = strategy(
        {
            "packed_document_length": DOCUMENT,
            "dp": gpus,
            "micro_batch_size": args["per_device_train_batch_size"],
            "num_microbatches": args["gradient_accumulation_steps"],
            "seq_length": args["max_length"],
            "zero": int(system.removeprefix("zero")),
            "fusion": "eager",
            # Hugging Face checkpoints every layer by default in ms-swift (trainers/arguments.py), and the loss is in fp32
            "recompute": "full",
            "grad_reduce_in_fp32": False,
            **_limits(system, entry["model"]["hidden_size"]),
        }
    )
    own = "" if _written(entry) else "the dense table's DeepSpeed script, since none was published for this model"
    kept = "DeepSpeed with overlap_comm=false; ZeRO-2 all-reduces every micro-batch" if system == "zero2" else "DeepSpeed with overlap_comm=false"
    experts = "the experts run one by one (transformers 4.50)" if entry["model"].get("num_experts") is not None else ""
    assumptions = {"fsdp_prefetch": "false", "fsdp_unit": "module", "zero_reduction": "all_reduce", "moe_grouped_gemm": "false"}
    assumptions["reduction_buffers"] = "one"  # contiguous_gradients, overlap_comm=false
    assumptions["optimizer_implementation"] = "foreach"  # the Trainer's optim=adamw_torch, which zero2.json and zero3.json leave as it is
    return _case(name, table, entry, cell, plan, assumptions, note(unnamed, kept, experts, own), () if not own else ("script",))


def _ran_out(name: str, table: str, entry: dict[str, Any], system: str, args: dict[str, Any]) -> Case:
    """What a row that ran out of memory set; on as many GPUs as the rows beside it."""
    beside = next(cell for cell in entry["table"].values() if isinstance(cell, dict))
    made = _deepspeed(name, table, entry, beside, system, args)
    return replace(made, step_seconds=None, memory_bytes=None)


def _limits(system: str, hidden: int) -> dict[str, int]:
    """What ms-swift's files for ZeRO-2 and ZeRO-3 say of buckets and of gathered parameters, `auto` as transformers fills it in."""
    if system == "zero2":
        return {"ddp_bucket_size": 2 * 10**8, "allgather_bucket_size": 2 * 10**8}
    auto = {"ddp_bucket_size": hidden**2, "prefetch_bucket_size": int(0.9 * hidden**2), "param_persistence_threshold": 10 * hidden}
    return {**auto, "max_live_parameters": 10**9, "max_reuse_distance": 10**9}


def _case(name: str, table: str, entry: dict, cell: dict, plan: Any, assumptions: dict[str, str], said: str, guessed: tuple[str, ...] = ()) -> Case:
    count, unit = re.fullmatch(r"\d+\s*\*\s*([\d.]+)\s*(GiB|GB)", cell["mem"]).groups()  # type: ignore[union-attr]
    return Case(
        name,
        table,
        architecture(MODELS[table], {}),
        plan,
        # what a monitor shows: reserved memory and the CUDA context
        {"memory": "reserved", "device_context": "cuda", **assumptions},
        "a800-sxm",
        cell["s_per_it"],
        float(count) * UNITS[unit],
        note(f"memory as printed ({cell['mem']}; GB and GiB are mixed in the source)", "packed rows of unknown documents", said),
        ("packed_document_length", *guessed),
    )
