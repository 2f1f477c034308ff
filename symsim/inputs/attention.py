"""Attention of a model: its heads, their norms and gates, and what latent attention and its indexer have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from symsim.inputs.layer_pattern import Part
from symsim.inputs.limits import Size


class Attention(Part):
    """Self-attention: MHA, GQA and MQA (`kind: gqa`), multi-head latent attention (`mla`)."""

    kind: Literal["gqa", "mla"] = "gqa"
    num_attention_heads: Size
    num_query_groups: Size | None = Field(None, description="key/value heads; default: num_attention_heads")
    kv_channels: Size | None = Field(None, description="head dimension; default: hidden_size / num_attention_heads")
    qkv_bias: bool = Field(False, description="mla: on the two down-projections, and on no other")
    out_bias: bool = False
    fused_qkv: bool = Field(False, description="the modelling code runs one GEMM for q, k and v")
    qk_norm: Literal["none", "head", "full", "per_head", "l2", "plain"] = Field(
        "none",
        description="head: one weight of size d (Qwen3); full: over all heads (OLMo-2); "
        "per_head: a weight for every head (Command R+); l2: no weight, layers with RoPE only (Llama 4); "
        "plain: no weight (Muse)",
    )
    qk_norm_bias: bool | None = Field(None, description="biases in the norms of queries and keys, and of mla's latents; default: norm_bias")
    qk_norm_position: Literal["before_rope", "after_rope"] = "before_rope"
    output_gate: bool = Field(
        False, description="a query-sized gate computed in the qkv GEMM (Qwen3-Next); mla: a gate of every value, of its own (HY V4)"
    )
    fused_gate: bool = Field(False, description="the modelling code has queries and output_gate in one linear map (Qwen3-Next)")
    head_gate: bool = Field(False, description="a gate for every head, of a projection of its own, on what attention gives (Ling 3.0, Laguna)")
    gate_activation: Literal["sigmoid", "softplus"] = Field("sigmoid", description="of output_gate and head_gate (softplus: Laguna)")
    gate_in_fp32: bool = Field(False, description="what gates attention is made in fp32, and cast (Ling 3.0, Laguna)")
    output_gate_bias: bool | None = Field(None, description="default: qkv_bias")
    gate_head_bias: bool = Field(False, description="a number of every head is added to what output_gate projects (Beam)")
    out_norm: bool = Field(False, description="a norm of all heads together, before they are projected (BitNet)")
    differential: bool = Field(
        False, description="a half of the heads less a learned part of the other, each of the values of two heads, and normed (arXiv 2410.05258)"
    )
    v_norm: bool = Field(False, description="values are normed head by head, without a weight (Gemma 4)")
    sinks: bool = Field(False, description="one learned softmax offset a head (gpt-oss)")
    logit_softcap: bool = Field(False, description="tanh cap on the scores (Gemma 2)")
    clip_qkv: bool = Field(False, description="queries, keys and values clamped to a range (OLMo, DBRX)")
    rotary_fraction: float = Field(1.0, ge=0, le=1, description="part of the head dimension that RoPE turns")
    rotary_scaled: bool = Field(False, description="YaRN scales cosines and sines, which no fused kernel of TransformerEngine does (gpt-oss)")
    # multi-head latent attention
    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None
    qk_head_dim: Size | None = Field(None, description="head dimension without position (qk_nope_head_dim)")
    qk_pos_emb_head_dim: Size | None = None
    v_head_dim: Size | None = Field(None, description="head dimension of values; mla: has to be given; gqa: when not kv_channels (MiMo-V2-Flash)")
    latent_norm: bool = Field(True, description="mla: a norm of each latent (Megatron-Core: qk_layernorm)")
    q_input_norm: bool = Field(False, description="a norm of its own before q_proj (Megatron-Core 0.20 with qk_layernorm and no q_lora_rank)")

    flat_heads: bool = Field(False, description="mla: layers without RoPE have no part of a key that all heads share (Mistral Large 4)")
    log_scaling: bool = Field(
        False, description="queries, an indexer's too, times a + b log(position), of which every head has its own (Mistral Large 4)"
    )
    latent_gate: bool = Field(False, description="mla: queries, with a gate of every value, are made of their latent, normed and not (A.X-K2)")

    # the indexer of DeepSeek sparse attention
    dsa_indexer_topk: Size | None = Field(None, description="mla: keys that a query attends to, which an indexer chooses (DeepSeek-V3.2)")
    dsa_indexer_n_heads: Size | None = None
    dsa_indexer_head_dim: Size | None = None
    dsa_indexer_block: Size | None = Field(
        None, description="gqa: keys are chosen by blocks of so many, the query's own with them, for each head of the indexer apart (MiniMax-M3)"
    )
    dsa_indexer_input_norm: bool = Field(False, description="the indexer's queries are made of what attention reads, normed (Mistral Large 4)")

    @model_validator(mode="after")
    def _complete(self) -> "Attention":
        indexer = [n for n in ("dsa_indexer_topk", "dsa_indexer_n_heads", "dsa_indexer_head_dim") if getattr(self, n) is None]
        if 0 < len(indexer) < 3:
            raise ValueError(f"an indexer needs {', '.join(indexer)} too")
        if self.dsa_indexer_block and (self.kind != "gqa" or (self.dsa_indexer_topk or 1) % self.dsa_indexer_block):
            raise ValueError("dsa_indexer_block goes with kind: gqa, and has to divide dsa_indexer_topk, the keys that a query attends to")
        heads = self.num_attention_heads
        if self.dsa_indexer_block and heads % (self.dsa_indexer_n_heads or 1):
            raise ValueError(f"dsa_indexer_n_heads {self.dsa_indexer_n_heads} does not divide num_attention_heads {heads}, and each chooses for some")
        if not indexer and self.q_lora_rank is None and not self.dsa_indexer_input_norm and not self.dsa_indexer_block:
            raise ValueError(
                "dsa_indexer_topk needs a q_lora_rank, or dsa_indexer_input_norm: the indexer reads the queries' latent, or what they do"
            )
        if indexer and self.dsa_indexer_input_norm:
            raise ValueError("dsa_indexer_input_norm goes with dsa_indexer_topk")
        if (self.flat_heads or self.log_scaling) and (self.kind != "mla" or self.q_lora_rank is not None):
            raise ValueError("flat_heads and log_scaling go with kind: mla and no q_lora_rank")
        if self.kind == "mla":
            missing = [n for n in ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim") if getattr(self, n) is None]
            if missing:
                raise ValueError(f"kind: mla needs {', '.join(missing)}")
            if self.output_gate and (self.fused_gate or self.gate_head_bias):
                raise ValueError("fused_gate and gate_head_bias of an output_gate go with kind: gqa")
        if self.latent_gate and (self.kind != "mla" or self.q_lora_rank is None):
            raise ValueError("latent_gate goes with kind: mla and a q_lora_rank, of which queries and their gate are made")
        if self.differential and (self.kind != "gqa" or self.output_gate or self.head_gate or self.out_norm or self.v_norm or self.v_head_dim):
            raise ValueError("differential goes with kind: gqa, without output_gate, head_gate, out_norm, v_norm and v_head_dim")
        if self.differential and (self.num_query_groups or heads) % 2:
            raise ValueError(f"differential halves the heads of values, of which there are {self.num_query_groups or heads}")
        if self.kind == "gqa" and self.num_query_groups and self.num_attention_heads % self.num_query_groups:
            raise ValueError(f"num_attention_heads {self.num_attention_heads} is not a multiple of num_query_groups {self.num_query_groups}")
        return self

    @property
    def gate_bias(self) -> bool:
        return self.qkv_bias if self.output_gate_bias is None else self.output_gate_bias
