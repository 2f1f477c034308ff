"""A derivation beside one at hand, with other options of its strategy: what all of these have alike is made once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.lowering.lowered import Kept, Lowered

# options that are given with `recompute` alone
OF_RECOMPUTATION = (
    *("recompute_method", "recompute_num_layers", "recompute_layers_per_stage", "recompute_modules", "recompute_operations"),
    *("num_microbatches_with_partial_activation_checkpoints", "distribute_saved_activations", "synchronize_checkpoint_boundary"),
)
# options that a recipe of FP8 alone has
_OF_FP8 = (
    *("fp8_param_gather", "fp8_wgrad", "fp8_output_proj", "fp8_dot_product_attention", "fp8_multi_head_attention", "keep_fp8_transpose_cache"),
    *("recompute_from_fp8", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16", "moe_router_padding_for_quantization"),
)


def of_fp8(strategy: Strategy, system: System | None) -> dict[str, dict[str, Any]]:
    """Of the other recipe of FP8 that is worth a try its name and its options: none where there is one, else Megatron's own where the system has a
    rate for it."""
    if strategy.fp8 != "none":
        defaults = {n: Strategy.model_fields[n].default for n in _OF_FP8 if getattr(strategy, n) != Strategy.model_fields[n].default}
        return {"none": {"fp8": "none", **defaults}}
    return {} if system is not None and system.accelerator.peak.fp8 is None else {"delayed": {"fp8": "delayed"}}


def recomputing(strategy: Strategy) -> dict[str, Any]:
    """All layers again where nothing is made again, else nothing."""
    return {"recompute": "full" if strategy.recompute == "none" else "none"}


def ahead(result: Evaluation) -> None:
    """Makes what a report's table of choices and its page, which two processes make, derive alike."""
    strategy = result.strategy
    shallower = [{"pp": strategy.pp // 2}] if strategy.pp > 2 else []
    for options in (recomputing(strategy), *of_fp8(strategy, result.system).values(), *shallower):
        with suppress(InputError):
            beside(result, options)


def beside(result: Evaluation, options: Mapping[str, Any]) -> Evaluation:
    """The same with other options; of its lowering there is what numbers ask for. InputError where it cannot run."""
    ours = {n: getattr(result.strategy, n) for n in result.strategy.model_fields_set}
    kept = {n: v for n, v in ours.items() if not ("recompute" in options and n in OF_RECOMPUTATION)}
    strategy = Strategy(**{**kept, **options})
    made = evaluated(result.architecture, strategy, result.assumptions, dict(result.overrides), result.system, memory=result.beside)
    # what is made with a memory reads the strategy of its last derivation
    return replace(made, lowered=cast(Lowered, Kept(dict.fromkeys(made.lowered.checkpointed), made.lowered.alone)))
