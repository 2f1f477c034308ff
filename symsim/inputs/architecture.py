"""The architecture of a model: what is computed, with no word of how it is distributed.

Field names are Megatron-Core's where it has one. A model file of `models/` is this schema written in YAML;
`inputs/hf` fills it from a Hugging Face config.json.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from symsim.inputs.arithmetic import Arithmetic
from symsim.inputs.attention import Attention
from symsim.inputs.layer_pattern import Part, Segment, parse_layers, refuse_deep
from symsim.inputs.limits import MOST_EXPERTS, MOST_LAYER_KINDS, MOST_LAYERS, Experts, Size
from symsim.inputs.mixers import (
    Activation,
    CompressedAttention,
    LightningAttention,
    LinearAttention,
    Mamba,
    SelectiveScan,
    SharedBlock,
    ShortConvolution,
)


class HyperConnections(Part):
    """Several residual streams, mixed around every mixer and network (mHC, arXiv 2512.24880)."""

    streams: Size = 4
    sinkhorn_iterations: Size = Field(20, description="turns in which rows and columns of the mixing matrix are made to sum to one")
    averaged: bool = Field(False, description="the streams end in their mean, not in a sum by weights that they make")
    independent: bool = Field(False, description="streams are not mixed, and their norm scales what is projected of them (iHC, HY V4)")


class AltUp(Part):
    """Several residual streams, of which a layer computes on one, and predicts and corrects the others (AltUp, arXiv 2301.13310; Gemma 3n)."""

    num_inputs: Size = Field(4, ge=2, description="streams")
    correct_scale: bool = Field(True, description="the corrected stream is multiplied by a weight where it gates the layer's embeddings")


class PerLayerInput(Part):
    """Embeddings of every token for every layer, which the layer gates and adds (Gemma 3n, Gemma 4)."""

    hidden_size: Size = Field(description="width of one layer's")
    vocab_size: Size = Field(description="rows of their table")


class Mlp(Part):
    """The dense feed-forward network."""

    ffn_hidden_size: Size
    gated: bool = True
    activation: Literal[Activation, "xielu", "swiglu_clamped"] = "silu"
    bias: bool = False
    down_bias: bool | None = Field(None, description="a bias behind the last projection; default: bias (GTE)")
    inner_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of what is activated (GTE, ModernBERT)")
    inner_norm: bool = Field(False, description="a norm of what is activated, before it is projected (BitNet)")
    fused_gate_up: bool = Field(False, description="the modelling code runs one GEMM for gate and up")


class Moe(Part):
    """A mixture of experts in place of the feed-forward network."""

    num_moe_experts: Experts
    moe_router_topk: Experts
    moe_ffn_hidden_size: Size
    gated: bool = True
    activation: Literal[Activation, "xielu", "swiglu_clamped"] = "silu"
    clamped: bool = Field(False, description="gates and values of all experts are clamped before the activation (DeepSeek-V4)")
    clamped_shared: bool = Field(True, description="those of shared experts are among what is clamped (not in HY V4)")
    expert_bias: bool = Field(False, description="biases in the expert GEMMs (gpt-oss)")
    moe_shared_expert_intermediate_size: Size | None = Field(None, description="total width of the shared experts")
    moe_shared_expert_gate: bool = False
    shared_expert_bias: bool = Field(False, description="biases in the shared experts' GEMMs (ERNIE 4.5, DeepSeek-V2)")
    moe_router_score_function: Literal["softmax", "sigmoid", "sqrtsoftplus"] = "softmax"
    moe_router_pre_softmax: bool = Field(False, description="softmax over all experts before top-k")
    norm_topk_prob: bool = True
    moe_router_num_groups: Experts | None = None
    moe_router_group_topk: Experts | None = None
    router_bias: bool = False
    router_norm: bool = Field(False, description="the router reads the stream itself, normed without a weight and times one (Gemma 4)")
    per_expert_scale: bool = Field(False, description="a number of each expert multiplies its routing weight (Gemma 4)")
    moe_router_enable_expert_bias: Literal["none", "buffer", "parameter"] = Field(
        "none", description="the aux-loss-free selection bias [E], and whether it counts as a parameter"
    )
    moe_latent_size: Size | None = None
    latent_bias: bool = Field(False, description="biases in the latent projections")
    router_weight_before_experts: bool = Field(
        False, description="probabilities scale the experts' inputs (Llama 4; Megatron-Core moe_apply_probs_on_input)"
    )

    @model_validator(mode="after")
    def _sane(self) -> "Moe":
        if self.moe_router_topk > self.num_moe_experts:
            raise ValueError(f"moe_router_topk {self.moe_router_topk} exceeds num_moe_experts {self.num_moe_experts}")
        return self


class LayerKind(Part):
    """One kind of layer: which mixer and which feed-forward network; with one of them alone, half a layer of the usual kind."""

    mixer: Literal[
        "attention", "linear_attention", "lightning_attention", "compressed_attention", "short_convolution", "mamba", "selective_scan", "none"
    ] = "attention"
    beside: Literal["mamba"] | None = Field(None, description="a second mixer, which reads the same norm and is added to the first (Falcon-H1)")
    ffn: Literal["mlp", "moe", "none"] = "mlp"
    shared_block: Literal["none", "held", "borrowed"] = Field(
        "none", description="in front of the mixer: the model's shared_block, of weights that this layer holds, or that an earlier one does (Zamba2)"
    )
    beside_experts: bool = Field(False, description="experts beside a dense network, each between norms of its own, and added (Gemma 4)")
    window: Size | None = Field(
        None, description="sliding (or chunked) attention window in tokens; where attention is bidirectional, to either side, a token itself with it"
    )
    chunked: bool = Field(False, description="the window does not slide: attention stays inside chunks of `window` tokens (Llama 4)")
    bidirectional: bool = Field(False, description="attention is not causal (encoders)")
    compression: Size | None = Field(None, description="compressed_attention: tokens for which there is one further key; null: a window alone")
    chosen_entries: bool = Field(
        False, description="compressed_attention: an indexer chooses among further keys, of which each is made of the tokens of the one before too"
    )
    rope: bool = True
    out_bias: bool | None = Field(None, description="a bias behind the output projection, when not as attention has it (GPT-NeoX Japanese)")
    weights: Literal["own", "held", "borrowed"] = Field(
        "own", description="all weights are those of this layer, or for later layers too, or those that an earlier layer holds (ALBERT)"
    )
    in_turn: Size = Field(1, description="what is borrowed is that of the last so many layers that hold weights for others, in turn")
    shared_index: bool = Field(False, description="without an indexer: the keys that the last layer with one chose (GLM-5)")
    indexer: bool = Field(True, description="its attention is to what an indexer chooses, where attention has one; false: to all (MiniMax-M3)")
    norms: tuple[Literal["pre_attention", "post_attention", "pre_mlp", "post_mlp"], ...] | None = Field(
        None, description="where this kind has norms, when not where the model has (OLMo Hybrid)"
    )
    gated_norms: tuple[Literal["pre_attention", "pre_mlp"], ...] = Field((), description="norms whose result gates itself (norm_gate_rank)")
    ffn_hidden_size: Size | None = Field(None, description="width of this kind's dense network, when not mlp's")
    kv_channels: Size | None = Field(None, description="head dimension of this kind, when not attention's")
    num_attention_heads: Size | None = Field(None, description="query heads of this kind, when not attention's (Laguna)")
    num_query_groups: Size | None = Field(None, description="key/value heads of this kind, when not attention's")
    sinks: bool | None = Field(None, description="one learned softmax offset a head, when not as attention has it (MiMo-V2-Flash)")
    rotary_fraction: float | None = Field(None, ge=0, le=1, description="part of the head dimension that RoPE turns, when not attention's")
    activation_sparsity: bool = Field(False, description="gate values of the dense network below a quantile of their row become zero (Gemma 3n)")
    keys_as_values: bool = Field(False, description="values are the keys as they were projected (Gemma 4)")
    shared_keys: bool = Field(False, description="without keys and values of its own: those of the last such layer that has them (Gemma 3n, Gemma 4)")

    @property
    def own(self) -> dict[str, int]:
        """The sizes that this kind has of its own, by dimension."""
        sizes = {"f": self.ffn_hidden_size, "d": self.kv_channels, "a": self.num_attention_heads, "g": self.num_query_groups, "m_x": self.compression}
        return {dim: size for dim, size in sizes.items() if size is not None}

    @property
    def mixers(self) -> frozenset[str]:
        """The mixers it has."""
        return frozenset({self.mixer, self.beside or "none", "none" if self.shared_block == "none" else "attention"}) - {"none"}

    @property
    def borrows(self) -> bool:
        """Whether it uses weights that an earlier layer holds."""
        return "borrowed" in (self.weights, self.shared_block)

    @property
    def has_mlp(self) -> bool:
        """Whether it runs the model's dense network."""
        return self.ffn == "mlp" or self.beside_experts or self.shared_block != "none"

    @property
    def reach(self) -> Literal["all", "both", "window", "chunk", "band", "compressed", "picked"]:
        """What a query may attend to."""
        if self.compression is not None:
            return "picked" if self.chosen_entries else "compressed"
        if self.bidirectional:
            return "both" if self.window is None else "band"
        return "all" if self.window is None else "chunk" if self.chunked else "window"


