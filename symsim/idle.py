"""Options that were given and move nothing here: said out loud, so that no key is silently without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.architecture import Architecture
from symsim.errors import InputError
from symsim.loading import override_architecture
from symsim.result import Result, derive
from symsim.strategy import Strategy

# Options whose effect depends on other options or on the model. Degrees, sizes and batches always show.
CONDITIONAL = (
    "cp_comm_type",
    "zero",
    "num_distributed_optimizer_instances",
    "reshard_after_forward",
    "reshard_after_backward",
    "gradient_sync",
    "grad_reduce_in_fp32",
    "pad_buckets_for_high_nccl_busbw",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "activation_func_fp8_input_store",
    "fp32_residual_connection",
    "cross_entropy_fusion",
    "moe_token_dispatcher_type",
    "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity",
    "moe_router_dtype",
    "moe_router_load_balancing_type",
)


def idle_options(result: Result) -> list[str]:
    """Given options without effect on this model under this strategy: those whose default gives the same output."""
    given = {n: v for n, v in result.strategy.model_dump().items() if n in result.strategy.model_fields_set}
    found = []
    output = None
    for name in CONDITIONAL:
        default = Strategy.model_fields[name].default
        if name not in given or given[name] == default:
            continue
        output = output or _output(result)
        try:
            other = derive(result.model, Strategy(**{**given, name: default}), result.assumptions, result.overrides)
        except InputError:
            continue  # the other options need this one
        if _output(other) == output:
            found.append(name)
    return found


def idle_fields(result: Result, original: Architecture, changes: Mapping[tuple[str, ...], Any]) -> list[str]:
    """Fields of the original architecture that were changed without effect: the output is the same without the change."""
    found = []
    for path in changes:
        try:
            other = override_architecture(original, {p: v for p, v in changes.items() if p != path})
            if other != override_architecture(original, changes) and _output(
                derive(other, result.strategy, result.assumptions, result.overrides)
            ) == _output(result):
                found.append(".".join(path))
        except InputError:
            continue  # the other changes need this one
    return found


def _output(result: Result) -> dict:
    return {key: value for key, value in result.to_json().items() if key not in ("model", "strategy", "symbols")}
