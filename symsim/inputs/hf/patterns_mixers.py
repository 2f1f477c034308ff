"""Which layers have which mixer, and widths that follow from several keys: families of `families_mixers.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symsim.errors import InputError
from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config, Fields, Value
from symsim.inputs.hf.fields import Mixers, typed
from symsim.inputs.hf.patterns import sparse_from
from symsim.inputs.hf.rotary import in_pairs


def lfm2_mixers(c: Config) -> list[LayerKind]:
    """configuration_lfm2.py: attention in the layers that full_attn_idxs names (all where it does not), short convolutions in the others."""
    types = c.items("layer_types", str, c.depth)
    if types is None and "full_attn_idxs" not in c.spelling.defaults:
        raise InputError(f"{c.where}: key 'layer_types' is missing; it says which layers are convolutions.")
    if types is None:
        chosen = c.items("full_attn_idxs", int)
        types = ["full_attention" if chosen is None or i in chosen else "conv" for i in range(c.depth)]
    wrong = [t for t in types if t not in ("conv", "full_attention")]
    if wrong:
        raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]}', which this model_type does not have.")
    return [LayerKind(mixer="short_convolution" if t == "conv" else "attention") for t in types]


def lfm2_width(c: Config) -> int:
    """modeling_lfm2.py, Lfm2MLP: two thirds of the width, times a factor, up to a multiple."""
    width = c.integer("intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim"):
        return width
    width = 2 * width // 3
    if c.look("block_ffn_dim_multiplier")[1] is None:
        return width
    step = c.integer("block_multiple_of")
    return max(step, step * -(-int(c.number("block_ffn_dim_multiplier", 0, 1e6) * width) // step))


def olmo_mixers(c: Config) -> list[LayerKind]:
    """configuration_olmo_hybrid.py: every fourth layer is attention, or the last where there is none; its norms stand behind, those of a delta net
    in front."""
    default = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(c.depth)]
    if "full_attention" not in default:
        default[-1] = "full_attention"
    types = c.items("layer_types", str, c.depth) or default
    wrong = [t for t in types if t not in ("linear_attention", "full_attention")]
    if wrong:
        raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]:.40}', which this model_type does not have.")
    if len(set(types)) < 2:
        raise InputError(f"{c.where}: key 'layer_types' has layers of one type alone, and transformers asks for both.")
    said = c.values.get("rope_parameters")
    turned = not (isinstance(said, Mapping) and said.get("rope_theta", "") is None)  # modeling_olmo_hybrid.py: no angles without a base
    delta, whole = LayerKind(mixer="linear_attention"), LayerKind(rope=turned, norms=("post_attention", "post_mlp"))
    return [delta if t == "linear_attention" else whole for t in types]


def _delta_keys(c: Config) -> int:
    return c.optional("linear_key_head_dim") or int(0.75 * c.integer("hidden_size") / (c.optional("linear_num_key_heads") or _heads(c)))


def _heads(c: Config) -> int:
    return c.integer("num_attention_heads")


OLMO_DELTA_NET: Fields = {
    "linear_num_key_heads": lambda c: c.optional("linear_num_key_heads") or _heads(c),
    "linear_num_value_heads": lambda c: c.optional("linear_num_value_heads") or _heads(c),
    "linear_key_head_dim": _delta_keys,
    "linear_value_head_dim": lambda c: c.optional("linear_value_head_dim") or 2 * _delta_keys(c),
    "linear_conv_kernel_dim": lambda c: c.integer("linear_conv_kernel_dim"),
    "fused_in_proj": False,
    "separate_qkv": True,
}


def lara_mixers(c: Config) -> list[LayerKind]:
    """configuration_lara_mini.py: of five layers two are delta nets, two have a window, and one attends to everything, without RoPE."""
    period = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")
    types = c.items("layer_types", str, c.depth) or [period[i % len(period)] for i in range(c.depth)]
    attending = typed(c, ["full_attention" if name == "linear_attention" else name for name in types])
    delta = LayerKind(mixer="linear_attention")
    return [
        delta if name == "linear_attention" else kind.model_copy(update={"rope": kind.window is not None})
        for kind, name in zip(attending, types, strict=True)
    ]


def glm_indexers(c: Config) -> list[LayerKind]:
    """configuration_glm_moe_dsa.py: which layers have an indexer, and which take over what the last one chose."""
    types = c.items("indexer_types", str, c.depth)
    name, pattern = c.look("index_topk_pattern")
    if types is None and pattern is not None:
        if not isinstance(pattern, str) or set(pattern) - {"F", "S"} or len(pattern) != c.depth:
            raise c.refuse(name, f"{c.depth} letters, F or S", pattern)
        types = [{"F": "full", "S": "shared"}[letter] for letter in pattern]
    if types is None:
        every, offset = max(c.integer("index_topk_freq", 0), 1), c.integer("index_skip_topk_offset", 0)
        types = ["shared" if max(i - offset + 1, 0) % every else "full" for i in range(c.depth)]
    return _indexed(c, types)


def hy_indexers(c: Config) -> list[LayerKind]:
    """configuration_hy_v4.py: the first layer has an indexer, and of the others one in four."""
    return _indexed(c, c.items("indexer_types", str, c.depth) or ["shared" if i and (i - 1) % 4 else "full" for i in range(c.depth)])


def _indexed(c: Config, types: list[str]) -> list[LayerKind]:
    wrong = [t for t in types if t not in ("full", "shared")]
    if wrong:
        raise InputError(f"{c.where}: key 'indexer_types' names '{wrong[0]:.40}'; a layer's indexer is full or shared.")
    if types[0] == "shared":
        raise InputError(f"{c.where}: key 'indexer_types' begins with a shared indexer, and no layer before it has one.")
    return [LayerKind(shared_index=t == "shared") for t in types]


def block_indexers(c: Config) -> list[LayerKind]:
    """configuration_minimax_m3_vl.py: `layer_types`, or the flags of sparse_attention_config, or attention to all."""
    types, flags = c.items("layer_types", str, c.depth), c.items("sparse_attention_config.sparse_attention_freq", int)
    if types is None and flags is not None:
        types = ["minimax_m3_sparse" if flag else "full_attention" for flag in flags]
    types = ["full_attention"] * c.depth if types is None else types
    wrong = [t for t in types if t not in ("minimax_m3_sparse", "full_attention")]
    if wrong or len(types) < c.depth:
        said = f"names '{wrong[0]:.40}', which this model_type does not have" if wrong else f"has {len(types)} entries for {c.depth} layers"
        raise InputError(f"{c.where}: key '{c.look('layer_types')[0]}' {said}.")
    return [LayerKind(indexer=t == "minimax_m3_sparse") for t in types[: c.depth]]


def of_indexer(key: str, times: str = "") -> Value:
    """A size of the indexer, where a layer has one."""

    def value(c: Config) -> int | None:
        size = c.integer(key) * (c.integer(times) if times else 1)
        return size if any(kind.indexer for kind in block_indexers(c)) else None

    return value


def frequent_experts(c: Config) -> list[str]:
    """configuration_minimax_m3_vl.py: `mlp_layer_types`, or the flags of moe_layer_freq, or experts in all layers."""
    flags = c.items("moe_layer_freq", int)
    if c.items("mlp_layer_types", str) is None and flags is not None:
        if len(flags) < c.depth:
            raise InputError(f"{c.where}: key 'moe_layer_freq' has {len(flags)} entries for {c.depth} layers.")
        return ["moe" if flag else "mlp" for flag in flags[: c.depth]]
    return sparse_from(0)(c)


def indexed_turns(c: Config) -> list[LayerKind]:
    """configuration_mistral_large4.py: indexers as in GLM-5, and which layers turn queries and keys."""
    turns = c.items("no_rope_layers", int)
    every, name = c.integer("no_rope_layer_interval"), c.look("kv_source_layers")[0]
    if turns is not None and len(turns) < c.depth:
        raise c.refuse("no_rope_layers", f"a number for each of {c.depth} layers", turns)
    turned = [bool(t) for t in turns] if turns is not None else [(i + 1) % every != 0 for i in range(c.depth)]
    sources = c.items("kv_source_layers", int)
    if sources is not None and sources != list(range(c.depth)):
        raise InputError(f"{c.where}: key '{name}' has layers take latents of keys from others, which is not supported.")
    return [kind.model_copy(update={"rope": rope}) for kind, rope in zip(glm_indexers(c), turned)]


def gated_by_norms(c: Config) -> list[LayerKind]:
    """modeling_axk2.py: norms in front of attention and of experts gate what they make."""
    sparse = (ffn == "moe" for ffn in sparse_from("first_k_dense_replace")(c))
    return [LayerKind(gated_norms=("pre_attention", "pre_mlp") if experts else ("pre_attention",)) for experts in sparse]


def mixed(other: str, whole: Callable[[int], bool]) -> Mixers:
    """`layer_types`, or attention where the rule `whole` says so; the others are lightning attention."""

    def kinds(c: Config) -> list[LayerKind]:
        types = c.items("layer_types", str, c.depth) or ["full_attention" if whole(i) else other for i in range(c.depth)]
        wrong = [t for t in types if t not in (other, "full_attention")]
        if wrong:
            raise InputError(f"{c.where}: key 'layer_types' names '{wrong[0]}', which this model_type does not have.")
        return [LayerKind(mixer="lightning_attention" if t == other else "attention") for t in types]

    return kinds


def kimi_mixers(c: Config) -> list[LayerKind]:
    """configuration_kimi_linear.py: `layer_types`, or the lists of linear_attn_config that count from one; else every fourth from the fifth on is
    attention, which has no RoPE."""
    types = c.items("layer_types", str, c.depth)
    whole, delta = (c.items(f"linear_attn_config.{name}", int) for name in ("full_attn_layers", "kda_layers"))
    if types is None and whole is not None and delta is not None:
        if sorted([*whole, *delta]) != list(range(1, c.depth + 1)):
            raise InputError(f"{c.where}: key 'linear_attn_config' does not name each of the {c.depth} layers once, counted from 1.")
        types = ["full_attention" if i + 1 in whole else "linear_attention" for i in range(c.depth)]
    if types is None:
        types = ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in range(c.depth)]
    return [LayerKind(mixer="linear_attention") if delta_rule(c, t) else LayerKind(rope=False) for t in types]


_COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def deepseek_v4_mixers(c: Config) -> list[LayerKind]:
    """configuration_deepseek_v4.py: `layer_types`, or `compress_ratios` of layers, or heavy compression in two layers, then by turns with the light
    one, among whose entries an indexer chooses. What rates leave out is transformers' default of none alone."""
    name, rates = c.look("compress_rates")
    legacy = {"compressed_sparse_attention": "compress_rate_csa", "heavily_compressed_attention": "compress_rate_hca"}
    own = dict(_COMPRESSED) if rates is None else rates
    if not isinstance(own, Mapping):
        raise c.refuse(name, "a table of tokens by type of layer", rates)
    networks = c.values.get("mlp_layer_types") or []
    if not isinstance(networks, list) or any(kind not in ("moe", "hash_moe") for kind in networks):
        raise c.refuse("mlp_layer_types", "a list of moe and hash_moe", networks)
    own = dict(own) | {kind: value for kind, key in legacy.items() if (value := c.optional(key)) is not None}
    types = c.items("layer_types", str, c.depth)
    ratios = c.items("compress_ratios", int)
    if types is None and ratios is not None:
        of_ratio = {0: "sliding_attention"} | {tokens: kind for kind, tokens in _COMPRESSED.items()}
        wrong = next((r for r in ratios if r not in of_ratio), None)
        if wrong is not None or len(ratios) < c.depth:
            raise c.refuse("compress_ratios", f"{c.depth} numbers, each 0, 4 or 128", ratios)
        types = [of_ratio[r] for r in ratios[: c.depth]]
    if types is None:
        types = ["compressed_sparse_attention" if i % 2 and i > 1 else "heavily_compressed_attention" for i in range(c.depth)]
    window, made = c.integer("sliding_window"), []
    for kind in types:
        if kind not in (*_COMPRESSED, "sliding_attention"):
            raise InputError(f"{c.where}: key 'layer_types' names '{kind:.40}', which this model_type does not have.")
        tokens = own.get(kind)
        if kind in _COMPRESSED and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
            raise c.refuse(f"{name}.{kind}", "a positive integer", tokens)
        compressed = {"compression": tokens, "chosen_entries": kind == "compressed_sparse_attention"} if kind in _COMPRESSED else {}
        made.append(LayerKind(mixer="compressed_attention", window=window, **compressed))
    return made


