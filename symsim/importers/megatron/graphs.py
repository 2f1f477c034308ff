"""CUDA graphs as Megatron-LM's arguments say them, today's and those that they replace."""

from __future__ import annotations

from symsim.importers.megatron.settings import Settings

_IMPL, _SCOPE = "cuda_graph_impl", "cuda_graph_scope"
_OF_LAYERS = ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
# transformer/cuda_graph_config.py: the whole layer, spelt as before; the whole iteration was a part too
_WHOLE, _ITERATION = ("full", "full_layer"), ("full_iteration", "full_iteration_inference")


def graphs(read: Settings) -> None:
    """Which kernels are launched as graphs. A mixture's experts are part of one with rows of a fixed number only."""
    keys, options = read.keys, read.options
    kinds = {name: name for name in ("none", "local", "transformer_engine", "full_iteration")}
    impl = keys.choice(_IMPL, kinds, None, to=_IMPL)
    for key, meant in (("enable_cuda_graph", "local"), ("external_cuda_graph", "transformer_engine")):
        if keys.flag(key, False, to=_IMPL, why=meant):
            impl = meant if impl in (None, "none") else impl
        elif keys.has(key):
            keys.note(key, "no_cost_effect", why="off at this value")
    given = next((key for key in ("cuda_graph_modules", _SCOPE) if keys.has(key)), None)
    parts = _parts(read, given) if given is not None else []
    if any(part in _ITERATION for part in parts) and impl not in (None, "none"):
        impl, parts = "full_iteration", []
    if impl in (None, "none"):
        if given is not None:
            keys.note(given, "no_cost_effect", why=f"read with {_IMPL} only")
        return
    options[_IMPL] = impl
    if impl == "full_iteration":
        if given is not None:
            keys.note(given, to=_IMPL if parts == [] else _SCOPE, why="full_iteration: forward and backward as one")
        return
    parts = [] if any(part in _WHOLE for part in parts) else parts
    fixed = options.get("moe_pad_expert_input_to_capacity") or "moe_expert_rank_capacity_factor" in options
    if read.mixture and not fixed and (not parts or "moe" in parts):
        parts = [*(part for part in parts if part != "moe"), *([] if parts else ["attn", "mlp"]), "moe_router"]
        keys.note(given or _IMPL, to=_SCOPE, why=f"{', '.join(parts)}: experts whose rows vary are in no graph")
    if parts:
        options[_SCOPE] = list(dict.fromkeys(parts))


def _parts(read: Settings, key: str) -> list[str]:
    value = read.keys.given[key].value
    texts = [str(one) for one in value] if isinstance(value, (list, tuple)) else str(value).replace(",", " ").split()
    found = [text.rpartition(".")[2].strip("'\"[] ") for text in texts]
    if any(part and part not in (*_OF_LAYERS, *_WHOLE, *_ITERATION) for part in found):
        raise read.keys.wrong(key, f"some of {', '.join(_OF_LAYERS)}, or full")
    read.keys.note(key, to=_SCOPE)
    return [part for part in found if part]
