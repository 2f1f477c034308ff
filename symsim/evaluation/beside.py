"""A derivation beside one at hand, with other options of its strategy: what all of these have alike is made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.strategy import Strategy
from symsim.lowering.lowered import Kept, Lowered

# options that are given with `recompute` alone
OF_RECOMPUTATION = (
    *("recompute_method", "recompute_num_layers", "recompute_layers_per_stage", "recompute_modules", "recompute_operations"),
    *("num_microbatches_with_partial_activation_checkpoints", "distribute_saved_activations", "synchronize_checkpoint_boundary"),
)


def beside(result: Evaluation, options: Mapping[str, Any]) -> Evaluation:
    """The same with other options; of its lowering there is what numbers ask for. InputError where it cannot run."""
    ours = {n: getattr(result.strategy, n) for n in result.strategy.model_fields_set}
    kept = {n: v for n, v in ours.items() if not ("recompute" in options and n in OF_RECOMPUTATION)}
    strategy = Strategy(**{**kept, **options})
    made = evaluated(result.model, strategy, result.assumptions, dict(result.overrides), result.system, memory=result.beside)
    # what is made with a memory reads the strategy of its last derivation
    return replace(made, lowered=cast(Lowered, Kept(dict.fromkeys(made.lowered.checkpointed), made.lowered.alone)))