def deepseek_v4_part(c: Config) -> float:
    """configuration_deepseek_v4.py: an eighth of a head turns, or qk_rope_head_dim of it."""
    head, turned = c.integer("head_dim"), c.optional("qk_rope_head_dim")
    part = c.look("partial_rotary_factor")[1]
    factor = c.number("partial_rotary_factor") if part is not None else 1 / 8 if turned is None else turned / head
    return in_pairs(head, factor)


def saved_as(own: str, written: str) -> Value:
    """configuration_bailing_hybrid.py: a size that transformers saves under a name of its own, which is read first; the other, saved beside it, has
    been given another meaning."""
    return lambda c: c.optional(own) or c.integer(written)


def bailing_mixers(c: Config) -> list[LayerKind]:
    """configuration_bailing_hybrid.py: `layer_types`, or attention in the last layer of every group."""
    every = c.integer("layer_group_size")
    types = c.items("layer_types", str, c.depth) or ["linear_attention" if (i + 1) % every else "full_attention" for i in range(c.depth)]
    return [LayerKind(mixer="linear_attention" if delta_rule(c, t) else "attention") for t in types]


def delta_rule(c: Config, layer_type: str) -> bool:
    """Whether a layer is a delta rule and not attention."""
    if layer_type not in ("linear_attention", "full_attention"):
        raise InputError(f"{c.where}: key 'layer_types' names '{layer_type:.40}', which this model_type does not have.")
    return layer_type == "linear_attention"
