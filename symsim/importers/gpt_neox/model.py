"""The model that GPT-NeoX's keys describe.

Defaults and derived sizes: gpt-neox ea7aefd8 (2026-05-19), megatron/neox_arguments/neox_args.py NeoXArgsModel, megatron/model/transformer.py
ParallelMLP, megatron/tokenizer/tokenizer.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.keys import Keys
from symsim.importers.ranks import variable
from symsim.importers.rules import padded_vocabulary
from symsim.inputs.architecture import Architecture
from symsim.inputs.layer_pattern import compress
from symsim.inputs.limits import MOST_LAYERS
from symsim.inputs.models import load_model
from symsim.inputs.validation import validate

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_NEEDED = ("num_layers", "hidden_size", "num_attention_heads")
KEYS = """num_layers hidden_size num_attention_heads num_kv_heads intermediate_size mlp_multiple_of expansion_factor max_position_embeddings norm
    use_qk_layernorm pos_emb rotary_pct no_weight_tying activation gpt_j_residual gpt_j_tied use_bias_in_norms use_bias_in_attn_linear
    use_bias_in_mlp attention_dropout hidden_dropout sliding_window_width make_vocab_size_divisible_by padded_vocab_size tokenizer_type
    moe_num_experts moe_expert_interval moe_top_k mamba_use_bias_in_conv mamba_use_bias_in_linears attention_head_type mlp_type qk_norm
    use_bias_in_qk_norm""".split()
_NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "te_layernorm": "LayerNorm", "te_rmsnorm": "RMSNorm"}
_PLAIN_NORMS = {"non_parametric_layernorm": "LayerNorm", "scalenorm": "RMSNorm"}
_POSITIONS = {"learned": "learned", "rotary": "rope", "alibi": "alibi", "none": "none", "sinusoidal": "none", "rpe": "none"}
_PLAIN = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu", "mish": "silu", "softsign": "relu"}
_GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "silu", "bilinear": "relu"}
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "HFGPT2Tokenizer": 50257, "CharLevelTokenizer": 512}
# gpt-neox-20b's tokenizer, which the project's own configurations name by its file
_OWN = 50277


def model_of(keys: Keys, options: "Options", tp: int, where: str) -> Architecture | None:
    """The architecture; None, with --of, is never. InputError where the keys describe it in part or say what no layer here is."""
    keys.known.update(KEYS)
    if options.model is not None:
        architecture = load_model(options.model).architecture
        for key in KEYS:
            if key in keys.given:
                keys.note(key, "no_cost_effect", why=f"the model is {architecture.name}")
        return architecture
    given = [key for key in _NEEDED if keys.has(key)]
    if not given:
        return None
    missing = next((key for key in _NEEDED if key not in given), None)
    if missing is not None:
        slip = f" ('{meant}' may be meant for it)" if (meant := keys.slip(missing)) else ""
        raise InputError(f"{where}: {missing} is not given{slip}, and {given[0]} is; the model needs {', '.join(_NEEDED)}, or --of MODEL")
    layers = keys.integer("num_layers", to="layers", least=1)
    if layers > MOST_LAYERS:
        raise keys.wrong("num_layers", f"at most {MOST_LAYERS}")
    width = keys.integer("hidden_size", to="hidden_size", least=1)
    mlp = _mlp(keys, width)
    moe, interval = _experts(keys, mlp)
    types = attention_types(keys, layers)
    names = ["mamba" if types[at] == "mamba" else "mixture" if moe and at % interval == 0 else "dense" for at in range(layers)]
    norm = str(keys.choice("norm", {**_NORMS, **_PLAIN_NORMS}, "LayerNorm", to="normalization"))
    biased = keys.flag("use_bias_in_norms", True, to="norm_bias")
    positions = keys.choice("pos_emb", _POSITIONS, "learned", to="position_embedding")
    if keys.has("pos_emb") and str(keys.given["pos_emb"].value) == "rpe":
        keys.note("pos_emb", "not_modelled", "position_embedding", "a bias added to the scores of every head: they are written out then")
    rows = keys.integer("max_position_embeddings", None, to="position_embedding_rows", least=1)
    tied = keys.flag("gpt_j_tied", False, to="norms", why="one norm for attention and feed-forward")
    parallel = keys.flag("gpt_j_residual", False, to="parallel_block")
    data: dict[str, Any] = dict(
        name=re.sub(r"[^\w.+-]", "_", where.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]) or "gpt-neox",
        source="keys of GPT-NeoX",
        hidden_size=width,
        vocab_size=_vocabulary(keys, options, tp),
        layers=compress(names),
        layer_kinds={name: kind for name, kind in _kinds(keys, moe is not None, interval).items() if name in names},
        attention=dict(num_attention_heads=1) if set(names) == {"mamba"} else _attention(keys),
        selective_scan=_scan(keys, width) if "mamba" in names else None,
        mlp=mlp,
        moe=moe,
        normalization=norm,
        norm_bias=norm == "LayerNorm" and biased,
        norm_weight=not (keys.has("norm") and str(keys.given["norm"].value) == "non_parametric_layernorm"),
        norms=("pre_attention",) if parallel and tied else ("pre_attention", "pre_mlp"),
        parallel_block=parallel,
        tie_word_embeddings=not keys.flag("no_weight_tying", False, to="tie_word_embeddings", why="the opposite"),
        position_embedding=positions,
        position_embedding_rows=rows if positions == "learned" else None,
        hidden_dropout=_share(keys, "hidden_dropout"),
        attention_dropout=_share(keys, "attention_dropout"),
    )
    if positions == "learned" and rows is None:
        raise InputError(f"{where}: max_position_embeddings is not given, and learned positions need it")
    return validate(Architecture, {key: value for key, value in data.items() if value is not None}, where)


def _kinds(keys: Keys, mixture: bool, interval: int) -> dict[str, Any]:
    window = keys.integer("sliding_window_width", None, to="layer_kinds.window", least=1)
    kinds = {"mixture": {"ffn": "moe"}} if mixture else {}
    if not mixture or interval > 1:
        kinds["dense"] = {"ffn": "mlp"}
    made = {name: kind if window is None else {**kind, "window": window} for name, kind in kinds.items()}
    return {**made, "mamba": {"mixer": "selective_scan", "ffn": "none"}}


def attention_types(keys: Keys, layers: int) -> list[str]:
    """What every layer mixes tokens with: [[[KIND, ..], TIMES], ..] or a kind a layer (neox_args/utils.py expand_attention_types)."""
    value = keys.given["attention_config"].value if keys.has("attention_config") else None
    if not isinstance(value, list):
        return ["global"] * layers
    found: list[str] = []
    for one in value:
        kinds, times = one if isinstance(one, list) and len(one) == 2 else ([one], 1)
        kinds = [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]
        if times == "all":
            times = layers // max(1, len(kinds))
        if not isinstance(times, int) or times < 0 or len(found) + times * len(kinds) > MOST_LAYERS:
            raise keys.wrong("attention_config", "lists of kinds with how often each comes, such as [[[flash], 12]]")
        found += kinds * times
    if "mamba" in found and len(found) != layers:
        raise keys.wrong("attention_config", f"a kind for each of the {layers} layers, and there are {len(found)}")
    return found if len(found) == layers else [*found, *["global"] * layers][:layers]


def _scan(keys: Keys, width: int) -> dict[str, Any]:
    """Mamba-1's sizes (megatron/model/mamba/mamba.py ParallelMambaBlock): twice as many channels as the hidden size unless it is said."""
    whole, factor = keys.integer("intermediate_size", None, least=1), keys.number("expansion_factor", None)
    biased = keys.flag("mamba_use_bias_in_linears", False, to="selective_scan.proj_bias")
    fused = [keys.flag(f"mamba_{part}_fusion", False, why="a kernel") for part in ("selective_scan", "causal_conv", "inner_func")]
    if not (fused[0] or fused[2]):
        why = "the scan token after token in PyTorch: a state of 16 fp32 numbers a channel written and kept for each"
        keys.note("mamba_selective_scan_fusion", "not_modelled", why=why)
    return dict(
        channels=whole or int((factor or 2) * width),
        state_dim=16,
        step_rank=-(-width // 16),
        conv_kernel_dim=4,
        conv_bias=keys.flag("mamba_use_bias_in_conv", True, to="selective_scan.conv_bias"),
        proj_bias=biased,
    )


def _mlp(keys: Keys, width: int) -> dict[str, Any]:
    """The feed-forward network: two thirds of the width where it is gated, up to a multiple."""
    name = str(keys.choice("activation", {name: name for name in (*_PLAIN, *_GATED)}, "gelu", to="mlp.activation"))
    # StableLM's fork names the gate by itself, and counts the width of one side
    named = bool(keys.choice("mlp_type", {"gated": True, "vanilla": False}, False, to="mlp.gated"))
    gated = named or name in _GATED
    whole = keys.integer("intermediate_size", None, to="mlp.ffn_hidden_size", least=1)
    factor = keys.number("expansion_factor", None, to="mlp.ffn_hidden_size")
    if factor is not None and not 0 < factor <= 2**20:
        raise keys.wrong("expansion_factor", "a number above 0")
    multiple = keys.integer("mlp_multiple_of", 1, to="mlp.ffn_hidden_size", least=1)
    inner = whole or (int(factor * width) if factor is not None else 4 * width)
    if named and whole is None and factor is None:
        inner = int(inner * 2 / 3)
    elif gated and not named:
        inner = int(inner * 2 / 3) // 2
        if whole is not None:
            keys.note("intermediate_size", to="mlp.ffn_hidden_size", why="a third of it for each of gate and value")
    inner = -(-inner // multiple) * multiple
    if whole is None and factor is None:
        keys.note("intermediate_size", "derived", "mlp.ffn_hidden_size", f"{inner}: of 4 hidden_size{', two thirds' if gated else ''}")
    return dict(ffn_hidden_size=inner, gated=gated, activation={**_PLAIN, **_GATED}[name], bias=keys.flag("use_bias_in_mlp", True, to="mlp.bias"))


def _attention(keys: Keys) -> dict[str, Any]:
    heads = keys.integer("num_attention_heads", to="attention.num_attention_heads", least=1)
    groups = keys.integer("num_kv_heads", None, to="attention.num_query_groups", least=1)
    kinds = {"multihead": heads, "groupedquery": groups, "multiquery": 1}
    groups = keys.choice("attention_head_type", kinds, groups, to="attention.num_query_groups")
    normed = "head" if keys.flag("use_qk_layernorm", False, to="attention.qk_norm") else "none"
    normed = "per_head" if keys.flag("qk_norm", False, to="attention.qk_norm", why="a weight for every head") else normed
    if groups is not None and heads % groups:
        raise keys.wrong("num_kv_heads", f"a divisor of num_attention_heads={heads}")
    bias = keys.flag("use_bias_in_attn_linear", True, to="attention.qkv_bias")
    fraction = keys.number("rotary_pct", 1.0, to="attention.rotary_fraction")
    if not 0 <= fraction <= 1:
        raise keys.wrong("rotary_pct", "a share from 0 to 1")
    return dict(
        num_attention_heads=heads,
        num_query_groups=groups,
        qkv_bias=bias,
        out_bias=bias,
        fused_qkv=True,
        qk_norm=normed,
        qk_norm_bias=keys.flag("use_bias_in_qk_norm", None, to="attention.qk_norm_bias"),
        rotary_fraction=fraction,
    )


def _experts(keys: Keys, mlp: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """A mixture in every so manieth layer, whose experts are as wide as the network."""
    experts = keys.integer("moe_num_experts", 1, to="moe.num_moe_experts", least=1)
    interval = keys.integer("moe_expert_interval", 1, to="layers", least=1)
    chosen = keys.integer("moe_top_k", 1, to="moe.moe_router_topk", least=1)
    if experts == 1:
        for key in ("moe_num_experts", "moe_expert_interval", "moe_top_k", "moe_router_type"):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="one expert is a feed-forward network without a router")
        return None, 1
    width = mlp["ffn_hidden_size"]
    return dict(
        num_moe_experts=experts, moe_router_topk=chosen, moe_ffn_hidden_size=width, gated=mlp["gated"], activation=mlp["activation"]
    ), interval


def _share(keys: Keys, key: str) -> float:
    value = keys.number(key, 0.0, to=key)
    if not 0 <= value < 1:
        raise keys.wrong(key, "a share from 0 to below 1")
    return float(value)


def _vocabulary(keys: Keys, options: "Options", tp: int) -> int:
    """The padded vocabulary: as --var says, else by the tokenizer's type or its file's name."""
    padded = keys.integer("padded_vocab_size", None, to="vocab_size", least=1)
    multiple = keys.integer("make_vocab_size_divisible_by", 128, to="vocab_size", why="times the tensor-parallel ranks", least=1) * tp
    kind = str(keys.text("tokenizer_type", "GPT2BPETokenizer", to="vocab_size"))
    if padded is not None:
        return int(padded)
    told = variable(options, "vocab_size")
    named = keys.given["vocab_file"].value if "vocab_file" in keys.given else ""
    size = told or _VOCABULARIES.get(kind) or _OWN
    if told:
        why = "--var vocab_size"
    elif kind in _VOCABULARIES:
        why = "GPT-2's vocabulary by default" if "tokenizer_type" not in keys.given else "the type's own vocabulary"
    elif "20B" in str(named):
        why = f"{_OWN}: gpt-neox-20b's tokenizer"
    else:
        why = f"{_OWN} as gpt-neox-20b has, since its file is not read; --var vocab_size=N says"
    keys.note("tokenizer_type", "mapped" if told or "tokenizer_type" in keys.given else "derived", "vocab_size", why)
    return padded_vocabulary(size, multiple)
