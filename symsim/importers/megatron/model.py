"""The model that Megatron-LM's architecture arguments describe."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from symsim.errors import InputError
from symsim.importers.keys import Keys
from symsim.importers.megatron import hybrid
from symsim.importers.megatron.arithmetic import arithmetic
from symsim.importers.megatron.vocabulary import vocabulary
from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.layer_pattern import compress
from symsim.inputs.limits import MOST_LAYERS
from symsim.inputs.validation import validate

_NEEDED = ("num_layers", "hidden_size", "num_attention_heads")
# the sizes of tokenizers that Megatron-LM names by their type alone
_POSITIONS = {"learned_absolute": "learned", "rope": "rope", "rotary": "rope", "yarn": "rope", "mrope": "rope", "alibi": "alibi", "none": "none"}
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "quick_gelu": "gelu",
    "squared_relu": "relu2",
    "relu2": "relu2",
    "relu": "relu",
    "swiglu": "silu",
    "geglu": "gelu",
}
# gdn2 has other gates, whose sizes symsim does not know
_DELTA_NETS = ("gated_delta_net", "gdn")
_PATTERN = re.compile(r"\s*([\[\]()*+,]|[0-9]+)")
# modules of a specification in Python; the last three are in slime's copy of Megatron-LM alone
_SPECIFIED = ("spec", "use_gated_attention", "post_self_attn_layernorm", "post_mlp_layernorm")
# slime_plugins/models/glm4.py
_PLAIN_SPECS = ("get_glm_spec",)
# keys of the model, known where another file gives it
_KEYS = [*hybrid.KEYS, *hybrid.INDEXER, "dsa_indexer_topk_freq", "dsa_indexer_skip_topk_offset"]
_KEYS += """
    num_layers encoder_num_layers hidden_size ffn_hidden_size num_attention_heads kv_channels group_query_attention num_query_groups window_size
    attention_head_type window_attn_skip_freq max_position_embeddings position_embedding_type use_rotary_position_embeddings rotary_percent
    no_rope_freq
    make_vocab_size_divisible_by openai_gelu squared_relu swiglu quick_geglu untie_embeddings_and_output_weights normalization disable_bias_linear
    add_qkv_bias qk_layernorm qk_l2_norm attention_output_gate multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim
    v_head_dim experimental_attention_variant linear_attention_freq linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim
    linear_num_key_heads linear_num_value_heads softmax_type num_experts moe_layer_freq moe_ffn_hidden_size moe_router_topk
    moe_shared_expert_intermediate_size moe_shared_expert_gate moe_router_score_function moe_router_pre_softmax moe_router_num_groups
    moe_router_group_topk moe_router_enable_expert_bias moe_latent_size moe_apply_probs_on_input mtp_num_layers mtp_use_repeated_layer vocab_size
    padded_vocab_size no_pad_vocab_size disable_pad_vocab_size tokenizer_type hidden_dropout attention_dropout gated_linear_unit activation_func
    """.split()


def read_model(keys: Keys, name: str, fields: bool, tp: int, where: str, entry: str = "") -> Architecture | None:
    """The architecture, or None where no argument describes one. fields: defaults are those of TransformerConfig. entry: the program that
    is started.

    InputError where one is described in part.
    """
    keys.known.update(_KEYS)
    letters = hybrid.stack(keys, entry)
    layers = _depth(keys, letters, where)
    if layers is None:
        return None
    width = keys.integer("hidden_size", to="hidden_size", least=1)
    bias = not keys.flag("disable_bias_linear", False, to="biases of linear layers")
    gated, activation = _activation(keys, fields)
    attention = _attention(keys, fields, bias, "D" in letters or "+" in letters)
    narrow = 4 * width * 2 // 3 // 64 * 64 if gated and not fields else 4 * width
    ffn = keys.integer("ffn_hidden_size", None, to="mlp.ffn_hidden_size", least=1)
    if ffn is None:
        ffn = narrow
        keys.note(
            "ffn_hidden_size", "derived", "mlp.ffn_hidden_size", f"{ffn}: {'two thirds of 4 hidden_size, down to 64' if gated else '4 hidden_size'}"
        )
    moe = _experts(keys, ffn, gated, activation, bias)
    sparse = _variant(keys, letters)
    if sparse and attention.get("kind") != "mla":
        raise keys.wrong("experimental_attention_variant", "given with multi_latent_attention")
    attention |= hybrid.indexer(keys) if sparse else {}
    kinds, linear = _stacked(keys, letters, sparse) if letters else _layers(keys, layers, moe is not None, sparse)
    layer_norm = keys.choice("normalization", {"LayerNorm": True, "RMSNorm": False}, None, to="normalization")
    if layer_norm is None:
        layer_norm = True
        keys.note("normalization", "derived", "normalization", "LayerNorm, with a weight and a bias")
    positions, rows = _positions(keys)
    data = dict(
        name=re.sub(r"[^\w.+-]", "_", name) or "megatron",
        source="arguments of Megatron-LM",
        hidden_size=width,
        vocab_size=vocabulary(keys, fields, tp, where),
        layers=compress([kind for kind, _ in kinds]),
        layer_kinds=dict(kinds),
        attention=attention,
        linear_attention=linear,
        mamba=hybrid.mamba(keys, letters, width),
        mlp=dict(ffn_hidden_size=ffn, gated=gated, activation=activation, bias=bias),
        moe=moe,
        normalization="LayerNorm" if layer_norm else "RMSNorm",
        norm_bias=layer_norm,
        norms=_norms(keys),
        tie_word_embeddings=_tied(keys),
        embedding_norm=keys.flag("embed_layernorm", False, to="embedding_norm"),
        position_embedding=positions,
        position_embedding_rows=rows,
        hyper_connections=hybrid.streams(keys),
        mtp_num_layers=_depths(keys, letters),
        mtp_use_repeated_layer=keys.flag("mtp_use_repeated_layer", False, to="mtp_use_repeated_layer"),
        hidden_dropout=_dropout(keys, "hidden_dropout"),
        attention_dropout=_dropout(keys, "attention_dropout"),
        arithmetic=arithmetic(keys, attention.get("kind") == "mla"),
    )
    return validate(Architecture, {key: value for key, value in data.items() if value is not None}, where)


def _depth(keys: Keys, letters: str, where: str) -> int | None:
    """The number of layers; None where no argument describes a model. InputError where one is described in part."""
    given = [key for key in _NEEDED if keys.has(key)]
    if not keys.has("num_layers") and (keys.has("encoder_num_layers") or letters):
        given.append("num_layers")
    if not given:
        return None
    missing = [key for key in _NEEDED if key not in given]
    if missing:
        slip = f" ('{meant}' may be meant for it)" if (meant := keys.slip(missing[0])) else ""
        raise InputError(f"{where}: {missing[0]} is not given{slip}, and {given[0]} is; the model needs {', '.join(_NEEDED)}, or --of MODEL")
    layers: int = len(letters) or keys.integer("num_layers", 0, to="layers", least=1) or keys.integer("encoder_num_layers", to="layers", least=1)
    if layers > MOST_LAYERS:
        raise keys.wrong("num_layers" if keys.has("num_layers") else "encoder_num_layers", f"at most {MOST_LAYERS}")
    return layers


def ignore_model(keys: Keys, name: str) -> None:
    """Say of every argument that describes a model that another model is meant."""
    for key in (*_KEYS, *_SPECIFIED):
        if keys.has(key):
            keys.note(key, "no_cost_effect", why=f"the model is {name}")


def _norms(keys: Keys) -> list[str] | None:
    """Where layers have norms, if not before attention and network alone: slime's copy of Megatron-LM has further ones behind them."""
    if keys.has("spec") and str(keys.given["spec"].value).split()[-1].strip("'\"]") in _PLAIN_SPECS:
        keys.note("spec", "no_cost_effect", why="Megatron-Core's own layer, with the norms that arguments ask for")
    behind = [keys.flag(name, False, to="norms") for name in ("post_self_attn_layernorm", "post_mlp_layernorm")]
    if not any(behind):
        return None
    places = (("pre_attention", True), ("post_attention", behind[0]), ("pre_mlp", True), ("post_mlp", behind[1]))
    return [place for place, there in places if there]