class Architecture(Part):
    """A decoder-only language model."""

    name: str
    source: str = Field("", description="where the numbers were published")
    fact: str = Field("", description="what a reader should know about this file")
    hidden_size: Size
    vocab_size: Size
    layers: tuple[Segment, ...] = Field(description="run-length pattern of layer kinds")
    layer_kinds: dict[str, LayerKind] = Field(default_factory=lambda: {"dense": LayerKind()})
    attention: Attention
    linear_attention: LinearAttention | None = None
    lightning_attention: LightningAttention | None = None
    compressed_attention: CompressedAttention | None = None
    short_convolution: ShortConvolution | None = None
    mamba: Mamba | None = None
    selective_scan: SelectiveScan | None = None
    shared_block: SharedBlock | None = None
    per_layer_input: PerLayerInput | None = None
    hyper_connections: HyperConnections | None = None
    altup: AltUp | None = None
    laurel_rank: Size | None = Field(None, description="rank of a branch beside attention (LAuReL, arXiv 2411.07501; Gemma 3n)")
    mlp: Mlp | None = None
    moe: Moe | None = None
    normalization: Literal["RMSNorm", "LayerNorm"] = "RMSNorm"
    norm_bias: bool = Field(False, description="LayerNorm with a bias")
    norm_gate_rank: Size | None = Field(None, description="rank of the products that make the gates of gated_norms (A.X-K2)")
    norm_weight: bool = Field(True, description="false: norms without parameters (OLMo-1)")
    norm_unit_offset: bool = Field(False, description="weight stored as an offset from one, kept in fp32 (Gemma)")
    norms: tuple[Literal["pre_attention", "post_attention", "pre_mlp", "post_mlp"], ...] = ("pre_attention", "pre_mlp")
    norms_after_residual: bool = Field(False, description="the post norms are of the stream, after what they follow is added (BERT, OPT-350m)")
    parallel_block: bool = Field(False, description="attention and feed-forward read the same stream (GPT-NeoX, Falcon)")
    branch_multipliers: bool = Field(False, description="mixers beside each other read the norm times a factor each (Falcon-H1)")
    residual_after_norm: bool = Field(False, description="what is added to a branch is the normed stream that it read (MiniMax)")
    final_norm: bool = True
    final_norm_bias: bool | None = Field(None, description="default: norm_bias (ESMC: not, and its other norms have one)")
    embedding_norm: bool = Field(False, description="a norm right after the embedding (BLOOM)")
    embedding_norm_weight: bool | None = Field(None, description="default: norm_weight (Muse: without one)")
    token_types: Size | None = Field(None, description="rows of a table of token types, added to the words (BERT)")
    head_transform: Activation | None = Field(
        None, description="a projection, this activation and a norm before the output layer (masked language models)"
    )
    head_transform_bias: bool = True
    tie_word_embeddings: bool = False
    lm_head_bias: bool = False
    logit_softcap: bool = Field(False, description="tanh cap on the output logits (Gemma 2)")
    position_embedding: Literal["rope", "learned", "alibi", "none"] = "rope"
    position_embedding_rows: Size | None = None
    embedding_size: Size | None = Field(None, description="width of the table of words when not hidden_size, with a projection to it and from it")
    embedding_rows: Size | None = Field(None, description="rows of the table of words, when not vocab_size, the head's (Molmo 2, Apertus 1.5)")
    factored_embedding: bool = Field(
        False, description="all of the embedding is embedding_size wide, and so is what head_transform makes (ELECTRA, RoFormer, ALBERT)"
    )
    head_size: Size | None = Field(None, description="width of what head_transform makes, when not the embedding's (RemBERT)")
    layer_scale: bool = Field(False, description="what a layer leaves is multiplied by a number that is not learned (Gemma 4)")
    embedding_scale: bool = Field(False, description="embedding multiplied by sqrt(h) (Gemma)")
    mtp_num_layers: int = Field(0, ge=0, le=MOST_LAYERS, description="multi-token prediction depths (DeepSeek-V3)")
    mtp_use_repeated_layer: bool = False
    mtp_detaches_embedding: bool = Field(False, description="multi-token prediction has no gradient for the embedding of the next token")
    hidden_dropout: float = Field(0.0, ge=0, lt=1)
    embedding_dropout: float | None = Field(None, ge=0, lt=1, description="default: hidden_dropout")
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    arithmetic: Arithmetic | None = None
    modelling: str = Field("", description="Hugging Face model_type whose module code the eager profile follows")
    # whether layer kinds are as names spell them (`symsim/algebra/kinds.py`), no more as the user named them
    _spelt: bool = PrivateAttr(False)

    @field_validator("layers", mode="before")
    @classmethod
    def _read_layers(cls, value: object) -> object:
        if isinstance(value, str):
            return parse_layers(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST_LAYERS:
                raise ValueError(f"{value} is no number of layers: from 1 to {MOST_LAYERS} are read")
            return (Segment(repeat=value, kinds=("dense",)),)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Architecture":
        refuse_deep(self.layers)
        used = {k for s in self.layers for k in s.kinds}
        if len(used) > MOST_LAYER_KINDS:
            raise ValueError(f"layers uses {len(used)} layer kinds, and at most {MOST_LAYER_KINDS} are derived")
        unknown = sorted(used - self.layer_kinds.keys())
        if unknown:
            raise ValueError(f"layers uses '{unknown[0]}', which layer_kinds does not define (it defines {', '.join(sorted(self.layer_kinds))})")
        for kind in used:
            if self.layer_kinds[kind].ffn == "moe" and self.moe is None:
                raise ValueError(f"layer kind '{kind}' has ffn: moe, but there is no moe section")
            if self.layer_kinds[kind].beside_experts and (self.layer_kinds[kind].ffn != "moe" or self.mlp is None):
                raise ValueError(f"layer kind '{kind}' has beside_experts, which needs ffn: moe and an mlp section")
            if self.layer_kinds[kind].ffn == "mlp" and self.mlp is None:
                raise ValueError(f"layer kind '{kind}' has ffn: mlp, but there is no mlp section")
            if self.layer_kinds[kind].bidirectional and self.layer_kinds[kind].chunked:
                raise ValueError(f"layer kind '{kind}' is chunked and bidirectional, which is not supported together")
            if "none" in (self.layer_kinds[kind].mixer, self.layer_kinds[kind].ffn):
                self._half(kind)
            for mixer in self.layer_kinds[kind].mixers:
                if getattr(self, mixer, True) is None:
                    raise ValueError(f"layer kind '{kind}' has mixer: {mixer}, but there is no {mixer} section")
            spec = self.attention
            complete = self.shared_block is not None and self.mlp is not None and spec.kind == "gqa" and not spec.v_head_dim
            if self.layer_kinds[kind].shared_block != "none" and (not complete or self.layer_kinds[kind].mixer == "none"):
                raise ValueError(f"layer kind '{kind}' has a shared_block, which needs that section, an mlp section, attention (gqa) and a mixer")
            plain = spec.kind == "gqa" and not spec.clip_qkv and spec.qk_norm_position == "before_rope" and spec.v_head_dim is None
            if (self.layer_kinds[kind].shared_keys or self.layer_kinds[kind].keys_as_values) and not plain:
                goes = "attention of kind gqa, normed before RoPE, and without v_head_dim"
                raise ValueError(f"layer kind '{kind}' has shared_keys or keys_as_values, which go with {goes}")
            if self.layer_kinds[kind].beside and (self.layer_kinds[kind].mixer in ("none", "mamba") or self.parallel_block):
                raise ValueError(f"layer kind '{kind}' has beside: mamba, which goes with another mixer, and without parallel_block")
        self._lent()
        if (self.norm_gate_rank is None) == any(self.layer_kinds[k].gated_norms for k in used):
            raise ValueError("norm_gate_rank and gated_norms of layer kinds go together: the rank of gates, and the norms that have one")
        mixtures = sum(s.repeat * sum(self.layer_kinds[k].ffn == "moe" for k in s.kinds) for s in self.layers)
        if self.moe is not None and mixtures * self.moe.num_moe_experts > MOST_EXPERTS:
            count = f"{mixtures} layers of {self.moe.num_moe_experts} experts are {mixtures * self.moe.num_moe_experts}"
            raise ValueError(f"{count}, which are too many: at most {MOST_EXPERTS} are counted")
        if self.attention.kv_channels is None and self.attention.kind == "gqa" and self.hidden_size % self.attention.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.attention.num_attention_heads}, and attention.kv_channels is not given"
            )
        if self.norms_after_residual and (self.parallel_block or any(norm.startswith("pre") for norm in self.norms)):
            raise ValueError("norms_after_residual goes with norms post_attention and post_mlp alone, and without parallel_block")
        others = ("parallel_block", "residual_after_norm", "norms_after_residual", "mtp_num_layers", "per_layer_input", "shared_block", "layer_scale")
        if self.hyper_connections and any(getattr(self, name) for name in others):
            raise ValueError(f"hyper_connections go without {', '.join(others[:-1])} and {others[-1]}")
        self._altup()
        self._compressed()
        if any(self.layer_kinds[k].beside_experts for k in self.kind_names()) and (self.parallel_block or self.hyper_connections or self.altup):
            raise ValueError("beside_experts goes without parallel_block, hyper_connections and altup")
        self._tables()
        return self

    def _tables(self) -> None:
        if self.factored_embedding and self.embedding_size is None:
            raise ValueError("factored_embedding needs embedding_size")
        if self.embedding_rows is not None and self.tie_word_embeddings:
            raise ValueError("embedding_rows goes with an output layer of its own (tie_word_embeddings: false)")
        if self.head_size is not None and (self.head_transform is None or self.tie_word_embeddings):
            raise ValueError("head_size needs head_transform, and an output layer of its own (tie_word_embeddings: false)")
        if self.position_embedding == "learned" and self.position_embedding_rows is None:
            raise ValueError("position_embedding: learned needs position_embedding_rows")

    def _altup(self) -> None:
        whole = all(self.layer_kinds[k].mixer != "none" and self.layer_kinds[k].ffn != "none" for k in self.kind_names())
        others = ("parallel_block", "mtp_num_layers", "hyper_connections", "shared_block", "layer_scale")
        if (self.altup or self.laurel_rank) and (not whole or any(getattr(self, name) for name in others)):
            raise ValueError(f"altup and laurel_rank go with whole layers, and without {', '.join(others[:-1])} and {others[-1]}")
        for kind in self.kind_names():
            if self.layer_kinds[kind].activation_sparsity and not (self.layer_kinds[kind].ffn == "mlp" and self.mlp and self.mlp.gated):
                raise ValueError(f"layer kind '{kind}' has activation_sparsity, which goes with a gated dense network")

    def _compressed(self) -> None:
        for kind in self.kind_names():
            spec = self.layer_kinds[kind]
            asks = self.attention.dsa_indexer_topk and self.attention.kind != "mla" and not self.attention.dsa_indexer_block
            if spec.mixer == "attention" and asks:
                raise ValueError(f"layer kind '{kind}' has mixer: attention, where dsa_indexer_topk needs kind: mla, or dsa_indexer_block")
            if spec.mixer != "compressed_attention":
                if spec.compression or spec.chosen_entries:
                    raise ValueError(f"layer kind '{kind}' has compression or chosen_entries, which go with mixer: compressed_attention")
                continue
            at, section = self.attention, self.compressed_attention
            if at.kind != "gqa" or at.num_query_groups != 1 or at.q_lora_rank is None or spec.window is None or spec.chunked or spec.bidirectional:
                needs = "num_query_groups: 1 and q_lora_rank of attention (gqa), and a sliding window"
                raise ValueError(f"layer kind '{kind}' has mixer: compressed_attention, which needs {needs}")
            if section is not None and at.num_attention_heads % section.output_groups:
                heads = at.num_attention_heads
                raise ValueError(f"compressed_attention.output_groups {section.output_groups} does not divide num_attention_heads {heads}")
            if spec.chosen_entries and (spec.compression is None or at.dsa_indexer_topk is None):
                raise ValueError(f"layer kind '{kind}' has chosen_entries, which need compression and attention.dsa_indexer_topk")

    def _lent(self) -> None:
        """ValueError where a layer borrows weights that no earlier layer holds."""
        held = 0
        for kind in (self.layer_kinds[k] for s in self.layers for k in s.kinds):
            held += "held" in (kind.weights, kind.shared_block)
            if kind.borrows and not held:
                raise ValueError("a layer borrows weights before any layer has held such (weights: held, shared_block: held)")

    @property
    def several_windows(self) -> bool:
        """Whether layers have windows of different sizes, each a symbol of its kind."""
        return len({self.layer_kinds[k].window for k in self.kind_names()} - {None}) > 1

    @property
    def shares_weights(self) -> bool:
        """Whether layers use weights that other layers hold."""
        return any(self.layer_kinds[k].borrows for k in self.kind_names())

    @property
    def reads_ahead(self) -> str:
        """What layers read beside the stream that is other for each of them, and was made before the layer in front; "" if nothing."""
        kinds = [self.layer_kinds[k] for k in self.kind_names()]
        if self.per_layer_input is not None:
            return "embeddings of their own"
        return "keys and values of earlier layers" if any(kind.shared_keys for kind in kinds) else ""

    @property
    def last_kind(self) -> str:
        """The kind of the last layer, of which the depths of multi-token prediction are."""
        return self.layers[-1].kinds[-1]

    def kind_of(self, block: str) -> str:
        """The kind of layer that a block is; of a depth of multi-token prediction, the last layer's."""
        return block if block in self.layer_kinds else self.last_kind

    def heads_of(self, block: str) -> int:
        """Query heads of a kind of layer."""
        return self.layer_kinds[self.kind_of(block)].num_attention_heads or self.attention.num_attention_heads

    def groups_of(self, block: str) -> int:
        """Key/value heads of a kind of layer."""
        own = self.layer_kinds[self.kind_of(block)].num_query_groups
        return own or self.attention.num_query_groups or self.heads_of(block)

    @property
    def attending(self) -> list[str]:
        """Layer kinds with attention, or with a mixer of as many heads."""
        return [k for k in self.kind_names() if self.layer_kinds[k].mixers & {"attention", "lightning_attention", "compressed_attention"}]

    @property
    def group_counts(self) -> list[int]:
        """How many key/value heads there are, in one kind of layer or another, in order."""
        return sorted(set(map(self.groups_of, self.attending)))

    @property
    def has_sinks(self) -> bool:
        """Whether a layer has learned softmax offsets."""
        return any(self.attention.sinks if (own := self.layer_kinds[k].sinks) is None else own for k in self.attending)

    def _half(self, kind: str) -> None:
        if self.layer_kinds[kind].mixer == self.layer_kinds[kind].ffn:
            raise ValueError(f"layer kind '{kind}' has neither a mixer nor a feed-forward network (ffn)")
        if self.parallel_block or self.mtp_num_layers:
            other = "parallel_block" if self.parallel_block else "mtp_num_layers"
            raise ValueError(f"layer kind '{kind}' has a mixer or a feed-forward network alone, which does not go with {other}")

    @property
    def num_layers(self) -> int:
        return sum(s.repeat * len(s.kinds) for s in self.layers)

    @property
    def head_dim(self) -> int:
        return self.attention.kv_channels or self.hidden_size // self.attention.num_attention_heads

    @property
    def query_groups(self) -> int:
        return self.attention.num_query_groups or self.attention.num_attention_heads

    @property
    def keeps_projected_queries(self) -> bool:
        """Whether something keeps queries as they were projected: a norm, or attention where nothing turns them."""
        rotary = self.position_embedding == "rope" and all(k.rope for k in self.layer_kinds.values())
        return self.attention.qk_norm != "none" or not rotary

    @property
    def qk_norm_bias(self) -> bool:
        return self.norm_bias if self.attention.qk_norm_bias is None else self.attention.qk_norm_bias

    @property
    def final_norm_biased(self) -> bool:
        return self.norm_bias if self.final_norm_bias is None else self.final_norm_bias

    @property
    def dropped_embedding(self) -> bool:
        """Whether dropout is applied to what the stream begins with."""
        return bool(self.hidden_dropout if self.embedding_dropout is None else self.embedding_dropout)

    def kind_names(self) -> list[str]:
        """Layer kinds in order of first use."""
        return list(dict.fromkeys(k for s in self.layers for k in s.kinds))
