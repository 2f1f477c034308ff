"""How the fields of an architecture are read from config keys: attention, feed-forward, experts, layer patterns, norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symsim.errors import InputError
from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, Fields, Value, act, flag, integer, number


def _groups(c: Config) -> int | None:
    heads, groups = c.integer("num_attention_heads"), c.optional("num_key_value_heads")
    if groups and heads % groups:
        name, _ = c.look("num_key_value_heads")
        raise InputError(f"{c.where}: key '{name}' is {groups}, which does not divide {c.look('num_attention_heads')[0]} {heads}.")
    return None if groups == heads else groups


def head_dim(c: Config) -> int | None:
    hidden, heads, dim = c.integer("hidden_size"), c.integer("num_attention_heads"), c.optional("head_dim")
    return None if dim is not None and dim * heads == hidden else dim


def joined(c: Config) -> int | None:
    """The heads together are as wide as the model: a square o_proj (Helium), or a norm over hidden_size among them (OLMoE, BitNet, Phi)."""
    heads, dim = c.integer("num_attention_heads"), c.optional("head_dim")
    if dim is not None and dim * heads != c.integer("hidden_size"):
        raise c.refuse("head_dim", f"hidden_size / num_attention_heads = {c.integer('hidden_size') / heads:g}", dim)
    return None


def minicpm_values(c: Config) -> int:
    """configuration_minicpm3.py: hidden_size / num_attention_heads where v_head_dim is null."""
    return c.optional("v_head_dim") or c.integer("hidden_size") // c.integer("num_attention_heads")


def dbrx_width(c: Config) -> int:
    """configuration_dbrx.py: experts are as wide as d_model, of which hidden_size is a name only when they have been sized."""
    width, sized = c.integer("hidden_size"), c.spelling.defaults["d_model"]
    if c.values.get("d_model") is None and width != sized:
        raise c.refuse("hidden_size", f"given as d_model, by which experts are sized ({sized} without it)", width)
    return width


def falcon_groups(c: Config) -> int | None:
    """modeling_falcon.py, FalconAttention: num_kv_heads counts in the new decoder only."""
    heads, groups = c.integer("num_attention_heads"), c.optional("num_kv_heads")
    multi_query = c.flag("multi_query")
    if c.flag("new_decoder_architecture"):
        return groups if groups != heads else None
    return 1 if multi_query else None


HEADS: Fields = {"num_attention_heads": integer("num_attention_heads"), "num_query_groups": _groups, "kv_channels": head_dim}


SQUARE: Fields = {"kv_channels": None}  # the module code knows no head_dim


FUSED_MHA: Fields = SQUARE | {"num_query_groups": None, "fused_qkv": True}


BIASED: Fields = {"qkv_bias": flag("attention_bias"), "out_bias": flag("attention_bias")}


MLA: Fields = BIASED | {
    "kind": "mla",
    "num_query_groups": None,
    "kv_channels": None,
    "q_lora_rank": lambda c: c.optional("q_lora_rank"),
    "kv_lora_rank": integer("kv_lora_rank"),
    "qk_head_dim": integer("qk_nope_head_dim"),
    "qk_pos_emb_head_dim": integer("qk_rope_head_dim"),
    "v_head_dim": integer("v_head_dim"),
}


GATED: Fields = {"ffn_hidden_size": integer("intermediate_size"), "activation": act()}


PLAIN: Fields = GATED | {"gated": False}


def four_wide(c: Config) -> int:
    return 4 * c.integer("hidden_size")


def _topk(count: str) -> Value:
    def read(c: Config) -> int:
        chosen, all_experts = c.integer("num_experts_per_tok"), c.integer(count)
        if chosen > all_experts:
            raise c.refuse(c.look("num_experts_per_tok")[0], f"at most {c.look(count)[0]} {all_experts}", chosen)
        return chosen

    return read


def experts(count: str, width: str, **more: Any) -> Fields:
    return {
        "num_moe_experts": integer(count),
        "moe_router_topk": _topk(count),
        "moe_ffn_hidden_size": integer(width),
        "activation": act(),
        "moe_router_pre_softmax": True,
    } | more


def shared(count: str, width: str, without: str = "") -> Value:
    """Width of the experts that every token has. without: the key whose width stands there where there are none; else nothing does."""
    return lambda c: c.integer(count, 0) * c.integer(width) or (c.integer(without) if without else None)


def expert_groups(c: Config) -> int | None:
    groups, all_experts = c.optional("n_group"), c.integer("n_routed_experts")
    if groups and all_experts % groups:
        raise InputError(f"{c.where}: key 'n_group' is {groups}, which does not divide the {all_experts} routed experts.")
    return groups if groups and groups > 1 else None


def groups_or_none(c: Config) -> int | None:
    """configuration_axk2.py: the number of groups and how many are chosen are given together, or neither."""
    for name, other in (("n_group", "topk_group"), ("topk_group", "n_group")):
        if c.look(name)[1] is None and c.look(other)[1] is not None:
            raise c.refuse(name, f"given, as {other} is, or neither", None)
    return expert_groups(c)


def group_topk(c: Config) -> int | None:
    topk = c.optional("topk_group")
    return topk if expert_groups(c) else None


def v2_limited(c: Config) -> bool:
    return c.word("topk_method", {"greedy": "", "group_limited_greedy": "yes"}) == "yes"


def limited_groups(c: Config) -> int | None:
    """modeling_deepseek_v2.py: the others' scores are filled behind a mask, where there is one group too."""
    return (expert_groups(c) or c.optional("n_group") or None) if v2_limited(c) else None