def _tied(keys: Keys) -> bool:
    untied = keys.flag("untie_embeddings_and_output_weights", None, to="tie_word_embeddings", why="the opposite")
    if untied is None:
        keys.note("untie_embeddings_and_output_weights", "derived", "tie_word_embeddings", "true: one weight for embedding and head")
    return not untied


def _dropout(keys: Keys, key: str) -> float:
    value = keys.number(key, None, to=key)
    if value is None:
        keys.note(key, "derived", key, "0.1 unless it is set to 0: masks are kept for backward")
        return 0.1
    if not 0 <= value < 1:
        raise keys.wrong(key, "a share from 0 to below 1")
    return float(value)


def _activation(keys: Keys, fields: bool) -> tuple[bool, Any]:
    gated = keys.flag("gated_linear_unit", None, to="mlp.gated")
    function = keys.choice("activation_func", _spelt(_ACTIVATIONS), None, to="mlp.activation")
    if keys.has("activation_func") and str(keys.given["activation_func"].value) in ("swiglu", "geglu"):
        gated = True
    swiglu = keys.flag("swiglu", False, to="mlp.gated", why="with silu")
    geglu = keys.flag("quick_geglu", False, to="mlp.gated", why="with gelu")
    squared = keys.flag("squared_relu", False, to="mlp.activation", why="relu2")
    tanh = keys.flag("openai_gelu", False, to="mlp.activation", why="gelu_tanh")
    if swiglu + geglu + squared > 1:
        raise keys.wrong("squared_relu" if squared else "quick_geglu", "given without another activation")
    if gated is not None or function is not None or fields:
        return bool(gated), function or "gelu"
    return (True, "silu") if swiglu else (True, "gelu") if geglu else (False, "relu2" if squared else "gelu_tanh" if tanh else "gelu")


