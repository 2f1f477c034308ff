"""Megatron-LM's arguments of numbers from which no cost follows, and those of them that a model does not say."""

from __future__ import annotations

from collections.abc import Iterator

from symsim.importers.megatron.arithmetic import SCALES, YARN
from symsim.inputs.architecture import Architecture
from symsim.inputs.arithmetic import Arithmetic

Argument = tuple[str, ...]


def arguments(a: Architecture) -> Iterator[Argument]:
    """Of what is known; what no argument says comes back otherwise, and is said so (`export.py`)."""
    known = a.arithmetic or Arithmetic()
    for name in ("norm_epsilon", "init_method_std"):
        yield from _given(name, getattr(known, name))
    if a.position_embedding == "rope" and known.rotary_base is not None and known.rotary_base == int(known.rotary_base):
        yield ("--rotary-base", str(int(known.rotary_base)))
        yield from _angles(a, known)
    if a.moe is not None:
        yield from _given("moe_router_topk_scaling_factor", known.moe_router_topk_scaling_factor)
    if _clamped(a):
        yield from _given("activation_func_clamp_value", known.activation_func_clamp_value)
        yield from _given("glu_linear_offset", known.glu_linear_offset)


def _angles(a: Architecture, known: Arithmetic) -> Iterator[Argument]:
    kind, latent, factor = known.rope_type, a.attention.kind == "mla", known.rope_scaling_factor
    if latent:
        # fused angles of latent attention are YaRN's, which by a factor of 1 are plain
        yield ("--rope-type", "yarn")
    if kind == "yarn" and (latent or a.attention.rotary_scaled):
        for field, name in {**SCALES, **({} if latent else YARN)}.items():
            yield from _given(name, getattr(known, field))
        if known.truncate is not None and not latent:
            yield (f"--{'' if known.truncate else 'no-'}yarn-correction-range-round-to-int",)
    elif kind == "llama3" and not latent and not a.attention.rotary_scaled:
        yield ("--use-rope-scaling",)
        yield from _given("rope_scaling_factor", factor)
    elif kind == "linear" and not latent and factor is not None and factor == int(factor):
        yield from _given("rotary_seq_len_interpolation_factor", int(factor))


def unknown(a: Architecture) -> Iterator[str]:
    """Arguments that the model reads and does not say, with the default that Megatron-LM takes (arguments.py, transformer_config.py)."""
    known = a.arithmetic or Arithmetic()
    if a.position_embedding == "rope" and known.rotary_base is None:
        yield "--rotary-base (else 10000)"
        if a.attention.kind == "mla":
            # latent attention has YaRN unless told otherwise
            yield "--rope-type (else yarn), --rotary-scaling-factor, --mscale"
        elif a.attention.rotary_scaled:
            yield "YaRN's --yarn-beta-fast, --yarn-beta-slow, --yarn-original-max-position-embeddings"
        else:
            yield "Llama 3's --use-rope-scaling, --rope-scaling-factor"
    if known.norm_epsilon is None:
        yield "--norm-epsilon (else 1e-5)"
    scaled = a.moe is not None and (a.moe.moe_router_score_function != "softmax" or a.moe.moe_router_num_groups)
    if scaled and known.moe_router_topk_scaling_factor is None:
        yield "--moe-router-topk-scaling-factor (else none)"
    if _clamped(a):
        missing = [name for name in ("activation_func_clamp_value", "glu_linear_offset") if getattr(known, name) is None]
        yield from [", ".join(f"--{name.replace('_', '-')}" for name in missing)] if missing else []


def _clamped(a: Architecture) -> bool:
    return any(network is not None and network.activation == "swiglu_clamped" for network in (a.mlp, a.moe))


def _given(name: str, value: float | None) -> list[Argument]:
    return [] if value is None else [(f"--{name.replace('_', '-')}", repr(value))]
