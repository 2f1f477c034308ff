"""What of a layer can run again, refused with the reason where it cannot.

The rules are Megatron-Core 0.20's, as in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from symsim.errors import InputError, cut, nearest
from symsim.frameworks.recompute import runs_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.limits import LARGEST_SIZE
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import depths, respelt
from symsim.pipeline.schedules import window_of
from symsim.pipeline.stages import stages


def recomputation(architecture: Architecture, strategy: Strategy) -> None:
    """InputError for what cannot run again."""
    if strategy.distribute_saved_activations:
        if strategy.sp:
            raise InputError("distribute_saved_activations=true with sp=true is refused: sequence parallelism already splits what is saved")
        if strategy.recompute != "full":
            raise InputError(f"distribute_saved_activations=true needs recompute=full, and recompute is {strategy.recompute}")
    if strategy.synchronize_checkpoint_boundary and strategy.recompute != "full":
        raise InputError(f"synchronize_checkpoint_boundary=true needs recompute=full, and recompute is {strategy.recompute}")
    after = depths(architecture, strategy.mtp_num_layers)
    if strategy.recompute == "full" and strategy.recompute_method == "uniform" and after and strategy.recompute_num_layers > 1:
        raise InputError(
            f"recompute_num_layers={strategy.recompute_num_layers} with recompute_method=uniform does not work with multi-token "
            "prediction: Megatron-Core recomputes a depth by itself; give recompute_num_layers=1"
        )
    if strategy.recompute == "full" and strategy.recompute_num_layers > architecture.num_layers:
        raise InputError(
            f"recompute_num_layers={strategy.recompute_num_layers} is more than the {architecture.num_layers} layers of {architecture.name}"
        )
    _from_narrow_copies(architecture, strategy)
    _recomputed_by_stage(architecture, strategy)
    _recomputed_by_microbatch(strategy)
    if strategy.recompute != "selective":
        if strategy.recompute_operations is not None:
            raise InputError(f"recompute_operations needs recompute=selective, and recompute is {strategy.recompute}")
        if strategy.recompute_modules != ("core_attn",):
            raise InputError(
                f"recompute_modules={'+'.join(strategy.recompute_modules)} needs recompute=selective, and recompute is {strategy.recompute}"
            )
        return
    if strategy.recompute_operations is not None:
        _recomputed_operations(architecture, strategy)
        return
    if not strategy.recompute_modules:
        raise InputError("recompute=selective needs at least one module in recompute_modules")
    kinds = [architecture.layer_kinds[kind] for kind in architecture.kind_names()]
    shared = architecture.moe is not None and architecture.moe.moe_shared_expert_intermediate_size is not None
    moe = any(kind.ffn == "moe" for kind in kinds)
    applies = {
        "core_attn": (any(k.mixers & {"attention", "compressed_attention"} for k in kinds), "softmax attention"),
        "mlp": (any(k.has_mlp for k in kinds), "a dense feed-forward layer"),
        "moe": (moe, "a mixture of experts"),
        "moe_act": (moe, "a mixture of experts"),
        "shared_experts": (moe and shared, "shared experts"),
        "mla_up_proj": (architecture.attention.kind == "mla", "multi-head latent attention"),
        "layernorm": (True, ""),
        "mhc": (architecture.hyper_connections is not None, "hyper-connections"),
    }
    _not_together(strategy.recompute_modules)
    seen: set[str] = set()
    for module in strategy.recompute_modules:
        if module in seen:
            raise InputError(f"recompute_modules names {module} twice")
        seen.add(module)
        if not applies[module][0]:
            raise InputError(
                f"recompute_modules={module} needs {applies[module][1]}, and {architecture.name} has none; "
                f"valid: {', '.join(name for name, (valid, _) in applies.items() if valid)}"
            )


_NOT_TOGETHER = {
    ("moe", "shared_experts"): "would run the shared experts twice again: moe has them in it; drop shared_experts",
    ("mhc", "mlp"): "is refused: what mixes the streams reads the network's output, which mlp drops; give one of them",
}


def _not_together(modules: tuple[str, ...]) -> None:
    for pair, why in _NOT_TOGETHER.items():
        if set(pair) <= set(modules):
            raise InputError(f"recompute_modules={'+'.join(pair)} {why}")


def _recomputed_operations(architecture: Architecture, strategy: Strategy) -> None:
    if strategy.recompute_modules != ("core_attn",):
        raise InputError("recompute_operations says what runs again in place of recompute_modules; give one of them")
    named_operations("recompute_operations", strategy.recompute_operations or (), architecture)


def named_operations(option: str, asked: Iterable[str], architecture: Architecture) -> None:
    """InputError for a name that no operation of a layer, and no scope of them, has."""
    from symsim.lowering.lower import declared_alone

    declared = declared_alone(architecture)
    layers = [[op.name for op in declared[kind].ops] for kind in respelt(architecture).kind_names()]
    known = dict.fromkeys(name.rsplit(".", n)[0] for names in layers for name in names for n in range(name.count(".") + 1))
    for one in asked:
        for end in one.split(".."):
            if end not in known:
                raise InputError(f"{option}={cut(one)}: no operation of a layer is called '{cut(end, 40)}': {nearest(end, list(known))}")
        if not any(runs_of(names, [one]) for names in layers):
            raise InputError(f"{option}={cut(one)}: no layer has all from the first to the last in this order")


def _from_narrow_copies(architecture: Architecture, strategy: Strategy) -> None:
    if strategy.recompute_from_fp8 is None:
        return
    if strategy.fp8 == "none" or strategy.recompute == "none":
        raise InputError(f"recompute_from_fp8 needs a recipe and what runs again: here fp8={strategy.fp8}, recompute={strategy.recompute}")
    named_operations("recompute_from_fp8", strategy.recompute_from_fp8, architecture)


def _recomputed_by_stage(architecture: Architecture, strategy: Strategy) -> None:
    given = strategy.recompute_layers_per_stage
    if given is None:
        return
    text = f"recompute_layers_per_stage={'+'.join(map(str, given))}"
    if strategy.recompute != "full":
        raise InputError(f"{text} needs recompute=full, and recompute is {strategy.recompute}")
    if len(given) != strategy.pp:
        raise InputError(f"{text} is for {len(given)} stages, and pp={strategy.pp}")
    for stage in stages(architecture, strategy, 0):
        layers = sum(chunk.last - chunk.first for chunk in stage.chunks)
        if given[stage.index] > layers:
            raise InputError(f"{text}: stage {stage.index} has {layers} layers, and {given[stage.index]} of them are to be recomputed")


def _recomputed_by_microbatch(strategy: Strategy) -> None:
    if strategy.num_microbatches_with_partial_activation_checkpoints is None:
        return
    name, pp, held = "num_microbatches_with_partial_activation_checkpoints", strategy.pp, strategy.microbatches
    if strategy.recompute != "full":
        raise InputError(f"{name} needs recompute=full, and recompute is {strategy.recompute}")
    if pp == 1 or strategy.schedule != "1f1b":
        raise InputError(f"{name} is of the schedule 1f1b with pp above 1; here schedule={strategy.schedule}, pp={pp}")
    passes = window_of(strategy, 0, LARGEST_SIZE)
    if held * strategy.vpp < passes:
        needed = -(-passes // strategy.vpp)
        raise InputError(f"{name} counts within the micro-batches that stages hold: pp={pp} needs {needed} or more, and there are {held}")