def _spelt(names: dict[str, str]) -> dict[str, str]:
    """The names with the ways in which a configuration file writes a function."""
    return {spelling: value for name, value in names.items() for spelling in (name, f"torch.nn.functional.{name}", f"F.{name}")}


def _depths(keys: Keys, letters: str) -> int:
    depths: int = keys.integer("mtp_num_layers", 0, to="mtp_num_layers")
    if depths and letters:
        keys.note("mtp_num_layers", "not_modelled", why=f"behind layers of one half each: about {depths} layers and output layers more than here")
    return 0 if letters else depths


def _attention(keys: Keys, fields: bool, bias: bool, latent: bool = False) -> dict[str, Any]:
    heads = keys.integer("num_attention_heads", to="attention.num_attention_heads", least=1)
    added = keys.flag("add_qkv_bias", False, to="attention.qkv_bias")
    normed = keys.flag("qk_layernorm", False, to="attention.qk_norm")
    sinks = keys.choice("softmax_type", {"vanilla": False, "off-by-one": False, "learnable": True}, False, to="attention.sinks")
    fraction = keys.number("rotary_percent", 1.0, to="attention.rotary_fraction")
    if not 0 <= fraction <= 1:
        raise keys.wrong("rotary_percent", "a share from 0 to 1")
    grouped = keys.flag("group_query_attention", False, to="attention.num_query_groups")
    groups = keys.integer("num_query_groups", None, to="attention.num_query_groups", least=1) if grouped or fields else None
    # of BigCode's fork, which trained StarCoder
    groups = keys.choice("attention_head_type", {"multihead": None, "multiquery": 1}, groups, to="attention.num_query_groups")
    if keys.has("num_query_groups") and groups is None:
        keys.note("num_query_groups", "no_cost_effect", why="read with group_query_attention only")
    if keys.flag("multi_latent_attention", False, to="attention.kind", why="mla") or latent:
        rank = 512 if fields else 32
        query = keys.integer("q_lora_rank", 512 if fields else None, to="attention.q_lora_rank", least=1)
        return dict(
            kind="mla",
            num_attention_heads=heads,
            q_lora_rank=query,
            kv_lora_rank=keys.integer("kv_lora_rank", rank, to="attention.kv_lora_rank", least=1),
            qk_head_dim=keys.integer("qk_head_dim", 128, to="attention.qk_head_dim", least=1),
            qk_pos_emb_head_dim=keys.integer("qk_pos_emb_head_dim", 64, to="attention.qk_pos_emb_head_dim", least=1),
            v_head_dim=keys.integer("v_head_dim", 128, to="attention.v_head_dim", least=1),
            q_input_norm=query is None and normed,
            latent_norm=normed,
            out_bias=bias,
        )
    for key in ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"):
        if keys.has(key):
            keys.note(key, "no_cost_effect", why="read with multi_latent_attention only")
    size = keys.integer("kv_channels", None, to="attention.kv_channels", least=1)
    width = keys.integer("hidden_size", to="hidden_size", least=1)
    if groups is not None and heads % groups:
        raise keys.wrong("num_query_groups", f"a divisor of num_attention_heads={heads}")
    if size is None and width % heads:
        raise keys.wrong("num_attention_heads", f"a divisor of hidden_size={width}, unless kv_channels is given")
    return dict(
        num_attention_heads=heads,
        num_query_groups=groups,
        kv_channels=size,
        qkv_bias=bias or added,
        out_bias=bias,
        qk_norm="l2" if keys.flag("qk_l2_norm", False, to="attention.qk_norm") else "head" if normed else "none",
        output_gate=keys.flag("attention_output_gate", False, to="attention.output_gate"),
        sinks=sinks,
        rotary_fraction=fraction,
        rotary_scaled=keys.has("position_embedding_type") and keys.given["position_embedding_type"].value == "yarn",
    )


