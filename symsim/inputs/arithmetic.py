"""Numbers in the arithmetic of layers from which no cost follows: facts of a model that no formula reads, and that a trainer needs.

Names are Megatron-Core's, of the angles of rotary positions transformers' (modeling_rope_utils.py), where Megatron-Core has several.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from symsim.inputs.layer_pattern import Part
from symsim.inputs.limits import LARGEST_SIZE, Size

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Arithmetic(Part):
    """Of each number None where it is not known. Angles are of one table for all layers: a model with several has none here."""

    norm_epsilon: Positive | None = Field(None, description="small constant of norms")
    init_method_std: Positive | None = Field(None, description="standard deviation of initial weights")
    rotary_base: Positive | None = Field(None, description="base of the angles of rotary positions")
    rope_type: Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3"] | None = Field(None, description="how angles are stretched")
    rope_scaling_factor: Positive | None = Field(None, description="by which factor")
    original_max_position_embeddings: Size | None = Field(None, description="tokens of a sequence before that")
    low_freq_factor: Positive | None = Field(None, description="of llama3: waves longer than the tokens before, over this, are stretched whole")
    high_freq_factor: Positive | None = Field(None, description="of llama3: shorter ones than over this, not at all")
    beta_fast: Positive | None = Field(None, description="of yarn: turns beyond which an angle is not stretched")
    beta_slow: Positive | None = Field(None, description="of yarn: turns below which it is stretched whole")
    mscale: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(None, description="of yarn: scale of attention by the factor")
    mscale_all_dim: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(None, description="of yarn: that of the softmax")
    truncate: bool | None = Field(None, description="of yarn: the first and the last angle that is stretched in part are whole numbers")
    moe_router_topk_scaling_factor: Positive | None = Field(None, description="what routers' weights are multiplied by")
    activation_func_clamp_value: Positive | None = Field(None, description="of swiglu_clamped: where it is cut")
    glu_linear_offset: Annotated[float, Field(allow_inf_nan=False)] | None = Field(None, description="of swiglu_clamped: added to what is gated")


def tokens_of(value: float | None) -> int | None:
    """A number as that of the tokens of a sequence; None where it is none."""
    return int(value) if value is not None and value == int(value) and 1 <= value <= LARGEST_SIZE else None


# what belongs to a rope_type
OF_STRETCHED = """rope_scaling_factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow mscale
    mscale_all_dim truncate""".split()
