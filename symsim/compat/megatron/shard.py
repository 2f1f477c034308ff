"""Megatron-LM's parameters of the most loaded rank, and its activations of the first stage, from the tensors that there are.

Source: megatron/training/theoretical_memory_usage.py compute_weight_and_optimizer_memory, compute_activation_memory,
compute_activation_memory_without_sp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, expr
from symsim.algebra.key import layers_of_model
from symsim.compat.difference import Question
from symsim.cost.count import counted_parameters, parameter_elements
from symsim.inputs.conventions import last_part
from symsim.ir.block import Tensor
from symsim.lowering.communicate import Placed
from symsim.lowering.lowered import Lowered

_OVERHEAD = Fraction("1.05")  # temporaries, without sequence parallelism
_WHOLE_EVERYWHERE = frozenset({"norm", "router"})
LATENT_NORMS = ("q_a_layernorm", "kv_a_layernorm")
DEPTH_NORMS = ("mtp.enorm", "mtp.hnorm", "mtp.final_layernorm")
_OF_LATENTS = frozenset(f"{norm}.{part}" for norm in LATENT_NORMS for part in ("weight", "bias"))
_OF_DEPTHS = frozenset(f"{name}.{part}" for name in (*DEPTH_NORMS, "mtp.eh_proj") for part in ("weight", "bias"))
_OF_HEADS = frozenset(f"{norm}.{part}" for norm in ("q_norm", "k_norm", "q_layernorm") for part in ("weight", "bias"))


def is_bias(tensor: Tensor) -> bool:
    """Biases but those of norms and of the router."""
    return last_part(tensor.name) == "bias" and tensor.module not in _WHOLE_EVERYWHERE


def is_position(tensor: Tensor) -> bool:
    return tensor.module == "embedding" and "P" in tensor.dims


def is_head_norm(tensor: Tensor) -> bool:
    """Norms of queries and keys, a head each."""
    return last_part(tensor.name, 2) in _OF_HEADS


def is_of_depth(tensor: Tensor) -> bool:
    """What a depth of multi-token prediction has besides its layer."""
    return tensor.name in _OF_DEPTHS


UNCOUNTED = {"biases": is_bias, "positions": is_position, "head-norms": is_head_norm, "depths": is_of_depth}


@dataclass(frozen=True)
class Shard:
    """The estimates of one job."""

    question: Question

    def _tensors(self, placed: Placed) -> Iterator[tuple[Tensor, Expr]]:
        for tensor in counted_parameters(placed):
            if not any(rule(tensor) for rule in UNCOUNTED.values()):
                yield tensor, parameter_elements(placed, tensor, local=False)

    def _split(self, tensor: Tensor) -> int:
        """The ranks over which a tensor is cut: all of a layer's weights over tensor ranks, the norms of latents among them."""
        strategy = self.question.strategy
        if tensor.module == "experts":
            return strategy.expert_tp * strategy.ep
        whole = tensor.module in _WHOLE_EVERYWHERE and last_part(tensor.name, 2) not in _OF_LATENTS or "shared_expert_gate" in tensor.name
        return 1 if whole else strategy.tp

    def _held(self, placed: Placed, *, experts: bool) -> Expr:
        own = [(t, n) for t, n in self._tensors(placed) if (t.module == "experts") == experts]
        return sum((n / self._split(t) for t, n in own), ZERO)

    def parameters(self, lowered: Lowered, *, experts: bool) -> Expr:
        """Of a rank with 1/pp of the layers and of the last norm, every depth of multi-token prediction, and the embedding."""
        model, strategy = self.question.model, self.question.strategy
        found = ZERO
        for kind in model.kind_names():
            found = found + self._held(lowered.blocks[kind].placed, experts=experts) * layers_of_model(kind).expr / strategy.pp
        if "mtp" in lowered.blocks:
            found = found + self._held(lowered.blocks["mtp"].placed, experts=experts) * model.mtp_num_layers
        if experts:
            return found
        tables = 1 if model.tie_word_embeddings or strategy.pp > 1 else 2
        norm = 2 if model.normalization == "LayerNorm" else 1
        found = found + expr(tables * model.vocab_size * model.hidden_size) / strategy.tp + expr(norm * model.hidden_size) / strategy.pp
        return found - self._gates

    @property
    def _gates(self) -> Expr:
        """Gates of attention's output, which lie in the joint projection and are left out."""
        at, strategy = self.question.model.attention, self.question.strategy
        if not at.output_gate:
            return ZERO
        model = self.question.model
        width = at.num_attention_heads * (at.kv_channels or model.hidden_size // at.num_attention_heads)
        return expr(width * model.hidden_size) * (Fraction(model.num_layers, strategy.pp) + model.mtp_num_layers) / strategy.tp

    def weights(self, lowered: Lowered) -> Expr:
        return 2 * self._all(lowered)

    def gradients(self, lowered: Lowered) -> Expr:
        return 4 * self._all(lowered)

    def _all(self, lowered: Lowered) -> Expr:
        return self.parameters(lowered, experts=False) + self.parameters(lowered, experts=True)

    def optimizer(self, lowered: Lowered) -> Expr:
        """12 bytes, with a distributed optimizer over data ranks, of which context ranks are none."""
        strategy = self.question.strategy
        shards = (strategy.dp, strategy.expert_dp) if strategy.zero else (1, 1)
        parts = (self.parameters(lowered, experts=False), self.parameters(lowered, experts=True))
        return 12 * sum((part / ranks for part, ranks in zip(parts, shards)), ZERO)

    def activations(self, lowered: Lowered) -> Expr:
        """Of the first stage: Korthikanti's second table, whatever attention and networks the model has."""
        strategy = self.question.strategy
        shares = strategy.sp and strategy.recompute == "selective"
        return expr(self.with_shares() if shares else self.without_shares())

    def with_shares(self) -> Fraction:
        """Under sequence parallelism and selective recomputation."""
        model, strategy = self.question.model, self.question.strategy
        wide = model.mlp.ffn_hidden_size if model.mlp is not None else 0
        found = self._through_stages(self._stream * (18 + Fraction(4 * wide, model.hidden_size)) * model.num_layers)
        if strategy.pp == 1:
            found += 4 * self._stream * (1 + Fraction(model.vocab_size, model.hidden_size))
        return found / strategy.tp

    def without_shares(self) -> Fraction:
        """In every other case, with a twentieth for temporaries."""
        model, strategy = self.question.model, self.question.strategy
        found = self._through_stages(self._stream * (10 + Fraction(24, strategy.tp)) * model.num_layers)
        if strategy.pp == 1:
            found += 2 * self._stream * (1 + Fraction(model.vocab_size, model.hidden_size * strategy.tp))
        return found * _OVERHEAD

    @property
    def _stream(self) -> Fraction:
        strategy = self.question.strategy
        return Fraction(strategy.seq_length * strategy.micro_batch_size * self.question.model.hidden_size)

    def _through_stages(self, layers: Fraction) -> Fraction:
        """Layers of all stages, and the ids and dropout of the embedding, for the micro-batches that the first stage holds."""
        strategy = self.question.strategy
        found = layers + strategy.pp * (8 * strategy.seq_length * strategy.micro_batch_size + self._stream)
        if strategy.vpp > 1:
            return found * (1 + Fraction(strategy.pp - 1, strategy.pp * strategy.vpp))
        return found * min(Fraction(1), Fraction(strategy.microbatches, strategy.pp))
