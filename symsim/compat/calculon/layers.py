"""A block as Calculon lists it: what each of its layers computes, moves and keeps, and the operation here that it is a part of.

Source: calculon/llm/layers.py, a class a kind of layer; calculon/llm/llm.py Llm._build_attn_block, _build_mlp_block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal

from symsim.algebra.expr import Number
from symsim.compat.calculon.settings import Settings
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy

Phase = Literal["fw", "agrad", "wgrad"]
ATTENTION_NORM, QKV, CORE, PROJECTION = "pre_attention_norm", "attention.qkv", "attention.core", "attention.o_proj"
NETWORK_NORM, UP, ACTIVATION, DOWN = "pre_mlp_norm", "mlp.up_proj", "mlp.act", "mlp.down_proj"


@dataclass(frozen=True)
class Layer:
    """One layer. of: the operation here whose work it counts with; flops, moved (bytes): by phase; weight: parameters.

    kept, gradient, output: bytes of its activation, of the gradient at its output, of its output. reused: its activation is another's while
    it runs; stored, output_stored: what stays for backward. again: it runs again; sent: bytes of its tensor-parallel message, for which
    sums says which way it reduces (forward or backward); sent_again: that message is repeated; beside: it is sent in pieces beside its product.
    """

    name: str
    of: str
    flops: dict[Phase, Number]
    moved: dict[Phase, Number]
    weight: int = 0
    matrix: bool = False
    kept: Number = 0
    gradient: Number = 0
    output: Number = 0
    reused: bool = False
    stored: bool = True
    output_stored: bool = True
    again: bool = False
    sent: Number = 0
    sums: Literal["", "forward", "backward"] = ""
    sent_again: bool = False
    beside: bool = False

    @property
    def is_message(self) -> bool:
        return bool(self.sums) and not self.beside


@dataclass(frozen=True)
class _Sizes:
    """t ranks; tokens of a micro-batch; whole, share: elements of the residual stream, all of it and what a rank has; scores of a rank."""

    t: int
    tokens: int
    hidden: int
    whole: int
    share: int
    scores: int
    w: int


def block(model: Architecture, strategy: Strategy, asked: Settings) -> tuple[Layer, ...]:
    """The layers of a block in their order."""
    t, h, tokens = strategy.tp, model.hidden_size, strategy.micro_batch_size * strategy.seq_length
    whole, heads = tokens * h, model.attention.num_attention_heads // t
    scores = heads * strategy.seq_length**2 * strategy.micro_batch_size
    at = _Sizes(t, tokens, h, whole, whole // t if asked.messages == "rs_ag" else whole, scores, asked.width)
    full, core = asked.recompute == "full", asked.recompute != "none"
    assert model.mlp is not None
    wide = model.mlp.ffn_hidden_size // t
    return (
        *_norm(at, "AttnBlock", ATTENTION_NORM, full),
        *_projections(model, at, asked),
        *_core(model, strategy, at, core, full),
        *_out(at, asked, "AttnBlock_MLP", "AttnBlock_G", PROJECTION, model.attention.num_attention_heads * _head(model) // t, "add_attention"),
        *_added(at, "AttnBlock", "add_attention", full),
        *_norm(at, "MlpBlock", NETWORK_NORM, full),
        *_up(at, asked, wide),
        _activation(at, asked, wide * tokens),
        *_out(at, asked, "MlpBlock_Mlp2", "MlpBlock_G", DOWN, wide, "add_ffn"),
        *_added(at, "MlpBlock", "add_ffn", full),
    )


def _head(model: Architecture) -> int:
    return model.attention.kv_channels or model.hidden_size // model.attention.num_attention_heads


def _plain(name: str, of: str, size: int, flops: tuple[int, int], inputs: int, w: int, again: bool) -> Layer:
    """A layer without weights that reads `inputs` and writes `size` elements, forward and backward; flops an element."""
    moved = (inputs + size) * w
    return Layer(
        name,
        of,
        {"fw": flops[0] * size, "agrad": flops[1] * size, "wgrad": 0},
        {"fw": moved, "agrad": moved, "wgrad": 0},
        kept=inputs * w,
        gradient=size * w,
        output=size * w,
        again=again,
    )


def _norm(at: _Sizes, part: str, of: str, again: bool) -> tuple[Layer, ...]:
    x, h = at.share, at.hidden
    moved = (2 * x + 2 * h) * at.w
    norm = Layer(
        f"{part}_LayerNorm",
        of,
        {"fw": 9 * x, "agrad": 14 * x, "wgrad": 7 * x},
        {"fw": moved, "agrad": moved, "wgrad": moved},
        weight=2 * h,
        kept=x * at.w,
        gradient=x * at.w,
        output=x * at.w,
        reused=True,
        stored=False,
        again=again,
    )
    return (_fork(f"{part}_Fork", of, x, 2, at.w, again), norm)


def _fork(name: str, of: str, x: int, users: int, w: int, again: bool) -> Layer:
    """A tensor read by several: backward adds their gradients."""
    return Layer(name, of, {"fw": 0, "agrad": users * x, "wgrad": 0}, {"fw": 0, "agrad": (users + 1) * x * w, "wgrad": 0}, kept=x * w, again=again)


def _message(name: str, of: str, at: _Sizes, asked: Settings, sums: Literal["forward", "backward"], again: bool) -> Layer:
    """What a message over tensor ranks costs its rank: the additions of a reduction, and its buffers read and written."""
    a = at.whole if at.t > 1 else 0
    added = Fraction(a * (at.t - 1), at.t)
    shares = asked.messages == "rs_ag"
    here, there = sums == "forward", sums == "backward"
    return Layer(
        name,
        of,
        {"fw": added if here else 0, "agrad": added if there else 0, "wgrad": 0},
        {"fw": 2 * a * at.w if shares or here else 0, "agrad": 2 * a * at.w if shares or there else 0, "wgrad": 0},
        kept=Fraction(a * at.w, at.t) if shares else a * at.w if here else 0,
        gradient=Fraction(a * at.w, at.t) if shares else a * at.w if there else 0,
        stored=not here,
        sent=a * at.w,
        sums=sums,
        sent_again=again,
    )


def linear(name: str, of: str, rows: int, inward: int, outward: int, w: int) -> Layer:
    """A matrix product with one weight."""
    flops, moved = 2 * rows * inward * outward, (rows * inward + rows * outward + inward * outward) * w
    return Layer(
        name,
        of,
        dict.fromkeys(("fw", "agrad", "wgrad"), flops),
        dict.fromkeys(("fw", "agrad", "wgrad"), moved),
        weight=inward * outward,
        matrix=True,
        kept=rows * inward * w,
        gradient=rows * outward * w,
        output=rows * outward * w,
    )


def _in_pieces(name: str, of: str, rows: int, inward: int, outward: int, at: _Sizes, asked: Settings, first: bool) -> Layer:
    """A product whose message is sent in t pieces beside it; first: the one before it, which gathers forward and reduces backward."""
    plain, w, t = linear(name, of, rows, inward, outward, at.w), at.w, at.t
    shares = asked.messages == "rs_ag"
    inside, outside = rows * inward, rows * outward
    if shares and first:
        kept, gradient = inside // t, outside
    elif shares:
        kept, gradient = inside, 2 * (outside // t)
    else:
        kept, gradient = (inside, 0) if first else (0, 2 * outside)
    moved = (inward * outward + kept + gradient) * w
    full = asked.recompute == "full"
    gathers = asked.gathers_attention if of == QKV else asked.gathers_network
    return replace(
        plain,
        moved={"fw": plain.moved["fw"], "agrad": moved, "wgrad": moved},
        kept=kept * w,
        gradient=gradient * w,
        again=full,
        sent=(inside if first else outside) * w,
        sums="backward" if first else "forward",
        sent_again=gathers if first else full,
        beside=True,
    )


def _projections(model: Architecture, at: _Sizes, asked: Settings) -> tuple[Layer, ...]:
    """Queries, keys and values; the keys and values of one group are on every rank."""
    h, n, again = at.hidden, at.tokens, asked.recompute == "full"
    width = model.attention.num_attention_heads * _head(model) // at.t
    each = _head(model) if asked.multiquery else width

    def apart(name: str, outward: int) -> Layer:
        return replace(linear(f"AttnBlock_{name}", QKV, n, h, outward, at.w), reused=True, stored=False, again=again)

    def forked(name: str, users: int) -> Layer:
        return replace(_fork(f"AttnBlock_{name}", ATTENTION_NORM, at.whole, users, at.w, asked.gathers_attention), stored=not asked.gathers_attention)

    keys = (apart("Key", each), apart("Value", each))
    if asked.beside == "none":
        sent = _message("AttnBlock_F", ATTENTION_NORM, at, asked, "backward", asked.gathers_attention)
        return (sent, forked("Multihead_Fork", 3), apart("Query", width), *keys)
    if asked.multiquery:
        return (_in_pieces("AttnBlock_Query_AG", QKV, n, h, width, at, asked, True), forked("KV_Fork", 2), *keys)
    return (_in_pieces("AttnBlock_QKV_AG", QKV, n, h, 3 * width, at, asked, True),)


def _core(model: Architecture, strategy: Strategy, at: _Sizes, again: bool, full: bool) -> tuple[Layer, ...]:
    """Scores, softmax, dropout and values. The product with the values is not recomputed with the rest."""
    s, d, w = strategy.seq_length, _head(model), at.w
    batch = strategy.micro_batch_size * model.attention.num_attention_heads // at.t

    def product(name: str, inside: int, outside: int, runs_again: bool) -> Layer:
        inputs, size, flops = batch * (s * inside + inside * outside), batch * s * outside, 2 * batch * s * inside * outside
        plain = _plain(f"AttnBlock_Multihead_{name}", CORE, size, (0, 0), inputs, w, runs_again)
        return replace(plain, flops={"fw": flops, "agrad": 2 * flops, "wgrad": 0}, matrix=True)

    softmax = _plain("AttnBlock_Multihead_SoftMax", CORE, at.scores, (5, 8), at.scores, w, again)
    return (
        replace(product("Key_Query", d, s, again), output_stored=not again),
        replace(softmax, output_stored=not again),
        replace(_dropout("AttnBlock_Multihead_DropOut", CORE, at.scores, w, again), stored=not again),
        product("Attn", s, d, full),
    )


def _dropout(name: str, of: str, size: int, w: int, again: bool) -> Layer:
    """It keeps a byte an element, and has as much gradient."""
    moved = (2 * w + 1) * size
    return replace(_plain(name, of, size, (1, 1), size, w, again), moved={"fw": moved, "agrad": moved, "wgrad": 0}, kept=size, gradient=size)


def _up(at: _Sizes, asked: Settings, wide: int) -> tuple[Layer, ...]:
    full, again = asked.recompute == "full", asked.gathers_network
    if asked.beside != "none":
        return (_in_pieces("MlpBlock_Mlp1_AG", UP, at.tokens, at.hidden, wide, at, asked, True),)
    first = replace(linear("MlpBlock_Mlp1", UP, at.tokens, at.hidden, wide, at.w), stored=not again, again=full)
    return (_message("MlpBlock_F", NETWORK_NORM, at, asked, "backward", again), first)


def _activation(at: _Sizes, asked: Settings, size: int) -> Layer:
    plain = _plain("MlpBlock_GeLU", ACTIVATION, size, (8, 13), size, at.w, asked.recompute == "full")
    return replace(plain, kept=0, gradient=0) if asked.fused else plain


def _out(at: _Sizes, asked: Settings, name: str, message: str, of: str, inward: int, after: str) -> tuple[Layer, ...]:
    full = asked.recompute == "full"
    if asked.beside != "none":
        return (_in_pieces(f"{name}_RS", of, at.tokens, inward, at.hidden, at, asked, False),)
    product = replace(linear(name, of, at.tokens, inward, at.hidden, at.w), again=full)
    return (product, _message(message, after, at, asked, "forward", full))


def _added(at: _Sizes, part: str, of: str, again: bool) -> tuple[Layer, ...]:
    residual = partial(_plain, f"{part}_Residual", of, at.share, (1, 2), 2 * at.share)
    return (_dropout(f"{part}_DropOut", of, at.share, at.w, again), replace(residual(at.w, again), stored=False, reused=True))
