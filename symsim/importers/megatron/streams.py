"""Several residual streams: kernels that mix them, and what of that runs again.

Megatron-LM at d98e8a64, transformer/hyper_connection.py: its own code mixes them op by op (_fused_h_res_h_post_bda_native), and makes them again
for so many layers together (build_mhc_recompute_layer_plan); ms-swift's models have fused kernels too (use_fused_mhc).
"""

from __future__ import annotations

from symsim.importers.megatron.settings import Settings

_FUSED, _TOGETHER = "use_fused_mhc", "mhc_recompute_layer_num"


def streams(read: Settings) -> None:
    """use_fused_mhc, and the row of the layers whose streams are made again together. Behind what says which modules run again."""
    keys, options = read.keys, read.options
    several = read.architecture is not None and read.architecture.hyper_connections is not None
    fused, count = keys.flag(_FUSED, False, to=_FUSED), keys.integer(_TOGETHER, None, least=1)
    if not several:
        for name in (_FUSED, _TOGETHER):
            if keys.has(name):
                keys.note(name, "no_cost_effect", why="the model has one residual stream")
        return
    options[_FUSED] = fused
    if not fused:
        keys.note(_FUSED, "mapped" if keys.has(_FUSED) else "derived", _FUSED, "streams are mixed by three kernels, not one")
    again = options.get("recompute") == "selective" and "mhc" in options.get("recompute_modules", ())
    if again and count != 1:
        many = f"{count} layers" if count else "all layers of a stage"
        why = f"streams are kept once a layer here, and there once of {many}: 2 bytes less of each of a token's numbers in them for every other layer"
        keys.note(_TOGETHER, "not_modelled", "recompute_modules", why)
    elif keys.has(_TOGETHER):
        why = "streams are kept once a layer" if again else "read where recompute_modules has mhc"
        keys.note(_TOGETHER, "mapped" if again else "no_cost_effect", "recompute_modules" if again else "", why)