def limited_topk(c: Config) -> int | None:
    return c.optional("topk_group") if limited_groups(c) else None


# of DeepSeek-V2's router without groups
GREEDY = dict.fromkeys(("n_group", "topk_group"), "topk_method is greedy")


# modeling_deepseek_v3.py and the modules generated from it: sigmoid scores, a selection bias that is a buffer, groups
DEEPSEEK_MOE: Fields = experts(
    "n_routed_experts",
    "moe_intermediate_size",
    moe_router_pre_softmax=False,
    moe_router_score_function="sigmoid",
    moe_router_enable_expert_bias="buffer",
    norm_topk_prob=flag("norm_topk_prob"),
    moe_router_num_groups=expert_groups,
    moe_router_group_topk=group_topk,
    moe_shared_expert_intermediate_size=shared("n_shared_experts", "moe_intermediate_size"),
)


QWEN_MOE: Fields = experts("num_experts", "moe_intermediate_size", norm_topk_prob=flag("norm_topk_prob"))


QWEN_SHARED: Fields = QWEN_MOE | {"moe_shared_expert_intermediate_size": integer("shared_expert_intermediate_size"), "moe_shared_expert_gate": True}


Mixers = Callable[[Config], list[LayerKind]]


Ffns = Callable[[Config], list[str]]


def full(c: Config) -> list[LayerKind]:
    return [LayerKind()] * c.depth


def windowed(c: Config) -> list[LayerKind]:
    """One sliding window for every layer."""
    return [LayerKind(window=c.optional("sliding_window"))] * c.depth


def switched(c: Config) -> list[LayerKind]:
    """modeling_qwen3_moe.py: use_sliding_window turns the window on for every layer."""
    window = c.optional("sliding_window")
    return [LayerKind(window=window if c.flag("use_sliding_window") else None)] * c.depth


def typed(c: Config, types: list[str], width_key: str = "sliding_window", rope: list[int] | None = None) -> list[LayerKind]:
    """LayerKinds of a list of transformers' layer_types."""
    width = c.optional(width_key, 0) or None
    if width is None and c.values.get("layer_types") and "sliding_attention" in types:
        raise c.refuse(width_key, "a positive integer where layer_types has sliding_attention", c.look(width_key)[1])
    made = []
    for i, kind in enumerate(types):
        turned = True if rope is None else bool(rope[i])
        if kind in ("full_attention", "attention"):
            made.append(LayerKind(rope=turned))
        elif kind == "sliding_attention" and width_key == "sliding_window":
            made.append(LayerKind(window=width, rope=turned))
        elif kind == "chunked_attention" and width_key == "attention_chunk_size":
            made.append(LayerKind(window=width, chunked=width is not None, rope=turned))
        else:
            raise InputError(f"{c.where}: key 'layer_types' names '{kind}', which this model_type does not have.")
    return made


def qwen_windows(first: bool) -> Mixers:
    """configuration_qwen2.py: the window starts at layer max_window_layers (Qwen2-MoE: alternates before it)."""

    def kinds(c: Config) -> list[LayerKind]:
        on, last = c.flag("use_sliding_window"), c.integer("max_window_layers", 0)
        types = c.items("layer_types", str, c.depth) or [
            "sliding_attention" if on and (i < last and i % 2 == 0 if first else i >= last) else "full_attention" for i in range(c.depth)
        ]
        made = typed(c, types)
        return made if on else [LayerKind()] * c.depth

    return kinds


def dots_windows(c: Config) -> list[LayerKind]:
    """configuration_dots1.py: as Qwen2, without the switch."""
    last = c.integer("max_window_layers", 0)
    types = c.items("layer_types", str, c.depth) or ["sliding_attention" if i >= last else "full_attention" for i in range(c.depth)]
    return typed(c, types)


def alternating(period: str | int) -> Mixers:
    """Every `period`-th layer attends to everything, the others to a window (Gemma 2 and 3, gpt-oss)."""

    def kinds(c: Config) -> list[LayerKind]:
        every = period if isinstance(period, int) else c.integer(period)
        types = c.items("layer_types", str, c.depth) or ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(c.depth)]
        return typed(c, types)

    return kinds


def _rope_layers(c: Config, asked: list[int] | None) -> list[int]:
    interval = c.integer("no_rope_layer_interval")
    return asked or [int((i + 1) % interval != 0) for i in range(c.depth)]


