"""Degrees that do not share out the heads of a kind of layer, and what mixers that pass states from token to token cannot run with (Megatron-Core
ssm/mamba_mixer.py, ssm/mamba_context_parallel.py, ssm/gated_delta_net/gdn.py and kda.py: context parallelism gives a rank heads in place of
tokens; ms-swift trains delta rules under sequence parallelism with transformers, too, and symsim takes it to do the same)."""

from __future__ import annotations

from collections.abc import Iterator

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.mixers import LinearAttention, Mamba
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import tunes
from symsim.lowering.shares import divides, divisors
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.shared import holder_of

_ALONE = {
    "short_convolution": "a short convolution",
    "lightning_attention": "lightning attention",
    "compressed_attention": "compressed attention",
    "selective_scan": "Mamba-1",
}


def heads(architecture: Architecture, strategy: Strategy) -> None:
    """InputError where tensor ranks cannot share the heads of a kind of layer."""
    tp = strategy.tp
    for name in architecture.attending:
        own, many, groups = architecture.layer_kinds[name].own, architecture.heads_of(name), architecture.groups_of(name)
        divides("tp", tp, f"layer_kinds.{name}.num_attention_heads" if "a" in own else "num_attention_heads", many)
        if architecture.attention.differential and strategy.tp > 1:  # a rank has a head of either half
            divides("tp", tp, "half of num_query_groups", groups // 2)
        if architecture.attention.kind == "gqa" and groups % tp and tp % groups:
            said = f"layer_kinds.{name}.num_query_groups" if "g" in own else "num_query_groups"
            raise InputError(f"tp={tp} neither divides {said}={groups} nor is a multiple of it; valid: {_for_groups(many, groups)}")


def _for_groups(many: int, groups: int) -> str:
    return divisors(many, lambda n: groups % n == 0 or n % groups == 0)


def heads_of_a_rank(architecture: Architecture, strategy: Strategy) -> Iterator[tuple[str, int]]:
    """Of every kind of layer with attention the heads, and those of keys and values, of a tensor rank."""
    for name in architecture.attending:
        many = architecture.heads_of(name) // strategy.tp
        groups = many if architecture.attention.kind == "mla" else max(architecture.groups_of(name) // strategy.tp, 1)
        yield from (("num_attention_heads", many), ("num_query_groups", groups))


def mixers(architecture: Architecture, strategy: Strategy) -> None:
    """InputError where ranks would share what a mixer needs whole."""
    used = {mixer for kind in architecture.kind_names() for mixer in architecture.layer_kinds[kind].mixers}
    for mixer, named in _ALONE.items():
        if mixer in used and strategy.cp > 1:
            raise InputError(f"cp={strategy.cp} splits sequences, and no framework that symsim knows runs {named} on parts of one; give cp=1")
    compressed = architecture.compressed_attention
    if "compressed_attention" in used and compressed is not None:
        divides("tp", strategy.tp, "compressed_attention.output_groups", compressed.output_groups)
    if "compressed_attention" in used and strategy.tuner_type in ("lora", "oft"):
        said = "heads that are projected group by group have adapters that are not counted"
        raise InputError(f"tuner_type={strategy.tuner_type} puts adapters beside linear maps, and {said}; give tuner_type=full")
    scan = architecture.selective_scan
    if "selective_scan" in used and scan is not None:
        divides("tp", strategy.tp, "selective_scan.channels", scan.channels)
    if "linear_attention" in used and architecture.linear_attention is not None:
        _delta_rule(architecture.linear_attention, strategy)
    if "mamba" in used and architecture.mamba is not None:
        _state_space(architecture.mamba, strategy)
    if strategy.dsa_indexer_loss != "none":
        _indexer_loss(architecture, strategy)
    if architecture.reads_ahead and strategy.pp > 1:
        read = f"layers of {architecture.name} read {architecture.reads_ahead}, which no framework that symsim knows sends from stage to stage"
        raise InputError(f"pp={strategy.pp} puts layers on several stages, and {read}; give pp=1")
    if architecture.shares_weights and strategy.pp > 1:
        _copies(architecture, strategy)
    if architecture.shares_weights and strategy.zero == 3:
        _units(architecture, strategy)


def _copies(architecture: Architecture, strategy: Strategy) -> None:
    """Stages hold copies of weights that layers share: what is not known of them."""
    asked = f"pp={strategy.pp} gives stages copies of weights that layers of {architecture.name} share"
    if tunes(strategy):
        raise InputError(f"{asked}, of which all parameters are trained or none is known; give pp=1, or tuner_type=full without frozen parameters")
    if schedule_of(strategy).mirrored:
        raise InputError(f"{asked}, which schedule={strategy.schedule} would hold twice a rank; give another schedule")
    kinds = architecture.layer_kinds.items()
    for name in architecture.kind_names():
        if architecture.layer_kinds[name].borrows and holder_of(name, kinds) is None:
            raise InputError(f"{asked}, and no layer kind is as '{name}' with weights of its own, which the first of a stage would be; give pp=1")


# options of zero=3 that are of a layer's own parameters
_OF_LAYERS = ("prefetch_bucket_size", "max_live_parameters", "max_reuse_distance", "param_persistence_threshold", "fp8_param_gather")


def _units(architecture: Architecture, strategy: Strategy) -> None:
    """What is not known of weights that are gathered for several layers."""
    said = f"zero=3 gathers weights that layers of {architecture.name} share for each of them"
    given = [name for name in _OF_LAYERS if getattr(strategy, name)]
    if given:
        raise InputError(f"{said}, and what {given[0]} does then is not known; give zero=3 without it, or zero=2")
    if tunes(strategy):
        raise InputError(f"{said}, of which all parameters are trained or none is known; give zero=2, or tuner_type=full without frozen parameters")
    if any(k.weights == "borrowed" and k.ffn == "moe" for k in map(architecture.layer_kinds.__getitem__, architecture.kind_names())):
        raise InputError(f"{said}, experts among them, which no framework that symsim knows does; give zero=2")


def _indexer_loss(architecture: Architecture, strategy: Strategy) -> None:
    """What an indexer's loss needs (Megatron-Core experimental_attention_variant/dsa.py)."""
    asked = f"dsa_indexer_loss={strategy.dsa_indexer_loss}"
    if architecture.attention.dsa_indexer_topk is None:
        raise InputError(f"{asked} trains an indexer, and {architecture.name} has none; give dsa_indexer_loss=none")
    if architecture.attention.dsa_indexer_block:
        raise InputError(f"{asked} trains an indexer that chooses keys, and that of {architecture.name} chooses blocks; give dsa_indexer_loss=none")
    if strategy.fusion != "te":
        raise InputError(f"{asked} needs fusion=te: transformers does not train an indexer")
    if strategy.cp > 1 and strategy.cp_comm_type != "all_gather":
        at = f"cp={strategy.cp} with cp_comm_type={strategy.cp_comm_type}"
        raise InputError(f"{asked} compares scores of whole sequences, which {at} leaves in parts; give cp_comm_type=all_gather")


def _delta_rule(spec: LinearAttention, strategy: Strategy) -> None:
    tp, cp = strategy.tp, strategy.cp
    for name, many in (("linear_num_key_heads", spec.linear_num_key_heads), ("linear_num_value_heads", spec.linear_num_value_heads)):
        divides("tp", tp, name, many)
        _spread(cp, "a delta rule", f"{name}/tp", many // tp)


def _state_space(spec: Mamba, strategy: Strategy) -> None:
    tp, cp, heads, groups = strategy.tp, strategy.cp, spec.mamba_num_heads, spec.mamba_num_groups
    for name, many in (("mamba_num_heads", heads), ("mamba_num_groups", groups)):
        divides("tp", tp, name, many)
    if cp > 1 and strategy.fusion != "te":
        raise InputError(f"cp={cp} needs fusion=te: transformers runs a state-space mixer on whole sequences")
    _spread(cp, "a state-space mixer", "mamba_num_heads/tp", heads // tp)
    own = groups // tp
    if own % cp and cp % own:
        valid = divisors(heads // tp, lambda n: own % n == 0 or n % own == 0)
        raise InputError(f"cp={cp} neither divides mamba_num_groups/tp={own} nor is a multiple of it; valid: {valid}")


def _spread(cp: int, mixer: str, size_name: str, size: int) -> None:
    if size % cp:
        raise InputError(f"cp={cp} spreads the heads of {mixer} over its ranks, and does not divide {size_name}={size}; valid: {divisors(size)}")