def _experts(keys: Keys, ffn: int, gated: bool, activation: str, bias: bool) -> dict[str, Any] | None:
    experts = keys.integer("num_experts", 0, to="moe.num_moe_experts")
    if not experts:
        for key in _KEYS:
            if key.startswith("moe_") and keys.has(key):
                keys.note(key, "no_cost_effect", why="the model has no experts")
        return None
    width = keys.integer("moe_ffn_hidden_size", None, to="moe.moe_ffn_hidden_size", least=1)
    if width is None:
        width = ffn
        keys.note("moe_ffn_hidden_size", "derived", "moe.moe_ffn_hidden_size", f"{ffn}: ffn_hidden_size")
    chosen = keys.integer("moe_router_topk", None, to="moe.moe_router_topk", least=1)
    if chosen is None:
        chosen = 2
        keys.note("moe_router_topk", "derived", "moe.moe_router_topk", "2")
    if chosen > experts:
        raise keys.wrong("num_experts", f"moe_router_topk={chosen} or more")
    clamped = keys.flag("quick_geglu", False) or (gated and activation == "gelu" and keys.has("activation_func"))
    scores = {"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sigmoid"}
    return dict(
        num_moe_experts=experts,
        moe_router_topk=chosen,
        moe_ffn_hidden_size=width,
        gated=gated,
        activation="swiglu_clamped" if clamped else activation,
        expert_bias=bias,
        moe_shared_expert_intermediate_size=keys.integer("moe_shared_expert_intermediate_size", None, to="moe.moe_shared_expert_intermediate_size")
        or None,
        moe_shared_expert_gate=keys.flag("moe_shared_expert_gate", False, to="moe.moe_shared_expert_gate"),
        moe_router_score_function=keys.choice("moe_router_score_function", scores, "softmax", to="moe.moe_router_score_function"),
        moe_router_pre_softmax=keys.flag("moe_router_pre_softmax", False, to="moe.moe_router_pre_softmax"),
        moe_router_num_groups=keys.integer("moe_router_num_groups", None, to="moe.moe_router_num_groups", least=1),
        moe_router_group_topk=keys.integer("moe_router_group_topk", None, to="moe.moe_router_group_topk", least=1),
        moe_latent_size=keys.integer("moe_latent_size", None, to="moe.moe_latent_size", least=1),
        latent_bias=bias,
        router_bias=bias,
        moe_router_enable_expert_bias="buffer"
        if keys.flag("moe_router_enable_expert_bias", False, to="moe.moe_router_enable_expert_bias")
        else "none",
        router_weight_before_experts=keys.flag("moe_apply_probs_on_input", False, to="moe.router_weight_before_experts"),
    )


