"""nanotron's example of Mamba: model.model_config as MambaModelConfig (examples/mamba/config.py, mamba.py at 2411b022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.importers.rules import padded_vocabulary
from symsim.inputs.architecture import Architecture
from symsim.inputs.limits import MOST_LAYERS
from symsim.inputs.validation import validate

if TYPE_CHECKING:
    from symsim.importers.keys import Keys

AT = "model.model_config"
KEYS = (
    *("d_model", "num_hidden_layers", "vocab_size", "rms_norm", "fused_add_norm", "residual_in_fp32", "pad_vocab_size_multiple", "is_mamba_config"),
    *(f"ssm_cfg.{name}" for name in ("d_state", "d_conv", "expand", "dt_rank", "conv_bias", "bias", "use_fast_path")),
)
_NUMBERS = ("dt_init", "dt_init_floor", "dt_max", "dt_min", "dt_scale")


def mamba_of(keys: Keys, multiple: int, strategy: dict[str, Any]) -> Architecture:
    """Layers of Mamba-1 and nothing else, whose stream is in fp32 unless it is said. multiple: of the vocabulary."""

    def whole(key: str, default: int, to: str) -> int:
        return int(keys.integer(f"{AT}.{key}", default, to=to, least=1))

    width = whole("d_model", 2560, "hidden_size")
    layers = whole("num_hidden_layers", 64, "layers")
    if layers > MOST_LAYERS:
        raise keys.wrong(f"{AT}.num_hidden_layers", f"at most {MOST_LAYERS}")
    rank = f"{AT}.ssm_cfg.dt_rank"
    drawn = keys.has(rank) and str(keys.given[rank].value) == "auto"
    if drawn:
        keys.note(rank, "derived", "selective_scan.step_rank", f"{-(-width // 16)}: a sixteenth of d_model")
    keys.flag(f"{AT}.ssm_cfg.bias", False, why="read by none of its linear maps")
    for key in (f"{AT}.fused_add_norm", f"{AT}.ssm_cfg.use_fast_path"):
        if not keys.flag(key, True, why="one kernel"):
            keys.note(key, "not_modelled", why="kernels apart: the fused ones are counted")
    if f"{AT}.pad_vocab_size_multiple" in keys.given:
        keys.note(f"{AT}.pad_vocab_size_multiple", "no_cost_effect", why="read by no part of it; model.make_vocab_size_divisible_by pads")
    if f"{AT}.dtype" in keys.given:
        keys.note(f"{AT}.dtype", "no_cost_effect", why="model.dtype says the type of parameters")
    for name in _NUMBERS:
        if f"{AT}.ssm_cfg.{name}" in keys.given:
            keys.note(f"{AT}.ssm_cfg.{name}", "no_cost_effect", why="a number of the beginnings of parameters")
    if keys.flag(f"{AT}.residual_in_fp32", True, to="fp32_residual_connection"):
        strategy["fp32_residual_connection"] = True
    normed = keys.flag(f"{AT}.rms_norm", True, to="normalization")
    data: dict[str, Any] = dict(
        name="nanotron",
        source="model_config of nanotron",
        hidden_size=width,
        vocab_size=padded_vocabulary(whole("vocab_size", 50277, "vocab_size"), multiple),
        layers=f"{layers} * mamba",
        layer_kinds={"mamba": {"mixer": "selective_scan", "ffn": "none"}},
        attention=dict(num_attention_heads=1),
        selective_scan=dict(
            channels=whole("ssm_cfg.expand", 2, "selective_scan.channels") * width,
            state_dim=whole("ssm_cfg.d_state", 16, "selective_scan.state_dim"),
            step_rank=-(-width // 16) if drawn or not keys.has(rank) else whole("ssm_cfg.dt_rank", 1, "selective_scan.step_rank"),
            conv_kernel_dim=whole("ssm_cfg.d_conv", 4, "selective_scan.conv_kernel_dim"),
            conv_bias=keys.flag(f"{AT}.ssm_cfg.conv_bias", True, to="selective_scan.conv_bias"),
            proj_bias=False,
        ),
        normalization="RMSNorm" if normed else "LayerNorm",
        norm_bias=not normed,
        position_embedding="none",
        tie_word_embeddings=True,
    )
    return validate(Architecture, data, keys.place(f"{AT}.d_model"))
