"""torchtitan's keys of before [parallelism] (until v0.1.0, 2025-02), and some of 2025, as those of later versions.

Names: torchtitan's config_manager.py on 2024-05-01, 2024-09-01, 2024-12-01, 2025-02-01 and 2025-07-15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symsim.importers.keys import Entry, Given, shown

_PARALLELISM = {
    "training": """data_parallel_replicate_degree data_parallel_shard_degree tensor_parallel_degree pipeline_parallel_degree
        disable_loss_parallel""",
    "experimental": """enable_async_tensor_parallel pipeline_parallel_degree pipeline_parallel_split_points pipeline_parallel_schedule
        pipeline_parallel_schedule_csv enable_compiled_autograd context_parallel_degree context_parallel_rotate_method""",
}
RENAMED = {
    **{f"{section}.{key}": f"parallelism.{key}" for section, keys in _PARALLELISM.items() for key in keys.split()},
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.enable_loss_parallel": "parallelism.disable_loss_parallel",
    "training.warmup_steps": "lr_scheduler.warmup_steps",
    "training.fp8_linear": "model.converters",
    "float8.enable_float8_linear": "model.converters",
    "float8.moe_fqns": "quantize.grouped_mm.float8.fqns",
    "float8.moe_fqns_prototype": "quantize.grouped_mm.float8.fqns",
    "mx.moe_fqns_prototype": "quantize.grouped_mm.mx.fqns",
    "optimizer.fused": "optimizer.implementation",
    "experimental.pipeline_parallel_microbatches": "parallelism.pipeline_parallel_microbatch_size",
}
_FALSE: tuple[Any, ...] = (False, "", "false", "no", None)


def of_today(given: Mapping[str, Given]) -> tuple[dict[str, Given], dict[str, str]]:
    """The keys by their later names, with values as those have them; and the names that the file has, by the later ones."""
    found: dict[str, Given] = {}
    old: dict[str, str] = {}
    for key, one in given.items():
        name = RENAMED.get(key, key)
        if name != key and name not in given:
            found[name] = replace(one, value=_value(key, one.value))
            old[name] = key
        else:
            found[key] = one
    _replicas(found, old)
    _micro_batches(found, old)
    return found, old


def with_names(rows: tuple[Entry, ...], given: Mapping[str, Given], old: Mapping[str, str]) -> tuple[Entry, ...]:
    """Rows of the ledger under the names that the file has; what it leaves out and a default says follows from that."""
    return tuple(_with_name(row, given, old[row.key]) if row.key in old else row for row in rows)


def _with_name(row: Entry, given: Mapping[str, Given], name: str) -> Entry:
    if name in given:
        return replace(row, key=name, value=shown(given[name].value))
    return replace(row, key=name, value="(default)", fate="derived" if row.fate == "mapped" else row.fate)


def _value(key: str, value: Any) -> Any:
    if key == "training.enable_loss_parallel":
        return value in _FALSE
    if key in ("training.fp8_linear", "float8.enable_float8_linear"):
        return [] if value in _FALSE else ["float8"]
    if key == "optimizer.fused":
        return "foreach" if value in _FALSE else "fused"
    return value


def _replicas(found: dict[str, Given], old: Mapping[str, str]) -> None:
    """training.data_parallel_type=ddp: what is data-parallel are replicas."""
    kind = found.get("training.data_parallel_type")
    shards = "parallelism.data_parallel_shard_degree"
    if kind is not None and kind.value == "ddp" and shards in old:
        found["parallelism.data_parallel_replicate_degree"] = found[shards]
        found[shards] = replace(found[shards], value=1)


def _micro_batches(found: dict[str, Given], old: Mapping[str, str]) -> None:
    """The number of micro-batches, that of the stages by default, as the size of each."""
    size, stages = "parallelism.pipeline_parallel_microbatch_size", "parallelism.pipeline_parallel_degree"
    if size not in old and (stages not in old or size in found):
        return
    local = found.get("training.batch_size", found.get("training.local_batch_size"))
    number = found.get(size, found.get(stages))
    known = number is not None and local is not None and type(local.value) is int and type(number.value) is int
    if known and number is not None and local is not None and number.value > 0 and local.value % number.value == 0 and local.value > 0:
        found[size] = replace(number, value=local.value // number.value)
    elif size in old and size in found:
        del found[size]
