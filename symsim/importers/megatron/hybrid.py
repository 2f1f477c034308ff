"""Stacks whose layers are a mixer or a feed-forward network alone, by the letters of Megatron-LM, and the sizes of their mixers.

core/models/hybrid/hybrid_layer_allocation.py, core/ssm/mamba_mixer.py, core/transformer/transformer_config.py at commit d98e8a64.
"""

from __future__ import annotations

from typing import Any

from symsim.errors import InputError
from symsim.importers.keys import Keys
from symsim.inputs.architecture import LayerKind
from symsim.inputs.limits import MOST_LAYERS

KEYS = """
    hybrid_layer_pattern hybrid_override_pattern hybrid_attention_ratio hybrid_mlp_ratio is_hybrid_model mtp_hybrid_override_pattern
    mamba_num_heads mamba_head_dim mamba_num_groups mamba_state_dim
    """.split()
INDEXER = ("dsa_indexer_topk", "dsa_indexer_n_heads", "dsa_indexer_head_dim")
LETTERS: dict[str, tuple[str, LayerKind]] = {
    "M": ("mamba", LayerKind(mixer="mamba", ffn="none")),
    "G": ("linear", LayerKind(mixer="linear_attention", ffn="none")),
    "*": ("full", LayerKind(ffn="none")),
    "+": ("full", LayerKind(ffn="none")),
    "D": ("full", LayerKind(ffn="none")),
    "-": ("dense", LayerKind(mixer="none", ffn="mlp")),
    "E": ("moe", LayerKind(mixer="none", ffn="moe")),
}
_RIGHT = f"a text of the letters {' '.join(LETTERS)}, with | between the parts of a pipeline and / before multi-token prediction"
_PATTERNS = ("hybrid_layer_pattern", "hybrid_override_pattern")
# programs of such stacks, whose layers are of Mamba unless a pattern says otherwise
PROGRAMS = ("pretrain_mamba", "pretrain_hybrid")
# module specifications that are those of such stacks
_SPECS = ("mamba_stack_spec", "hybrid_stack_spec")


def stack(keys: Keys, entry: str) -> str:
    """The letters of a hybrid stack, "" of another model. InputError for letters that Megatron-LM does not have."""
    keys.known.update(KEYS)
    name = _named(keys)
    ratios = [key for key in ("hybrid_attention_ratio", "hybrid_mlp_ratio") if keys.number(key, 0.0, to="layers")]
    if keys.has("is_hybrid_model"):
        keys.note("is_hybrid_model", "no_cost_effect", why="its pattern says what the layers are")
    if name is not None:
        text = str(keys.given[name].value)
        main, *depths = text.split("/")
        letters = main.replace("|", "")
        mixed = "*" in letters and not {"D", "+"}.isdisjoint(letters)
        if not letters or set(letters + "".join(depths)) - LETTERS.keys() or len(letters) > MOST_LAYERS or mixed:
            raise keys.wrong(name, "attention of one kind: * or, with latents, + and D" if mixed else _RIGHT)
        if {"D", "+"} <= set(letters):
            keys.refuse(name, "layers of latent attention have an indexer all or none here; give D, or +, for all of them")
        for key in ("num_layers", *ratios):
            if keys.has(key):
                keys.note(key, "no_cost_effect", why=f"{name} decides")
        keys.note(name, to="layers", why=_counted(letters, depths))
    elif ratios or entry.startswith(PROGRAMS):
        layers = keys.integer("num_layers", 0, to="layers", least=1)
        shares = [keys.number(key, 0.0) for key in ("hybrid_attention_ratio", "hybrid_mlp_ratio")]
        if min(shares) < 0 or sum(shares) > 1 or not layers or layers > MOST_LAYERS:
            raise keys.wrong(ratios[0] if layers and ratios else "num_layers", "shares of the layers, of num_layers")
        letters = spaced(layers, *shares)
        keys.note("num_layers", to="layers", why=_counted(letters, []))
    else:
        return ""
    _spec(keys)
    return letters


def _named(keys: Keys) -> str | None:
    given = [name for name in _PATTERNS if keys.has(name)]
    if len(given) > 1:
        raise keys.wrong(given[1], f"given without {given[0]}, which is its newer name")
    return given[0] if given else None


def _counted(letters: str, depths: list[str]) -> str:
    numbers = {"mamba": "M", "linear": "G", "full": "*+D", "dense": "-", "moe": "E"}
    said = [f"{sum(letters.count(one) for one in those)} {kind}" for kind, those in numbers.items()]
    text = f"{len(letters)} layers: {', '.join(part for part in said if not part.startswith('0 '))}"
    if any(depths):
        # each depth ends with the output layer, too
        text += f"; {len(depths)} depths of multi-token prediction are left out: {len(''.join(depths))} layers, and the output layer as often again"
    return text


