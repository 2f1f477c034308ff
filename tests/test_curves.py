"""Seconds of kernels: the forms against arithmetic by hand, and what must hold of them whatever the coefficients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import symsim
from symsim.algebra.expr import Expr, Number, symbol
from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import InputError
from symsim.inputs import curves
from symsim.inputs.architecture import Architecture
from symsim.inputs.reading import Document
from symsim.inputs.shipped import list_systems
from symsim.inputs.systems import load_system
from symsim.inputs.validation import validate

PEAK = symbol("Phi_bf16")
# a machine with round numbers: 1e12 FLOP/s, 1e10 byte/s, 10 multiprocessors
MACHINE: dict[str, Number] = {
    "Phi_bf16": 10**12,
    "B_hbm": 10**10,
    "n_sm": 10,
    "eta_gemm": Fraction(1, 2),
    "phi_gemm": Fraction(1, 4),
    "t_gemm": Fraction(1, 10**6),
    "t_tile": 0,
    "eta_group": Fraction(1, 4),
    "phi_group": Fraction(1, 2),
    "eta_fa": Fraction(1, 2),
    "eta_fab": Fraction(1, 4),
    "zeta_fa": Fraction(1, 2),
    "tau_fa": Fraction(1, 10**7),
    "tau_fab": Fraction(1, 10**6),
    "omega_fa": 0,
    "omega_fab": 0,
    "kappa_fa": 0,
    "phi_fa": 0,
    "sigma_fab": 0,
    "eta_mem": Fraction(4, 5),
    "eta_permute": Fraction(2, 5),
    "eta_ce": Fraction(1, 5),
    "t_mem": Fraction(1, 10**5),
}
TIMES = ("t_gemm", "t_tile", "tau_fa", "tau_fab", "t_mem")


def at(form: Expr, **changed: Number) -> Fraction:
    return Fraction(form.evaluate({**MACHINE, **changed}))


def product(m: int, n: int, k: int, **given: Any) -> Expr:
    return curves.gemm(m, n, k, **({"kind": "forward", "width_in": 2, "width_out": 2, "peak": PEAK} | given))


def flash(b: int, heads: int, s: int, d_qk: int = 128, d_v: int = 128, **given: Any) -> Expr:
    return curves.attention(b, heads, s, s, d_qk, d_v, **({"causal": True, "backward": False, "peak": PEAK, "moved": 0} | given))


def test_product_bound_by_compute() -> None:
    m, n, k = 1280, 2560, 4096
    compute = Fraction(2 * m * n * k, 10**12) / Fraction(1, 2)
    memory = Fraction(2 * (m * k + k * n + m * n), 8 * 10**9)
    assert compute > memory
    assert at(product(m, n, k)) == compute + memory / 4 + Fraction(1, 10**6)


def test_product_bound_by_memory_reads_and_writes_its_main_gradient() -> None:
    m, n, k = 1280, 1280, 1
    compute = Fraction(2 * m * n * k, 10**12) / Fraction(1, 2)
    memory = Fraction(2 * (m + n) + 2 * 4 * m * n, 8 * 10**9)
    assert memory > compute
    assert at(product(m, n, k, kind="wgrad", width_out=4)) == memory + compute / 4 + Fraction(1, 10**6)


def test_partial_tiles_and_idle_multiprocessors_cost_as_full_ones() -> None:
    free = {"phi_gemm": 0, "t_gemm": 0, "B_hbm": 10**15}
    # 3 x 2 tiles are cut, so that none of ten multiprocessors is idle; one is not cut into more than four
    assert at(product(330, 200, 64), **free) == Fraction(2 * 128 * 128 * 64 * 6, 10**12) / Fraction(1, 2)
    assert at(product(100, 100, 64), **free) == Fraction(2 * 64 * 64 * 64 * 10, 10**12) / Fraction(1, 2)
    # 5 x 4 tiles go twice around
    assert at(product(600, 500, 64), **free) == Fraction(2 * 128 * 128 * 64 * 20, 10**12) / Fraction(1, 2)


def test_tiles_start_and_end() -> None:
    """Each takes its multiprocessor a time in which it multiplies nothing, in groups too, and each has one; an ideal machine has no tiles."""
    tile = {"t_tile": Fraction(1, 1000)}
    free: dict[str, Number] = {"phi_gemm": 0, "phi_group": 0, "B_hbm": 10**15}
    for form, tiles in ((product(600, 500, 64), 20), (product(256, 256, 4096, groups=16), 64), (product(100, 100, 64), 10)):
        assert at(form, **free, **tile) - at(form, **free) == Fraction(tiles, 10) / 1000
    assert at(product(600, 500, 64, tiled=False), **tile) == at(product(600, 500, 64, tiled=False))


def test_rows_of_a_product_come_in_halves_of_a_tile() -> None:
    """Not those of groups, which have whole tiles."""
    free: dict[str, Number] = {"phi_gemm": 0, "phi_group": 0, "t_gemm": 0, "B_hbm": 10**15}
    for groups, tiles in ((1, [Fraction(1, 2), Fraction(1, 2), 1, Fraction(3, 2), 2]), (4, [1, 1, 1, 2, 2])):
        full = at(product(128, 12800, 4096, groups=groups), **free)
        assert [at(product(m, 12800, 4096, groups=groups), **free) / full for m in (1, 64, 65, 129, 193)] == tiles


def test_backward_sums_the_gradients_of_queries_apart() -> None:
    """Reads results and their gradients, sets sums in fp32 to nought, and takes them to 16 bits, all at the bandwidth."""
    form, forward = (flash(2, 8, 512, backward=backward) for backward in (True, False))
    rows = 2 * 8 * 512
    assert at(form, sigma_fab=1) - at(form) == rows * 128 * Fraction((2 + 2) + 4 + (4 + 2), 8 * 10**9)
    assert at(forward, sigma_fab=1) == at(forward)


def test_groups_have_coefficients_of_their_own() -> None:
    m, n, k, groups = 128, 1280, 4096, 16
    compute = Fraction(groups * 2 * m * n * k, 10**12) / Fraction(1, 4)
    memory = groups * Fraction(2 * (m * k + k * n + m * n), 8 * 10**9)
    expected = max(compute, memory) + min(compute, memory) / 2 + Fraction(1, 10**6)
    assert at(product(m, n, k, groups=groups)) == expected
    assert product(m, n, k, groups=1, grouped=True) != product(m, n, k, groups=1)


@pytest.mark.parametrize("backward", (False, True))
@pytest.mark.parametrize("causal", (False, True))
def test_attention_of_many_heads(causal: bool, backward: bool) -> None:
    b, heads, s, d = 2, 64, 1024, 128
    products = 5 * 2 * d if backward else 2 * 2 * d
    work = Fraction(b * heads * s * s * products, 10**12) / (Fraction(1, 4) if backward else Fraction(1, 2)) / (2 if causal else 1)
    walk = s * (Fraction(1, 10**6) if backward else Fraction(1, 10**7))
    assert work > walk
    assert at(flash(b, heads, s, causal=causal, backward=backward)) == work + walk / 2


def test_attention_of_few_heads_is_one_walk() -> None:
    assert at(flash(1, 1, 512), tau_fa=Fraction(1, 1000)) == Fraction(512, 1000)
    assert at(flash(1, 1, 512, backward=True), tau_fab=Fraction(1, 1000)) == Fraction(512, 1000)


def test_forward_walks_along_keys_and_backward_along_queries() -> None:
    def few(backward: bool) -> Expr:
        return curves.attention(1, 1, 100, 400, 64, 64, causal=False, backward=backward, peak=PEAK, moved=0)

    assert at(few(False), tau_fa=1) == 400
    assert at(few(True), tau_fab=1) == 100


def test_heads_of_two_sizes() -> None:
    long = {"tau_fa": 0, "tau_fab": 0}
    even = Fraction(16 * 1024**2 * 2 * (192 + 128), 2 * 10**12) * 2
    assert at(flash(1, 16, 1024, 192, 128), **long) == even * (1 + Fraction(1, 2) * (Fraction(192, 128) - 1))
    assert at(flash(1, 16, 1024, 192, 128), zeta_fa=0, **long) == even
    # dV and dP take d_v, S, dQ and dK take d_qk
    assert at(flash(1, 16, 1024, 192, 128, backward=True), zeta_fa=0, **long) == Fraction(16 * 1024**2 * 2 * (3 * 192 + 2 * 128), 2 * 10**12) * 4


def test_small_heads_take_the_time_of_their_softmax_too() -> None:
    """Of 128 and more none; at 64 half the products take 1 + omega times as long; of two sizes their mean counts."""
    long: dict[str, Number] = {"tau_fa": 0, "tau_fab": 0}
    softmax: dict[str, Number] = {"omega_fa": Fraction(2, 5), "omega_fab": Fraction(1, 5)}
    for d in (128, 192, 256):
        assert at(flash(1, 16, 1024, d, d), **long, **softmax) == at(flash(1, 16, 1024, d, d), **long)
    whole = at(flash(1, 16, 1024), **long)
    assert at(flash(1, 16, 1024, 64, 64), **long, **softmax) == whole / 2 * Fraction(7, 5)
    assert at(flash(1, 16, 1024, 32, 32), **long, **softmax) == whole / 4 * (1 + 3 * Fraction(2, 5))
    assert at(flash(1, 16, 1024, 64, 64, backward=True), **long, **softmax) == at(flash(1, 16, 1024, backward=True), **long) / 2 * Fraction(6, 5)
    narrow = Fraction(160, 256) * (1 + Fraction(2, 5) * (Fraction(256, 160) - 1))
    assert at(flash(1, 16, 1024, 96, 64), zeta_fa=0, **long, **softmax) == whole * narrow


def test_a_mask_costs_the_tiles_on_its_edge() -> None:
    long: dict[str, Number] = {"tau_fa": 0, "tau_fab": 0, "kappa_fa": 256}
    whole = at(flash(1, 16, 4096, causal=False), **long)
    assert whole == at(flash(1, 16, 4096, causal=False), tau_fa=0)
    assert at(flash(1, 16, 4096), **long) == whole * Fraction(4096 + 256, 2 * 4096)
    # a window has an edge more; one as long as the row is a causal mask; never more than no mask at all
    assert at(flash(1, 16, 4096, window=128), **long) == whole * Fraction((128 + 256) * (2 * 4096 - 128), 2 * 4096**2)
    assert at(flash(1, 16, 4096, window=4096), **long) == at(flash(1, 16, 4096), **long)
    assert at(flash(1, 16, 200), **long) == at(flash(1, 16, 200, causal=False), **long)


def test_a_window_is_a_short_walk() -> None:
    assert at(flash(1, 1, 4096, window=128), tau_fa=1, kappa_fa=256) == 128 + 256
    assert at(flash(1, 1, 4096, window=128, backward=True), tau_fab=1, kappa_fa=256) == 128 + 256
    assert at(flash(1, 1, 4096, window=4096), tau_fa=1, kappa_fa=256) == 4096


def test_attention_hides_a_share_of_what_it_moves() -> None:
    long: dict[str, Number] = {"tau_fa": 0, "phi_fa": Fraction(1, 3)}
    compute = at(flash(1, 64, 1024), tau_fa=0)
    assert at(flash(1, 64, 1024, moved=8 * 10**6), **long) == compute + Fraction(1, 3) / 1000
    # bound by memory: 8e10 bytes at 8e9 byte/s
    assert at(flash(1, 64, 1024, moved=8 * 10**10), **long) == 10 + compute / 3
    moved = curves.attention_bytes(2, 64, 8, 1024, 512, 256, backward=False)
    assert moved == 2 * 256 * 2 * (64 * 1024 + 8 * 512)
    assert curves.attention_bytes(2, 64, 8, 1024, 512, 256, backward=True) == 2 * moved


def test_gradients_of_shared_keys_are_summed_in_a_pass_of_its_own() -> None:
    """In FP8 backward: written head by head in fp32, and read; nothing hides them."""
    summed = curves.summed_bytes(2, 64, 512, 256)
    assert summed == 2 * 64 * 512 * 256 * (4 + 4)
    alone = at(flash(2, 64, 512, backward=True))
    assert at(flash(2, 64, 512, backward=True, summed=8 * 10**9)) == alone + 1  # at 8e9 byte/s


@pytest.mark.parametrize(("fp8", "shared"), [("mxfp8,fp8_dot_product_attention=true", True), ("mxfp8", False)])
def test_of_a_step_too(fp8: str, shared: bool) -> None:
    model = symsim.load_model("llama3-8b")
    whole = model.model_dump() | {"name": "whole"}
    whole["attention"] |= {"num_query_groups": 32}
    # what else is moved is hidden
    times = []
    for one in (model, Architecture.model_validate(whole)):
        result = symsim.derive(one, f"fp8={fp8}", system="gb300-nvl72", overrides={"phi_fa": 0})
        name = next(n for n in result.derivation.definitions if re.fullmatch(r"t_b_.*attention_core(_backward)?", n))
        times.append(float(result.value(name)))
    bytes = 8 * 32 * 4096 * 2 * 128 if shared else 0
    assert times[0] - times[1] == pytest.approx(bytes / (8e12 * 0.715), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind, share", [("elementwise", "eta_mem"), ("permute", "eta_permute"), ("cross_entropy", "eta_ce")])
def test_memory_bound(kind: str, share: str) -> None:
    expected = Fraction(10**6, 10**10) / Fraction(MACHINE[share]) + Fraction(1, 10**5)
    assert at(curves.memory_bound(10**6, kind=kind)) == expected


sizes = st.integers(1, 5000)


def halved() -> Mapping[str, Number]:
    """A machine twice as fast in everything."""
    faster = {name: MACHINE[name] * 2 for name in ("Phi_bf16", "B_hbm")}
    return faster | {name: Fraction(MACHINE[name]) / 2 for name in TIMES}


@given(sizes, sizes, sizes, st.integers(1, 64), st.sampled_from(("forward", "wgrad")))
def test_products_are_seconds_and_grow_with_every_size(m: int, n: int, k: int, groups: int, kind: str) -> None:
    now = at(product(m, n, k, groups=groups, kind=kind))
    assert at(product(m, n, k, groups=groups, kind=kind), **halved()) == now / 2
    for larger in (product(m + 1, n, k, groups=groups, kind=kind), product(m, n + 1, k, groups=groups, kind=kind)):
        assert at(larger) >= now
    assert at(product(m, n, k + 1, groups=groups, kind=kind)) > now
    if groups > 1:
        assert at(product(m, n, k, groups=groups + 1, kind=kind)) >= now


@given(st.integers(1, 4), st.integers(1, 128), sizes, st.integers(1, 256), st.integers(1, 256), st.booleans(), st.booleans())
def test_attention_is_seconds_and_grows_with_heads_and_keys(b: int, heads: int, s: int, d_qk: int, d_v: int, causal: bool, backward: bool) -> None:
    given: dict[str, Any] = {"causal": causal, "backward": backward, "moved": 10**6}
    now = at(flash(b, heads, s, d_qk, d_v, **given))
    assert at(flash(b, heads, s, d_qk, d_v, **given), **halved()) == now / 2
    assert at(flash(b, heads + 1, s, d_qk, d_v, **given)) >= now
    assert at(flash(b, heads, s + 1, d_qk, d_v, **given)) > now
    assert at(flash(b, heads, s, d_qk, d_v, **{**given, "causal": False})) >= now


def test_forms_take_symbols() -> None:
    form = curves.gemm(symbol("b") * symbol("s"), symbol("f"), symbol("h"), kind="forward", width_in=2, width_out=2, peak=PEAK)
    assert form.evaluate({**MACHINE, "b": 2, "s": 640, "f": 2560, "h": 4096}) == at(product(1280, 2560, 4096))


def test_attention_in_fp8() -> None:
    """Products take a share of their time in 16 bits; the softmax does not, of heads smaller than 256, as much forward as backward; a window is
    left out backward."""
    shares = {**MACHINE, "psi_fa": 0.5, "psi_fab": 0.75, "omega_fa": 0.6, "omega_fab": 0.2, "tau_fa": 0, "tau_fab": 0, "zeta_fa": 0.5, "phi_fa": 0}

    def seconds(backward: bool, fp8: bool, window: int | None = 128, d: int = 64, d_v: int = 64) -> float:
        form = curves.attention(2, 64, 8192, 8192, d, d_v, causal=True, backward=backward, peak=PEAK, moved=1, window=window, fp8=fp8)
        return float(form.evaluate(shares))

    assert seconds(False, True) == pytest.approx(0.5 * (1 + 3 * 0.6) / (1 + 0.6) * seconds(False, False))
    assert seconds(True, True) == pytest.approx(0.75 * (1 + 3 * 0.6) / (1 + 0.2) * seconds(True, False, None))
    assert seconds(False, True, None, 128, 128) == pytest.approx(0.5 * (1 + 0.6) * seconds(False, False, None, 128, 128))
    assert seconds(False, True, None, 256, 256) == pytest.approx(0.5 * seconds(False, False, None, 256, 256))
    assert seconds(False, True, None, 192, 128) == pytest.approx(0.5 * (1 + 0.6 * 0.6) * seconds(False, False, None, 192, 128) / (1 + 0.5 * 0.5))


def test_every_coefficient_is_in_the_vocabulary_and_in_every_system() -> None:
    places = {(part, key) for part, field in curves.Kernels.model_fields.items() for key in field.annotation.model_fields}  # type: ignore[union-attr]
    assert places == set(curves.SYMBOLS.values())
    assert curves.SYMBOLS.keys() <= SYMBOLS.keys()
    for name in curves.SYMBOLS:
        assert SYMBOLS[name].unit == ("s" if name in TIMES else "1")
    for system in list_systems():
        kernels = load_system(system).kernels
        found = curves.values(kernels)
        given = {name: getattr(getattr(kernels, part), key) for name, (part, key) in curves.SYMBOLS.items()}
        assert found == {name: known.value if known else 0 for name, known in given.items()}
        assert {name for name, known in given.items() if not known} <= set(
            "t_tile omega_fa omega_fab psi_fa psi_fab kappa_fa phi_fa sigma_fab".split()
        )


def test_a_missing_coefficient_is_named() -> None:
    with pytest.raises(InputError, match="gemm"):
        validate(curves.Kernels, {}, "here", Document({}, "here"))
