"""Seconds of a kernel in closed form, from the dimensions of its own operation.

A matrix product (groups of m x k by k x n) is cut into tiles of 128 x 128, the last of at most 64 rows a half of one where it is no group, as
many at a time as there are multiprocessors; where they are fewer, each is cut into up to four. A tile has a start and an end (t_tile) beside
which its multiprocessor multiplies nothing, and every multiprocessor has one. Operands cross HBM meanwhile, and a share phi of the shorter of
the two is not hidden:

    compute = max(tiles, n_sm / 4) 2 T^2 k / (Phi eta) + max(tiles, n_sm) t_tile / n_sm
    tiles   = ceil(2m/T) ceil(n/T) / 2, or groups ceil(m/T) ceil(n/T)              T = 128
    memory  = groups (w_in (m k + k n) + w_out m n) / (B_hbm eta_mem)              wgrad: 2 w_out, read and written
    seconds = max(compute, memory) + phi min(compute, memory) + t_start

Flash attention works through the pairs of query and key that a mask leaves, and through those that its tiles hold beyond the mask's edge
(kappa keys a query); a softmax of every pair runs beside the products, and of heads smaller than 128 a share omega of the time is its own.
Queries, keys, values and results cross HBM meanwhile. One multiprocessor walks along its rows, one key after another forward and one query
after another backward, and the last walk is half exposed on average:

    pairs   = b heads s_q min(n, (w + kappa) (1 - w / (2 n)))                      n keys in reach; w: of a window, n where it is causal
    compute = pairs c (1 + zeta (d_max/d_min - 1)) narrow / (Phi eta)              c = 2 d_qk + 2 d_v, or 6 d_qk + 4 d_v
    narrow  = 1 + omega max(0, 2 D / (d_qk + d_v) - 1)                             D = 128; without a mask pairs = b heads s_q n
    memory  = bytes / (B_hbm eta_mem)
    busy    = max(compute, memory) + phi min(compute, memory)
    seconds = max(tau length, busy + tau length / 2)                              length: of a window at most w + kappa

Where the gradients of queries are summed in HBM (`apart`), backward has two passes more: one before it sums a row's results times their
gradients, one behind it takes the sums of queries from fp32, that the first has set to nought: 4 d_v + 10 d_qk bytes a query and head.

In FP8 its products take a share psi of what they take in 16 bits; the softmax does not, so that heads are small up to D = 256, omega is the
forward's both ways, and zeta is 0.
Where several heads share keys and values, backward in FP8 writes the gradients of those head by head in fp32 and sums them in a pass of its own.
Kernels of that type skip no tile behind a window on the way back (cuDNN 9.22: 27.9 ms of 16K tokens in windows of 128, 108 of 32K).

A kernel bound by HBM takes bytes / (B_hbm eta) + t_start. Kernels of PyTorch between those of TransformerEngine that read rows apart from each
other move one element at a time, in twice the time: of the passes of a bias that is added apart half do, each in three times the time.

t_start is what a kernel costs on the device when the next is already queued: start, tail, drain. What the host takes
to launch a kernel is hidden behind the kernels before it and is not counted here.

Sources: roofline: Williams, Waterman and Patterson, CACM 52(4), 2009; tiles and waves: NVIDIA, Matrix Multiplication
Background, sec. 3-4; loop order and products of flash attention: Dao, FlashAttention-2, arXiv 2307.08691, alg. 1 and 2;
the passes before and behind backward: Dao-AILab/flash-attention, csrc/flash_attn/src/flash_bwd_preprocess_kernel.h (dot_do_o, convert_dQ);
exponentials beside products: Shah et al., FlashAttention-3, arXiv 2407.08608, sec. 3.1; elements one at a time: PyTorch
aten/src/ATen/native/cuda/CUDALoops.cuh (vectorised where all is contiguous and of one type), and 2.77 ms for the sum of 2^30 elements in bf16 and
fp32 where that in fp32 and bf16 takes 0.92 (PaddlePaddle, pull request 76988, PyTorch's column). The shares phi, zeta and omega, kappa and the
half walk are fitted forms of this project (`symsim calibrate` gives the coefficients and the errors that remain).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field, field_validator

from symsim.algebra.expr import Expr, Number, ceil, expr, maximum, minimum, symbol
from symsim.inputs.known import Known, Latency, Plain, Positive

# kernels whose seconds are kept: blocks of other layouts and options have the same
_KEPT = 1 << 12
TILE = 128
PARTS = 4  # tiles of 64 x 64 in one of 128 x 128: into so many at most a tile is cut where multiprocessors have none
HEAD = 128  # the head size from which attention's products take longer than what runs beside them; in FP8, at twice the rate, twice that


_SHARES = ("exposed", "efficiency", "forward", "backward", "narrow_forward", "narrow_backward", "elementwise", "permute", "cross_entropy")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)

    @field_validator(*_SHARES, check_fields=False)
    @classmethod
    def _share(cls, known: Known | None) -> Known | None:
        if known is not None and known.value > 1:
            raise ValueError(f"'{known.text}' is more than the whole; a share between 0 and 1 is needed")
        return known


class Gemm(_Part):
    """One matrix product."""

    efficiency: Positive = Field(description="share of the peak rate that the multipliers reach on whole tiles")
    exposed: Plain = Field(description="share of the shorter of compute and HBM time that is not hidden by the longer")
    start: Latency = Field(description="start and tail of a kernel on the device")
    tile: Latency | None = Field(None, description="start and end of a tile, beside which its multiprocessor multiplies nothing; 0")


class GroupedGemm(_Part):
    """Equal products of several groups in one kernel, or in a few kernels side by side."""

    efficiency: Positive = Field(description="share of the peak rate that the multipliers reach on whole tiles")
    exposed: Plain = Field(description="share of the shorter of compute and HBM time that is not hidden by the longer")


class Attention(_Part):
    """Flash attention."""

    forward: Positive = Field(description="share of the peak rate that the forward kernel reaches on long rows")
    backward: Positive = Field(description="share of the peak rate that the backward kernel reaches on long rows")
    uneven: Plain = Field(description="further work where the head sizes of keys and values differ, over (larger / smaller - 1)")
    key: Latency = Field(description="one key further along a row of the forward kernel")
    query: Latency = Field(description="one query further along a column of the backward kernel")
    narrow_forward: Plain | None = Field(None, description="share of the forward kernel's time at head size 128 that smaller heads take too; 0")
    narrow_backward: Plain | None = Field(None, description="the same of the backward kernel")
    fp8_forward: Plain | None = Field(None, description="time of the forward kernel's products in FP8 over that in 16 bits; as the peak rates say")
    fp8_backward: Plain | None = Field(None, description="the same of the backward kernel")
    beyond: Plain | None = Field(None, description="keys beyond a mask's edge, or behind a window's, that a query's tile works through; 0")
    exposed: Plain | None = Field(None, description="share of the shorter of compute and HBM time that is not hidden by the longer; 0")
    apart: Plain | None = Field(None, description="1 where gradients of queries are summed in HBM, by passes before and behind backward; 0")


class Memory(_Part):
    """Kernels bound by HBM."""

    elementwise: Positive = Field(description="share of the HBM bandwidth that elementwise kernels and GEMM operands reach")
    permute: Positive = Field(description="share of the HBM bandwidth that scattered rows reach")
    cross_entropy: Positive = Field(description="share of the HBM bandwidth that the loss reaches")
    start: Latency = Field(description="start and tail of a kernel on the device")


class Kernels(_Part):
    """Coefficients of the closed forms: the `kernels:` section of a system file."""

    gemm: Gemm
    grouped_gemm: GroupedGemm
    attention: Attention
    memory: Memory


# symbol -> where its coefficient stands in the `kernels:` section
SYMBOLS: dict[str, tuple[str, str]] = {
    "eta_gemm": ("gemm", "efficiency"),
    "phi_gemm": ("gemm", "exposed"),
    "t_gemm": ("gemm", "start"),
    "t_tile": ("gemm", "tile"),
    "eta_group": ("grouped_gemm", "efficiency"),
    "phi_group": ("grouped_gemm", "exposed"),
    "eta_fa": ("attention", "forward"),
    "eta_fab": ("attention", "backward"),
    "zeta_fa": ("attention", "uneven"),
    "tau_fa": ("attention", "key"),
    "tau_fab": ("attention", "query"),
    "omega_fa": ("attention", "narrow_forward"),
    "omega_fab": ("attention", "narrow_backward"),
    "psi_fa": ("attention", "fp8_forward"),
    "psi_fab": ("attention", "fp8_backward"),
    "kappa_fa": ("attention", "beyond"),
    "phi_fa": ("attention", "exposed"),
    "sigma_fab": ("attention", "apart"),
    "eta_mem": ("memory", "elementwise"),
    "eta_permute": ("memory", "permute"),
    "eta_ce": ("memory", "cross_entropy"),
    "t_mem": ("memory", "start"),
}

# kind of a kernel bound by HBM -> the share that it reaches
MOVING = {"elementwise": "eta_mem", "unvectorised": "eta_mem", "permute": "eta_permute", "cross_entropy": "eta_ce"}
# kind -> how many times as long as the share says
SLOWER = {"unvectorised": 2}


def values(kernels: Kernels) -> dict[str, Fraction]:
    """Numbers of the coefficients: plain shares and counts, and seconds; 0 for one that the file leaves out."""
    known = {name: getattr(getattr(kernels, part), key) for name, (part, key) in SYMBOLS.items()}
    return {name: found.value if found else Fraction(0) for name, found in known.items()}


@lru_cache(_KEPT)
def gemm(
    m: Expr | Number,
    n: Expr | Number,
    k: Expr | Number,
    *,
    groups: Expr | Number = 1,
    kind: str,
    width_in: Expr | Number,
    width_out: Expr | Number,
    peak: Expr,
    grouped: bool | None = None,
    beside: Expr | Number = 0,
    tiled: bool = True,
    split: bool = False,
) -> Expr:
    """Seconds of `groups` products of m x k by k x n (rows, columns and depth of this product: of dgrad and wgrad too).

    Widths are bytes an element; `peak` is the multiplier's rate in FLOP/s; `kind` is forward, dgrad or wgrad. `grouped` says
    which coefficients apply; left out, those of a grouped GEMM do unless `groups` is 1. `beside` are bytes that the kernel
    moves besides operands and result (a bias). Not `tiled`: of an ideal machine, which computes these rows and columns and no others.
    split: of few tiles and a long depth, which multiprocessors that have no tile share (split-K).
    """
    m, n, k, groups = expr(m), expr(n), expr(k), expr(groups)
    several = groups != 1 if grouped is None else grouped
    eta, exposed = (symbol("eta_group"), symbol("phi_group")) if several else (symbol("eta_gemm"), symbol("phi_gemm"))
    high, sms = TILE if several else TILE // 2, symbol("n_sm")
    tiles = groups * ceil(m / high) * ceil(n / TILE) * high / TILE
    worked = tiles if split else maximum(tiles, sms / PARTS)
    compute = 2 * k * (worked * TILE**2 if tiled else groups * m * n) / (peak * eta)
    if tiled:
        compute = compute + maximum(tiles, sms) * symbol("t_tile") / sms
    moved = gemm_bytes(m, n, k, groups=groups, kind=kind, width_in=width_in, width_out=width_out) + beside
    memory = moved / (symbol("B_hbm") * symbol("eta_mem"))
    return maximum(compute, memory) + exposed * minimum(compute, memory) + symbol("t_gemm")


def gemm_bytes(
    m: Expr | Number,
    n: Expr | Number,
    k: Expr | Number,
    *,
    groups: Expr | Number = 1,
    kind: str,
    width_in: Expr | Number,
    width_out: Expr | Number,
) -> Expr:
    """Bytes that `groups` products read and write in HBM. A wgrad is added to its main gradient, which is read and written."""
    m, n, k = expr(m), expr(n), expr(k)
    written = expr(width_out) * (2 if kind == "wgrad" else 1)
    return groups * (width_in * (m * k + k * n) + written * m * n)


@lru_cache(_KEPT)
def attention(
    b: Expr | Number,
    heads: Expr | Number,
    s_q: Expr | Number,
    n_keys: Expr | Number,
    d_qk: Expr | Number,
    d_v: Expr | Number,
    *,
    causal: bool,
    backward: bool,
    peak: Expr,
    moved: Expr | Number,
    window: Expr | Number | None = None,
    visited: Expr | Number = 1,
    fp8: bool = False,
    summed: Expr | Number = 0,
) -> Expr:
    """Seconds of flash attention over b x heads x s_q queries and n_keys keys of sizes d_qk, values of d_v.

    `n_keys` are all keys that the queries could see if there were no mask; under a causal one every query sees those before it, at most
    `window` of them; without one `window` are those before and behind it together. `peak` is in FLOP/s, of 16 bits also where operands are in
    FP8; `moved` are the bytes of queries, keys, values and results, of their gradients too backward. Keys and values that several heads share
    cost no less compute. visited: the share of a key's queries that a backward comes by. summed: bytes of the gradients of shared keys and
    values, head by head, that a pass of its own sums (`summed_bytes`).
    """
    b, heads, s_q, n_keys, d_qk, d_v = (expr(x) for x in (b, heads, s_q, n_keys, d_qk, d_v))
    products = 6 * d_qk + 4 * d_v if backward else 2 * d_qk + 2 * d_v
    eta, omega, tau, psi = (symbol(name + ("_fab" if backward else "_fa")) for name in ("eta", "omega", "tau", "psi"))
    if fp8:
        # products are faster and the softmax is not; backward, tiles behind a window are not left out
        omega, window = symbol("omega_fa"), None if backward else window
    reach = n_keys if window is None else expr(window)
    worked = minimum(n_keys, (reach + symbol("kappa_fa")) * (1 - reach / (2 * n_keys))) if causal else n_keys
    worked = worked if causal or window is None else minimum(n_keys, reach + symbol("kappa_fa"))
    narrow = 1 + omega * maximum(0, 2 * (2 * HEAD if fp8 else HEAD) / (d_qk + d_v) - 1)
    compute = b * heads * s_q * worked * products * narrow / (peak * eta)
    if fp8:
        compute = compute * psi
    elif d_qk != d_v:
        compute = compute + compute * symbol("zeta_fa") * (maximum(d_qk, d_v) / minimum(d_qk, d_v) - 1)
    memory = expr(moved) / (symbol("B_hbm") * symbol("eta_mem"))
    busy = maximum(compute, memory) + symbol("phi_fa") * minimum(compute, memory)
    length = s_q * visited if backward else n_keys
    walk = tau * (length if window is None else minimum(length, reach + symbol("kappa_fa")))
    if backward:
        summed = summed + symbol("sigma_fab") * b * heads * s_q * (10 * d_qk + 4 * d_v)
    return maximum(walk, busy + walk / 2) + expr(summed) / (symbol("B_hbm") * symbol("eta_mem"))


def attention_bytes(
    b: Expr | Number, heads: Expr | Number, groups: Expr | Number, s_q: Expr | Number, n_keys: Expr | Number, sizes: Expr | Number, *, backward: bool
) -> Expr:
    """Bytes in 16 bits that flash attention reads and writes once: queries and results of `heads`, keys and values of `groups`, the two of a head
    `sizes` wide together; backward those, the result's gradient, and the gradients of queries, keys and values."""
    queries, keys = expr(b) * heads * s_q * sizes, expr(b) * groups * n_keys * sizes
    return 4 * (queries + keys) if backward else 2 * (queries + keys)


def summed_bytes(b: Expr | Number, heads: Expr | Number, n_keys: Expr | Number, sizes: Expr | Number) -> Expr:
    """Bytes of the gradients of keys and values that several heads share, of every head in fp32, which backward in FP8 writes and then reads to sum
    them (NVIDIA/cudnn-frontend, backward of attention in FP8: dK_fullhead and dV_fullhead, reduced)."""
    return 8 * (expr(b) * heads * n_keys * sizes)


def memory_bound(bytes: Expr | Number, *, kind: str) -> Expr:
    """Seconds of a kernel that reads and writes so many bytes of HBM, of a kind in MOVING."""
    return SLOWER.get(kind, 1) * expr(bytes) / (symbol("B_hbm") * symbol(MOVING[kind])) + symbol("t_mem")
