"""`swift sft|pt|rlhf` as options of a strategy: Hugging Face's trainer with ms-swift's own defaults, DeepSpeed and FSDP."""

from __future__ import annotations

import math
from typing import Any

from symsim.errors import InputError
from symsim.importers.assumed import deterministic
from symsim.importers.compiled import compiled
from symsim.importers.deepspeed.reader import configured
from symsim.importers.keys import Entry
from symsim.importers.losses import liger_kernels
from symsim.importers.reading import Options
from symsim.importers.swift.reading import Reading, own_type, precision, rows
from symsim.importers.swift.sections import deepspeed_settings
from symsim.importers.trainer import COMPILER, autocast, groups_on_host, recomputation, replicas, update

_FLASH = ("flash_attn", "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention")
_ROWS = 16


def of_trainer(r: Reading, world: int | None) -> None:
    """Read every argument of `swift sft` that changes a step. world: ranks, where the environment says. InputError for a value that cannot
    be."""
    keys = r.keys
    r.strategy["fusion"] = "eager"
    rows(r)
    _ranks(r, world)
    _padded(r)
    _batch(r, world or 1)
    r.strategy["precision"] = precision(r)
    update(keys, r.strategy, r.assumptions, default=r.default("adamw_torch", "adamw_torch_fused"))
    if keys.has("optimizer"):
        keys.note("optimizer", "not_modelled", why="an optimizer of ms-swift's own or of a plugin: Adam's states and passes are counted")
    recomputation(keys, r.strategy, r.assumptions, default=True)
    if not keys.has("gradient_checkpointing"):
        keys.note("gradient_checkpointing", "derived", "recompute", "on by default in ms-swift")
    deterministic(keys, r.assumptions, "full_determinism", "deterministic_mode")
    _attention(r)
    _experts(r)
    compiled(keys, r.strategy, *COMPILER)
    liger_kernels(keys, "use_liger_kernel", r.strategy, r.architecture)
    settings = deepspeed_settings(keys.given)
    if settings is None:
        replicas(keys, r.strategy, r.assumptions)
        if r.strategy.get("zero") == 3:
            groups_on_host(keys, "fsdp_config.activation_cpu_offload", r.strategy, r.architecture)
        return
    ranks = r.strategy["dp"] * r.strategy.get("cp", 1) * r.strategy.get("tp", 1)
    further = configured(settings, keys, r.strategy, r.assumptions, r.architecture, Options(keys.lenient, variables={"world": str(ranks)}))
    r.further += [row for row in further if row.key != "world"]
    keys.note("deepspeed", "mapped", "zero", "its keys have rows of their own")


def cast_adapters(r: Reading) -> None:
    """Adapters of replicas, which peft keeps in fp32 unless lora_dtype says otherwise (swift/tuners/peft.py _cast_adapter_dtype_hook)."""
    if own_type(r) or r.strategy.get("tuner_type") != "lora" or deepspeed_settings(r.keys.given) is not None:
        return
    autocast(r.keys, r.strategy, "adapters")
    if "autocast" in r.strategy and r.keys.has("lora_dtype"):
        r.keys.note("lora_dtype", to="autocast", why="fp32: cast for products")


def _ranks(r: Reading, world: int | None) -> None:
    keys = r.keys
    cp = keys.integer("sequence_parallel_size", 1, to="cp", why="attention's heads spread over ranks (Ulysses)", least=1)
    if cp > 1:
        r.strategy |= {"cp": cp, **_exchange(r, cp)}
    tp = keys.integer("deepspeed_autotp_size", 1, to="tp", least=1)
    if tp > 1:
        r.strategy["tp"] = tp
    if (world or 1) % (cp * tp):
        said = f"sequence_parallel_size={cp}" if tp == 1 else f"sequence_parallel_size={cp} * deepspeed_autotp_size={tp}"
        raise InputError(f"NPROC_PER_NODE * NNODES = {world or 1} ranks are no multiple of {said}")
    r.strategy["dp"] = (world or 1) // (cp * tp)
    if world is None:
        said = "one rank, since nothing says how many run; --var NPROC_PER_NODE=8 does"
        keys.rows["NPROC_PER_NODE"] = Entry("NPROC_PER_NODE", "(default)", "derived", "dp", said)


def _padded(r: Reading) -> None:
    """A row is padded to what its ranks share evenly (swift/trainers/sequence_parallel)."""
    length, cp = r.strategy.get("seq_length"), r.strategy.get("cp", 1)
    parts = cp if r.strategy.get("cp_comm_type") == "a2a" else 2 * cp
    if cp > 1 and length is not None and length % parts:
        r.strategy["seq_length"] = -(-length // parts) * parts
        key = next(k for k in ("packing_length", "max_length", "seq_length") if r.keys.rows.get(k) is not None and r.keys.rows[k].to == "seq_length")
        r.keys.note(key, "mapped", "seq_length", f"padded to {r.strategy['seq_length']:,}, which sequence_parallel_size={cp} shares evenly")


def _exchange(r: Reading, cp: int) -> dict[str, Any]:
    """Heads are exchanged for parts of the sequence among as many ranks as divide the key and value heads; rings go over the rest."""
    heads = cp if r.architecture is None else math.gcd(cp, r.architecture.query_groups)
    if heads == cp:
        return {"cp_comm_type": "a2a"}
    if heads == 1:
        return {"cp_comm_type": "p2p"}
    why = f"heads over {heads} ranks, as many as divide those of keys and values, and rings over {cp // heads}"
    r.keys.note("sequence_parallel_size", "mapped", "cp, cp_comm_type", why)
    return {"cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [heads, cp // heads]}


def _batch(r: Reading, world: int) -> None:
    """ms-swift accumulates micro-batches up to 16 rows a step, where it is not told how many."""
    keys, each = r.keys, "per_device_train_batch_size"
    size = keys.integer(each, to="micro_batch_size", least=1)
    r.strategy["micro_batch_size"] = size or 1
    many = keys.integer("gradient_accumulation_steps", to="num_microbatches", least=1)
    if many is None:
        many = max(1, math.ceil(_ROWS / (size or 1) / world))
        keys.note("gradient_accumulation_steps", "derived", "num_microbatches", f"{many}: ms-swift's default makes {_ROWS} rows a step")
    r.strategy["num_microbatches"] = many


def _attention(r: Reading) -> None:
    keys, plain = r.keys, r.default("efficient", "flash")
    choices = {**dict.fromkeys(_FLASH, "flash"), "sdpa": plain, "eager": "eager"}
    kernel = keys.choice("attn_impl", choices, to="assume.attention_kernel")
    why = (
        "transformers takes PyTorch's own attention, which repeats keys and values to every head"
        if plain == "efficient"
        else "transformers takes PyTorch's own"
    )
    r.put("attn_impl", "assume.attention_kernel", kernel or plain, kernel is not None, "" if kernel else why)


def _experts(r: Reading) -> None:
    """transformers runs experts one after the other until version 5, which groups them."""
    keys, key = r.keys, "experts_impl"
    grouped = keys.choice(key, {"grouped_mm": True, "eager": False, "batched_mm": True}, to="assume.moe_grouped_gemm")
    if r.architecture is None or r.architecture.moe is not None:
        r.put(
            key, "assume.moe_grouped_gemm", r.default(False, True) if grouped is None else grouped, grouped is not None, "as transformers runs them"
        )
