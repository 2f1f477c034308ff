"""Which kernels of a layer are one, as Megatron-LM's arguments say."""

from __future__ import annotations

from symsim.importers.megatron.settings import Settings

# an argument that takes a fusion out, and the fusion
_OUT = {
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion",
    "no_bias_dropout_fusion": "bias_dropout_fusion",
    "no_masked_softmax_fusion": "masked_softmax_fusion",
}
OFFLOADED = {
    "attn_norm": "pre_attention_norm",
    "qkv_linear": "attention.qkv",
    "core_attn": "attention.core",
    "attn_proj": "attention.o_proj",
    "mlp_norm": "pre_mlp_norm",
    "expert_fc1": "moe.experts.fc1",
    "fused_group_mlp": "moe.experts.fc1",
    "moe_act": "moe.experts.act",
}
"""Modules of offload_modules as operations here."""


def fusions(read: Settings) -> None:
    """Single fusions; of ModelParallelConfig's fields gradient_accumulation_fusion is off where it is not given."""
    keys, options = read.keys, read.options
    for argument, option in _OUT.items():
        off = keys.flag(argument, None, to=option, why="the opposite")
        if off:
            options[option] = False
        if off is None and read.dialect == "fields" and option == "gradient_accumulation_fusion":
            read.derived(argument, option, False, "false, the field's default")
    gated = read.architecture is None or read.architecture.mlp is None or read.architecture.mlp.gated
    for argument, holds in (("no_bias_swiglu_fusion", gated), ("no_bias_gelu_fusion", not gated or read.architecture is None)):
        off = keys.flag(argument, None, to="bias_activation_fusion", why="the opposite")
        if off and holds:
            options["bias_activation_fusion"] = False
        elif off:
            keys.note(argument, "no_cost_effect", why="the model has another activation")
    _rotary(read)
    offloaded_modules(read)


def _rotary(read: Settings) -> None:
    off = read.keys.flag("no_rope_fusion", None)
    rotary = read.architecture is None or read.architecture.position_embedding == "rope"
    if off is None and read.dialect == "arguments" and rotary:
        read.assumed("no_rope_fusion", "apply_rope_fusion", "true", "true: on by default", default=True)
    elif off is not None and rotary:
        read.assumed("no_rope_fusion", "apply_rope_fusion", str(not off).lower(), "the opposite")
    elif off is not None:
        read.keys.note("no_rope_fusion", "no_cost_effect", why="no rotary embedding")


def offloaded_modules(read: Settings) -> None:
    """Whose saved tensors wait on the host (transformer_config.py offload_modules)."""
    keys = read.keys
    on = keys.flag("fine_grained_activation_offloading", False, to="offload_operations")
    names = [word for text in keys.texts("offload_modules", [], to="offload_operations") for word in text.strip("[]").replace(",", " ").split()]
    if not on or not names:
        for key in ("fine_grained_activation_offloading", "offload_modules"):
            if keys.has(key):
                keys.note(key, "no_cost_effect", why="no modules are named" if on else "read with fine_grained_activation_offloading")
        return
    strange = [name for name in names if name not in OFFLOADED]
    if strange:
        keys.refuse("offload_modules", f"'{strange[0]}' is none of its modules; give some of {', '.join(OFFLOADED)}")
    known = read.architecture is not None
    absent = {"qkv_linear"} if known and read.architecture.attention.kind == "mla" else set()  # type: ignore[union-attr]
    absent |= {"expert_fc1", "fused_group_mlp", "moe_act"} if known and not read.mixture else set()
    runs = [OFFLOADED[name] for name in names if name in OFFLOADED and name not in absent]
    if runs and read.options.get("recompute") != "full":
        read.options["offload_operations"] = list(dict.fromkeys(runs))
    else:
        keys.note("offload_modules", "no_cost_effect", why="nothing of them is kept" if runs else "the model has none of them")