def _variant(keys: Keys, letters: str) -> bool:
    """Whether attention has an indexer. What the other variants are is said where their layers are."""
    key = "experimental_attention_variant"
    variant = keys.given[key].value if keys.has(key) else None
    if variant == "dsa":
        keys.note(key, to="attention.dsa_indexer_topk", why="an indexer chooses keys")
    elif variant in _DELTA_NETS and letters:
        keys.note(key, to="layer_kinds.mixer", why="the layers of the letter G")
    elif variant is not None and variant not in _DELTA_NETS:
        keys.refuse(key, "of these variants gated_delta_net and dsa are modelled; give one of them")
    return variant == "dsa" or "D" in letters


def _delta_net(keys: Keys) -> dict[str, int]:
    sizes = {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128}
    sizes["linear_conv_kernel_dim"] = 4
    return {key: keys.integer(key, size, to=f"linear_attention.{key}", least=1) for key, size in sizes.items()}


def _stacked(keys: Keys, letters: str, sparse: bool) -> tuple[list[tuple[str, LayerKind]], dict[str, int] | None]:
    """The kind of every layer of a hybrid stack, in order."""
    shared = hybrid.shares_index(keys, len(letters)) if sparse else [False] * len(letters)
    found = []
    for at, letter in enumerate(letters):
        name, kind = hybrid.LETTERS[letter]
        borrows = shared[at] and letter == "D"
        found.append((name + "_shared" * borrows, kind.model_copy(update={"shared_index": True}) if borrows else kind))
    return found, _delta_net(keys) if "G" in letters else None


def _layers(keys: Keys, layers: int, mixture: bool, sparse: bool) -> tuple[list[tuple[str, LayerKind]], dict[str, int] | None]:
    """The kind of every layer, in order. sparse: attention has an indexer."""
    experts = pattern(keys, "moe_layer_freq", layers, 1, lambda i, n: i % n == 0, "layers") if mixture else [False] * layers
    variant = keys.given["experimental_attention_variant"].value if keys.has("experimental_attention_variant") else None
    linear = None
    delta = [False] * layers
    if variant in _DELTA_NETS:
        keys.note("experimental_attention_variant", to="layer_kinds.mixer", why="linear_attention")
        delta = pattern(keys, "linear_attention_freq", layers, None, lambda i, n: (i + 1) % n != 0, "layers")
        linear = _delta_net(keys)
    window = _window(keys)
    windowed = pattern(keys, "window_attn_skip_freq", layers, 0, lambda i, n: n == 0 or (i + 1) % n != 0, "layer_kinds.window")
    unturned = pattern(keys, "no_rope_freq", layers, 0, lambda i, n: n > 0 and (i + 1) % n == 0, "layer_kinds.rope")
    shared = hybrid.shares_index(keys, layers) if sparse else [False] * layers
    found = []
    for at in range(layers):
        reach = window if windowed[at] and not delta[at] else None
        made = LayerKind(
            mixer="linear_attention" if delta[at] else "attention",
            ffn="moe" if experts[at] else "mlp",
            window=reach,
            rope=not unturned[at],
            shared_index=shared[at],
        )
        parts = ["moe" if experts[at] else "dense"]
        parts += ["linear"] * delta[at] + ["local"] * (reach is not None) + ["nope"] * (unturned[at] and not delta[at]) + ["shared"] * shared[at]
        found.append(("_".join(parts), made))
    return found, linear


