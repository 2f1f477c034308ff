"""Sections of a model file that are mixers other than attention: their sizes and choices, as module code has them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from symsim.inputs.layer_pattern import Part
from symsim.inputs.limits import Size

Activation = Literal["silu", "gelu", "gelu_tanh", "gelu_new", "gelu_python", "gelu_fast", "quick_gelu", "relu", "relu2"]
"""What any network may have. Those that transformers writes in several operations are there by its name of them: they keep more for backward."""


class LinearAttention(Part):
    """Gated delta net (Qwen3-Next, Qwen3.5): a linear-attention mixer with a short convolution."""

    linear_num_key_heads: Size
    linear_num_value_heads: Size
    linear_key_head_dim: Size
    linear_value_head_dim: Size
    linear_conv_kernel_dim: Size = 4
    kind: Literal["gated_delta_net", "kda"] = Field("gated_delta_net", description="kda: a decay for every channel of the keys (Kimi-Linear)")
    low_rank_gates: bool = Field(True, description="kda: the decay and the output gate are made in two steps; false: in one each (Ling 3.0)")
    fused_in_proj: bool = Field(
        True,
        description="the modelling code runs one GEMM for q, k, v and the output gate, and one for both gates of the state; false: one each, "
        "with q, k and v in one (Qwen3.5)",
    )
    separate_qkv: bool = Field(False, description="q, k and v are made by a GEMM each, and laid side by side for the convolution (OLMo Hybrid)")


class LightningAttention(Part):
    """Linear attention with a fixed decay a head, of as many heads as attention (MiniMax-Text-01)."""

    block_size: Size = Field(256, description="tokens of a block, inside which scores are made")
    activation: Activation = "silu"


class CompressedAttention(Part):
    """Attention to a window and to one key for every few tokens (DeepSeek-V4): keys are values, of one head, and what heads give is
    projected group by group."""

    output_groups: Size = Field(description="groups of query heads, each with a projection of its own")
    output_rank: Size = Field(description="width of what a group is projected to")


class ShortConvolution(Part):
    """A convolution of each channel over a few positions, between two gates (LFM2)."""

    conv_kernel_dim: Size = 3
    conv_bias: bool = Field(False, description="biases in both projections and the convolution")


class Mamba(Part):
    """Mamba-2 (Dao and Gu 2024): a state-space mixer with a short convolution, run in chunks."""

    mamba_num_heads: Size
    mamba_head_dim: Size
    mamba_num_groups: Size = Field(1, description="groups of heads that share B and C")
    mamba_state_dim: Size = 128
    mamba_conv_kernel_dim: Size = 4
    mamba_chunk_size: Size = Field(128, description="tokens that are multiplied with each other; states are passed on between chunks")
    conv_bias: bool = True
    in_bias: bool = False
    out_bias: bool = False
    gated_norm: bool = Field(True, description="a norm of what is gated, group by group")

    @model_validator(mode="after")
    def _whole_groups(self) -> "Mamba":
        if self.mamba_num_heads % self.mamba_num_groups:
            raise ValueError(f"mamba_num_heads {self.mamba_num_heads} is not a multiple of mamba_num_groups {self.mamba_num_groups}")
        return self


class SelectiveScan(Part):
    """Mamba-1 (Gu and Dao 2023): a state-space mixer whose channels each have a state of their own."""

    channels: Size
    state_dim: Size = 16
    step_rank: Size = Field(description="rank of what the steps are made of")
    conv_kernel_dim: Size = 4
    conv_bias: bool = True
    proj_bias: bool = Field(False, description="biases in the projections into and out of it")
    inner_norm: Literal["none", "weight", "plain"] = Field("none", description="norms of steps, B and C (Jamba); plain: without weights")


class SharedBlock(Part):
    """Attention and a dense network of weights that several layers share, in front of a layer's own mixer; each has adapters of its own (Zamba2)."""

    adapter_rank: Size
    attention_adapters: bool = Field(False, description="adapters of queries, keys and values beside those of the network")
