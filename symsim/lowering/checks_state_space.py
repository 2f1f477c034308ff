"""What a state-space mixer cannot run with (Megatron-Core ssm/mamba_mixer.py, ssm/mamba_context_parallel.py)."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.inputs.architecture import Mamba
from symsim.inputs.strategy import Strategy


def state_space(spec: Mamba, strategy: Strategy) -> None:
    """InputError where ranks would share a head, or a group under tensor parallelism."""
    tp, cp, heads, groups = strategy.tp, strategy.cp, spec.mamba_num_heads, spec.mamba_num_groups
    for name, many in (("mamba_num_heads", heads), ("mamba_num_groups", groups)):
        if many % tp:
            raise InputError(f"tp={tp} does not divide {name}={many}: Megatron-Core gives every tensor rank whole heads and groups")
    if cp > 1 and strategy.fusion != "te":
        raise InputError(f"cp={cp} needs fusion=te: transformers runs a state-space mixer on whole sequences")
    if heads // tp % cp:
        raise InputError(f"cp={cp} spreads the heads of a state-space mixer over its ranks, and does not divide mamba_num_heads/tp={heads // tp}")
    own = groups // tp
    if own % cp and cp % own:
        raise InputError(f"cp={cp} neither divides mamba_num_groups/tp={own} nor is a multiple of it")