def _window(keys: Keys) -> int | None:
    """Tokens that a query sees: those before it and itself."""
    if not keys.has("window_size"):
        return None
    value = keys.given["window_size"].value
    parts = value if isinstance(value, list) else str(value).strip("()[] ").split(",")
    try:
        left, right = (int(str(part)) for part in parts)
    except ValueError:
        raise keys.wrong("window_size", "two numbers of tokens, before and after, such as 127,0") from None
    if right > 0 or left > 10**9:
        raise keys.wrong("window_size", "a window of a decoder, with 0 tokens after")
    keys.note("window_size", to="layer_kinds.window", why="no window" if left < 0 else f"{left + 1} tokens: {left} before it and its own")
    return None if left < 0 else left + 1


def pattern(keys: Keys, key: str, layers: int, default: int | None, among: Callable[[int, int], bool], to: str) -> list[bool]:
    """Which layers a frequency or a list such as ([0]*3+[1]*1)*6 names. among: of the layer's number from 0, and a frequency."""
    if not keys.has(key):
        if default is None:
            raise InputError(f"{key} is not given, and the model has linear attention")
        return [among(i, default) for i in range(layers)]
    value = keys.given[key].value
    found = value if isinstance(value, list) else _numbers(str(value)) if isinstance(value, str) and "[" in value else None
    if isinstance(value, str) and "[" in value and found is None:
        raise keys.wrong(key, "a number, or a list such as ([0]*3+[1]*1)*6")
    if found is None:
        every = keys.integer(key, to=to, least=1)
        return [among(i, every) for i in range(layers)]
    if any(str(one) not in ("0", "1") for one in found):
        raise keys.wrong(key, "a list of 0 and 1")
    if len(found) != layers:
        raise keys.wrong(key, f"a list of {layers} numbers, one a layer (it has {len(found)})")
    keys.note(key, to=to, why=f"{sum(str(one) == '1' for one in found)} of {layers} layers")
    return [str(one) == "1" for one in found]


def _numbers(text: str) -> list[int] | None:
    """The list that a pattern stands for: list = term { "+" term }, term = ("[" .. "]" | "(" list ")") { "*" number }."""
    tokens = _PATTERN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or len(tokens) > 10_000:
        return None
    at = 0

    def listed(depth: int) -> list[int]:
        nonlocal at
        found = term(depth)
        while tokens[at : at + 1] == ["+"]:
            at += 1
            found = found + term(depth)
        return found

    def term(depth: int) -> list[int]:
        nonlocal at
        opening = tokens[at] if at < len(tokens) else ""
        at += 1
        if opening == "(" and depth < 20:
            found = listed(depth + 1)
            if tokens[at : at + 1] != [")"]:
                raise ValueError
            at += 1
        elif opening == "[":
            end = tokens.index("]", at)
            inner = tokens[at:end]
            if any(token != "," if place % 2 else not token.isdigit() for place, token in enumerate(inner)):
                raise ValueError
            found = [int(token[:9]) for token in inner[::2]]
            at = end + 1
        else:
            raise ValueError
        while tokens[at : at + 1] == ["*"] and tokens[at + 1 : at + 2] and tokens[at + 1].isdigit():
            times = int(tokens[at + 1][:9])
            if times * len(found) > MOST_LAYERS:
                raise ValueError
            found, at = found * times, at + 2
        return found

    try:
        made = listed(0)
    except ValueError:
        return None
    return made if at == len(tokens) else None


def _positions(keys: Keys) -> tuple[Any, int | None]:
    kind = None
    if keys.has("position_embedding_type"):
        if str(keys.given["position_embedding_type"].value) == "relative":
            keys.refuse("position_embedding_type", f"relative positions are not modelled; give {', '.join(_POSITIONS)}")
            kind = "none"
        else:
            kind = keys.choice("position_embedding_type", _POSITIONS, to="position_embedding")
    if keys.flag("use_rotary_position_embeddings", False, to="position_embedding", why="rope"):
        kind = "rope"
    if kind is None:
        kind = "learned"
        keys.note("position_embedding_type", "derived", "position_embedding", "learned_absolute")
    longest = keys.integer("max_position_embeddings", None, to="position_embedding_rows", least=1)
    if kind != "learned":
        if longest is not None:
            keys.note("max_position_embeddings", "no_cost_effect", why="no table of positions is learned")
        return kind, None
    return kind, longest or keys.integer("seq_length", 4096, to="seq_length", least=1)
