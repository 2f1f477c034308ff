"""Types in which weights that are not trained are stored, under adapters (QLoRA, LLM.int8): a row each.

A weight of 4 bits lies in blocks of 64 numbers with a scale each; double quantisation stores the scales in 8 bits, in blocks of 256 with a scale
each. Every product first makes the weight anew in the type of the computation, forward and backward. What a library leaves as it is
(embeddings, norms, output layer, routers) is named by its adapters' table of linear maps.

Sources: QLoRA, arXiv:2305.14314; bitsandbytes 0.50 functional.py quantize_4bit, dequantize_4bit, autograd/_functions.py MatMul4Bit, MatMul8bitLt;
torchao 0.18 quantization/quantize_/workflows/nf4/nf4_tensor.py NF4Tensor (torchtune's QLoRA).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

BLOCK, SCALES = 64, 256


@dataclass(frozen=True)
class Stored:
    """A type of stored weights.

    width: bytes an element of what is packed; scale: of the scales of blocks; per_row: bytes of the scale of a row of the weight instead.
    sharded: scales are sharded and gathered with what is packed (else every rank has them all). moved: bytes an element that making the
    weight anew reads and writes, besides writing the result; inside: bytes an element that it holds besides its result, at most; launches: its
    kernels. gathered: the type in which shards are gathered.
    integer: forward multiplies in integers what it casts of the input, and only backward makes the weight anew; the input is kept.
    """

    meaning: str
    source: str
    width: Fraction
    scale: Fraction = Fraction(0)
    per_row: int = 0
    sharded: bool = False
    moved: Fraction = Fraction(0)
    inside: Fraction = Fraction(0)
    launches: int = 1
    gathered: str = "nf4"
    integer: bool = False


_PACKED, _FP32 = Fraction(1, 2), Fraction(4, BLOCK)
_DOUBLE = Fraction(1, BLOCK) + Fraction(4, BLOCK * SCALES)
_QLORA = "bitsandbytes functional.py quantize_4bit"
_NF4 = Stored("4 bits, an fp32 scale for 64 numbers", _QLORA, _PACKED, _FP32, moved=_PACKED + _FP32)
_NF4_DOUBLE = Stored(
    "4 bits, a scale of 8 bits for 64 numbers, an fp32 one for 256 of these",
    _QLORA,
    _PACKED,
    _DOUBLE,
    # the scales in fp32 are written, their mean is added, and they are read
    moved=_PACKED + _DOUBLE + 4 * _FP32,
    inside=_FP32,
    launches=3,
)

STORED: dict[str, Stored] = {
    "nf4": _NF4,
    "nf4_double": _NF4_DOUBLE,
    "fp4": replace(_NF4, gathered="fp4"),
    "fp4_double": replace(_NF4_DOUBLE, gathered="fp4"),
    # operation by operation: both halves of a byte are shifted and widened to 8 bytes, looked up, scaled and laid side by side
    "nf4_torchao": Stored(
        "as nf4_double, scales of scales in 16 bits; made anew operation by operation",
        "torchao nf4_tensor.py NF4Tensor.get_original_weight",
        _PACKED,
        Fraction(1, BLOCK) + Fraction(2, BLOCK * SCALES),
        sharded=True,
        gathered="nf4_torchao",
        moved=Fraction(31),
        inside=Fraction(12),
        launches=16,
    ),
    "nf4_torchao_compiled": Stored(
        "as nf4_torchao, made anew by one kernel (torch.compile)",
        "torchao nf4_tensor.py NF4Tensor.get_original_weight",
        _PACKED,
        Fraction(1, BLOCK) + Fraction(2, BLOCK * SCALES),
        sharded=True,
        gathered="nf4_torchao",
        moved=_PACKED + Fraction(1, BLOCK) + Fraction(2, BLOCK * SCALES),
    ),
    # made anew for backward alone: a copy in 16 bits, which is scaled where it lies
    "int8": Stored(
        "8 bits, an fp32 scale a row",
        "bitsandbytes MatMul8bitLt; LLM.int8, arXiv:2208.07339",
        Fraction(1),
        per_row=4,
        moved=Fraction(5),
        launches=2,
        integer=True,
    ),
}