def _spec(keys: Keys) -> None:
    """A specification of modules in Python, where it is the one of such stacks."""
    if keys.has("spec") and str(keys.given["spec"].value).strip("[]'\" ").replace("'", "").split()[-1].split(",")[-1] in _SPECS:
        keys.note("spec", "no_cost_effect", why="the modules of such stacks")


def spaced(layers: int, attention: float, mlp: float) -> str:
    """The letters of layers of which these shares are attention, evenly spaced between Mamba, and networks among the rest."""
    found = ["M"] * layers
    for letter, count in (("*", round(layers * attention)), ("-", round(layers * mlp))):
        free = [at for at, one in enumerate(found) if one == "M"]
        left = len(free) - count
        # attention begins and ends with Mamba; of networks each follows its share of Mamba
        run = left / (count + 1) if letter == "*" else left / count if count else 0.0
        until = run
        for at in free:
            if count and until < 0.5:
                found[at] = letter
                until += run
            else:
                until -= 1
    return "".join(found)


def stages(keys: Keys) -> str | None:
    """The layout of a pipeline whose parts are marked in the letters; None where none are."""
    name = _named(keys)
    if name is None or name not in keys.rows or keys.rows[name].fate != "mapped":
        return None
    parts = str(keys.given[name].value).partition("/")[0].split("|")
    if len(parts) == 1:
        return None
    return "E" + "|".join(f"t*{len(part)}" if part else "" for part in parts) + "L"


def mamba(keys: Keys, letters: str, width: int) -> dict[str, Any] | None:
    """The state-space mixer; None without one."""
    names = ("mamba_num_heads", "mamba_head_dim", "mamba_num_groups", "mamba_state_dim")
    if "M" not in letters:
        for key in names:
            if keys.has(key):
                keys.note(key, "no_cost_effect", why="the model has no Mamba layers")
        return None
    each = keys.integer("mamba_head_dim", 64, to="mamba.mamba_head_dim", least=1)
    heads = keys.integer("mamba_num_heads", None, to="mamba.mamba_num_heads", least=1)
    if heads is None:
        heads = 2 * width // each
        keys.note("mamba_num_heads", "derived", "mamba.mamba_num_heads", f"{heads}: twice hidden_size over heads of {each}")
    if not heads:
        raise keys.wrong("mamba_head_dim", f"at most twice hidden_size={width}")
    sizes = {name: keys.integer(name, default, to=f"mamba.{name}", least=1) for name, default in (("mamba_num_groups", 8), ("mamba_state_dim", 128))}
    for name, size in sizes.items():
        if not keys.has(name):
            keys.note(name, "derived", f"mamba.{name}", str(size))
    if heads % sizes["mamba_num_groups"]:
        raise keys.wrong("mamba_num_groups", f"a divisor of the {heads} heads")
    return {"mamba_num_heads": heads, "mamba_head_dim": each, **sizes}


def indexer(keys: Keys) -> dict[str, int]:
    """The indexer of DeepSeek sparse attention."""
    missing = [key for key in INDEXER if not keys.has(key)]
    if missing:
        raise InputError(f"{keys.place('experimental_attention_variant')}: {missing[0]} is not given, and attention has an indexer")
    return {key: keys.integer(key, to=f"attention.{key}", least=1) for key in INDEXER}


def shares_index(keys: Keys, layers: int) -> list[bool]:
    """Whether a layer takes the keys that one before it chose."""
    every = keys.integer("dsa_indexer_topk_freq", 1, to="layer_kinds.shared_index", least=1)
    first = max(keys.integer("dsa_indexer_skip_topk_offset", 0, to="layer_kinds.shared_index"), 1)
    return [max(at + 1 - first, 0) % every != 0 for at in range(layers)]


def streams(keys: Keys) -> dict[str, Any] | None:
    """Hyper-connections, whose streams end in their mean (Megatron-Core transformer/hyper_connection.py)."""
    of = "hyper_connections"
    asked = keys.flag("enable_mhc_connections", False, to=of)
    sizes = {"streams": ("mhc_num_residual_streams", 4), "sinkhorn_iterations": ("mhc_sinkhorn_iterations", 20)}
    found = {name: keys.integer(key, default, to=f"{of}.{name}", least=1) for name, (key, default) in sizes.items()}
    if asked:
        return {**found, "averaged": True}
    for key, _ in sizes.values():
        if keys.has(key):
            keys.note(key, "no_cost_effect", why="read with enable_mhc_connections only")
    return None
