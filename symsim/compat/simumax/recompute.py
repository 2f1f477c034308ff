"""SimuMax's recomputation: flags of leaves in the order in which it walks them; runs of flagged leaves are segments.

Source: config.py parse_attention_recompute, parse_mlp_recompute; transformer/dense_module.py Attention, MLAAttention, MLP;
transformer/moe_module.py ExpertMLP; transformer/language_model.py set_first_last_recompute_status, set_breakpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symsim.compat.difference import Difference, Question
from symsim.compat.simumax.settings import Settings, flags
from symsim.inputs.conventions import Leaf

# with what travels over the tensor ranks of experts
_DISPATCH = ("moe.experts.dispatch", "moe.experts.fc1.all_gather", "moe.experts.act.all_gather")
_COMBINE = ("moe.experts.combine", "moe.experts.fc2.reduce_scatter")
_NARROW = frozenset(
    f"{module}.{name}"
    for module, names in (
        ("attention", "qkv q_a_proj q_b_proj q_proj kv_a_proj_with_mqa kv_b_proj o_proj"),
        ("mlp", "gate_up up_proj down_proj"),
        ("moe.shared_experts", "gate_up up_proj down_proj"),
    )
    for name in names.split()
)
_GRANULARITIES = ("full_block", "attn_only", "mlp_only", "sdp_only", "selective_recompute")


def recomputed(question: Question, asked: Settings) -> list[Difference]:
    """The difference of recomputation, where a job has any."""
    given = asked.strategy
    how, layers = given.get("recompute_granularity"), given.get("recompute_layer_num") or 0
    if how not in _GRANULARITIES or not layers or not given.get("enable_recompute", True):
        if question.strategy.recompute != "full" or given:
            return _none(question) if given else []
        how, layers = "full_block", question.strategy.recompute_num_layers
    leaves = leaves_of(question, given, str(how))
    if question.strategy.fp8 != "none":
        # a linear module is two leaves then, the quantiser and the product (QuantizedColLinear, QuantizedRowLinear)
        leaves = tuple(replace(leaf, several=not _NARROW.isdisjoint(leaf.names)) for leaf in leaves)
    return [
        Difference(
            "recompute-leaves",
            "what runs again keeps all that it reads from outside, by regions of Megatron-Core",
            "runs of leaves by their flags: each keeps the input of its first leaf, one of a single leaf nothing",
            "transformer/language_model.py LLMModel._comp_fwd_activations",
            ("saved bytes", "FLOPs", "peak", "step time"),
            {"leaves": leaves},
            strategy={
                "recompute": "full",
                "recompute_method": "block",
                "recompute_num_layers": min(int(layers), question.model.num_layers),
                "recompute_modules": None,
                "recompute_operations": None,
            },
        )
    ]


def _none(question: Question) -> list[Difference]:
    """Recomputation that symsim was asked for and SimuMax leaves out (Megatron's modules without a granularity)."""
    if question.strategy.recompute == "none":
        return []
    return [
        Difference(
            "recompute-off",
            "modules are recomputed as asked",
            "nothing is, without recompute_granularity and recompute_layer_num",
            "config.py StrategyConfig.is_recompute",
            ("saved bytes", "FLOPs", "peak", "step time"),
            strategy={"recompute": "none", "recompute_modules": None, "recompute_operations": None},
        )
    ]


def leaves_of(question: Question, given: Mapping[str, Any], how: str) -> tuple[Leaf, ...]:
    """The leaves of a layer, attention first, then a dense network, then shared experts, router and experts."""
    on = flags(given)
    modules = set(given.get("megatron_recompute_modules") or ()) if how == "selective_recompute" and given.get("megatron_recompute") else None
    if modules is not None:
        return _of_modules(frozenset(modules), question)
    full, selective = how == "full_block", how == "selective_recompute"
    attention, core = full or how == "attn_only", full or how in ("attn_only", "sdp_only")
    network = full or how == "mlp_only"
    up = attention or (selective and on["attn_recompute"])
    down = attention or (selective and on["mla_rms_recompute"])
    tail = bool(given.get("recompute_variance")) and not full
    breaks = selective and on["mla_rms_recompute"]
    wide = network or (selective and on["mlp_recompute"])
    beside = network or (selective and on["mlp_rms_recompute"])
    norm = full or (selective and on["mla_rms_recompute"])
    return (
        Leaf(("pre_attention_norm",), norm, first=norm),
        *_attention(up, down, core or (selective and on["attn_recompute"]), attention, tail, breaks),
        Leaf(("pre_mlp_norm",), beside),
        *_dense(wide, tail),
        *_shared(beside, tail),
        Leaf(("moe.gate",), beside),
        *_experts(network, wide, tail, bool(given.get("cache_groupgemm_col_fp8_inputs"))),
    )


def _attention(up: bool, down: bool, core: bool, out: bool, tail: bool, breaks: bool) -> tuple[Leaf, ...]:
    """down: with their norms' breakpoints after each; of grouped-query attention the joint projection goes with `up`."""
    return (
        Leaf(("attention.qkv",), up),
        Leaf(("attention.q_a_proj",), down, replayed=not tail),
        Leaf(("attention.q_a_layernorm",), up, first=breaks and up),
        Leaf(("attention.q_b_proj", "attention.q_proj"), up),
        Leaf(("attention.kv_a_proj_with_mqa",), down, replayed=not tail, keeps=False),
        Leaf(("attention.kv_split", "attention.k_pe_gather"), core, first=breaks and core),
        Leaf(("attention.kv_a_layernorm",), up),
        Leaf(("attention.kv_b_proj",), up),
        Leaf(("attention.core", "attention.kv_up_split", "attention.rope_q", "attention.rope_k", "attention.v_pack"), core, replayed=not tail),
        Leaf(("attention.o_proj",), out),
    )


def _dense(again: bool, tail: bool) -> tuple[Leaf, ...]:
    return (Leaf(("mlp.gate_up", "mlp.up_proj"), again), Leaf(("mlp.act",), again), Leaf(("mlp.down_proj",), again, replayed=not tail))


def _shared(again: bool, tail: bool) -> tuple[Leaf, ...]:
    return tuple(
        Leaf(tuple(f"moe.shared_experts.{n}" for n in names), again, replayed=not (tail and names == ("down_proj",)))
        for names in (("gate_up", "up_proj"), ("act",), ("down_proj",))
    )


def _experts(moved: bool, again: bool, tail: bool, narrow: bool) -> tuple[Leaf, ...]:
    """narrow: the cast of their rows to FP8 does not run again, since it is what is kept."""
    return (
        Leaf(_DISPATCH, moved),
        *([Leaf(("moe.experts.fc1.quantise",), False, keeps=False)] if narrow else []),
        Leaf(("moe.experts.fc1",), again),
        Leaf(("moe.experts.act",), again),
        Leaf(("moe.experts.fc2",), again, replayed=not tail),
        Leaf(_COMBINE, moved),
    )


def _of_modules(modules: frozenset[str], question: Question) -> tuple[Leaf, ...]:
    """Megatron-Core's modules, whose last leaf makes its input again and nothing else."""
    norm, up = "layernorm" in modules, "mla_up_proj" in modules
    moe, act, dense = "moe" in modules, "moe_act" in modules and "moe" not in modules, "mlp" in modules
    latent = question.model.attention.kind == "mla"
    exchanged = question.strategy.cp > 1 and question.strategy.cp_comm_type == "a2a"
    weighted = question.assumptions.get("moe_probabilities") != "combine"
    return (
        Leaf(("pre_attention_norm",), norm, first=norm),
        Leaf(("attention.qkv",), norm, replayed=False),
        Leaf(("attention.q_a_proj",), norm, replayed=False),
        Leaf(("attention.q_a_layernorm",), up, first=norm and up),
        Leaf(("attention.q_b_proj", "attention.q_proj"), up),
        Leaf(("attention.kv_a_proj_with_mqa",), norm, replayed=False, keeps=False),
        Leaf(("attention.kv_split", "attention.k_pe_gather"), up, first=norm and up),
        Leaf(("attention.kv_a_layernorm",), up),
        Leaf(("attention.kv_b_proj",), up),
        Leaf(
            ("attention.core", "attention.kv_up_split", "attention.rope_q", "attention.rope_k", "attention.v_pack"),
            up and latent and not exchanged,
            replayed=False,
        ),
        Leaf(("attention.o_proj",)),
        Leaf(("pre_mlp_norm",), norm),
        Leaf(("mlp.gate_up", "mlp.up_proj"), norm or dense, replayed=not norm),
        Leaf(("mlp.act",), dense, first=norm and dense),
        Leaf(("mlp.down_proj",), dense),
        *_shared(moe, False),
        Leaf(("moe.gate",), norm or moe, replayed=not norm),
        Leaf(_DISPATCH, moe, first=norm and moe, beside=(("moe.gate.router.out", 4),)),
        Leaf(("moe.experts.fc1",), moe),
        Leaf(("moe.experts.act",), moe or act, beside=(("moe.gate.router.out", 4),) if weighted else ()),
        Leaf(("moe.experts.fc2",), moe or act, replayed=not act),
        Leaf(_COMBINE, moe),
    )