def llama4_mixers(c: Config) -> list[LayerKind]:
    """configuration_llama4.py: chunked attention where there is RoPE, all of the sequence where there is none. An empty list of layers is none."""
    rope = _rope_layers(c, c.items("no_rope_layers", int, c.depth) if c.look("no_rope_layers")[1] != [] else None)
    types = c.items("layer_types", str, c.depth) or ["chunked_attention" if r else "full_attention" for r in rope]
    return typed(c, types, "attention_chunk_size", rope)


def smollm3_mixers(c: Config) -> list[LayerKind]:
    """configuration_smollm3.py: the layers without RoPE are the ones that may have a window."""
    rope, on = _rope_layers(c, c.items("no_rope_layers", int, c.depth)), c.flag("use_sliding_window")
    types = c.items("layer_types", str, c.depth) or ["full_attention" if r or not on else "sliding_attention" for r in rope]
    return [k if on else k.model_copy(update={"window": None}) for k in typed(c, types, rope=rope)]


def qwen3_next_mixers(c: Config) -> list[LayerKind]:
    """configuration_qwen3_next.py: every full_attention_interval-th layer is attention, the others gated delta nets."""
    every = c.integer("full_attention_interval")
    types = c.items("layer_types", str, c.depth) or ["linear_attention" if (i + 1) % every else "full_attention" for i in range(c.depth)]
    wrong = [t for t in types if t not in ("linear_attention", "full_attention")]
    if wrong:
        raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]}', which this model_type does not have.")
    return [LayerKind(mixer="linear_attention" if t == "linear_attention" else "attention") for t in types]


def dense(c: Config) -> list[str]:
    return ["mlp"] * c.depth


def sparse(c: Config) -> list[str]:
    return ["moe"] * c.depth


def after(count: str) -> Ffns:
    """Experts in all layers but the first ones, as many as the key says."""

    def ffns(c: Config) -> list[str]:
        first = c.integer(count, 0)
        return ["moe" if i >= first else "mlp" for i in range(c.depth)]

    return ffns


after_first = after("first_k_dense_replace")


def stepped(c: Config) -> list[str]:
    step, plain, count = c.integer("decoder_sparse_step"), c.items("mlp_only_layers", int) or [], c.integer("num_experts", 0)
    return ["moe" if count and i not in plain and (i + 1) % step == 0 else "mlp" for i in range(c.depth)]


def llama4_ffns(c: Config) -> list[str]:
    step, chosen = c.integer("interleave_moe_layer_step", 0), c.items("moe_layers", int)
    if chosen is None and step == 0:
        raise c.refuse("interleave_moe_layer_step", "a positive integer", step)
    layers = set(range(step - 1, c.depth, step)) if chosen is None else set(chosen)
    return ["moe" if i in layers else "mlp" for i in range(c.depth)]


def ernie_ffns(c: Config) -> list[str]:
    start, every, end = c.integer("moe_layer_start_index", 0), c.integer("moe_layer_interval"), c.integer("moe_layer_end_index", -1)
    last = c.depth - 1 if end == -1 else end
    return ["moe" if (i + 1) % every == 0 and start <= i <= last else "mlp" for i in range(c.depth)]


TWO_NORMS = ("pre_attention", "pre_mlp")


FOUR_NORMS = ("pre_attention", "post_attention", "pre_mlp", "post_mlp")


LAYERNORM: Fields = {"normalization": "LayerNorm", "norm_bias": True}


GEMMA: Fields = {"norm_unit_offset": True, "embedding_scale": True}


def cohere_norm(c: Config) -> str:
    """modeling_cohere2_moe.py: the norm whose epsilon is given."""
    return "LayerNorm" if c.look("rms_norm_eps")[1] is None else "RMSNorm"


def cohere_sigmoid(c: Config) -> str:
    return c.word("expert_selection_fn", {"softmax": "softmax", "sigmoid": "sigmoid"})


def cohere_normed(c: Config) -> bool:
    """modeling_cohere2_moe.py: only sigmoids of the chosen experts are divided by their sum."""
    return c.flag("norm_topk_prob") and cohere_sigmoid(c) == "sigmoid"


BASE: Fields = {
    "hidden_size": integer("hidden_size"),
    "vocab_size": integer("vocab_size"),
    "tie_word_embeddings": flag("tie_word_embeddings"),
    "attention_dropout": number("attention_dropout"),
}


def falcon_norms(c: Config) -> tuple[str, ...]:
    """modeling_falcon.py, FalconDecoderLayer: one norm for both branches unless the new decoder (or the key) says two."""
    parallel, new, count = c.flag("parallel_attn"), c.flag("new_decoder_architecture"), c.optional("num_ln_in_parallel_attn")
    if new and not parallel:
        raise InputError(f"{c.where}: key 'parallel_attn' must be true with new_decoder_architecture.")
    if not parallel or (2 if count is None and new else count) == 2:
        return TWO_NORMS
    return ("pre_attention",)


def narrower(key: str) -> Value:
    """Width of a table of words that is not the model's: two projections more (OPT-350m, ELECTRA)."""

    def read(c: Config) -> int | None:
        width = c.optional(key)
        return None if width == c.integer("hidden_size") else width

    return read
