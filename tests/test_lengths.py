"""Documents of several lengths in a row: closed forms against sums over documents that are drawn, files of lengths, and what a step waits for."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws.pipelines import steps_of

from symsim.algebra.expr import ONE, symbol
from symsim.api.result import derive
from symsim.cost.largest import expected_largest, expected_longest, variance_of_longest
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.grid.api import sweep
from symsim.importers.reading import load_job
from symsim.inputs.architecture import Architecture
from symsim.inputs.lengths import documents
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system
from symsim.pipeline.orders import order, replay
from symsim.pipeline.paces import PACES

SYSTEM = load_system("h100-sxm")
ROW, WINDOW = 16384, 512
DENSE = load_model("llama3-8b").architecture


def made(options: str, model: Architecture = DENSE, system: bool = True, **assumptions: str) -> Evaluation:
    return derive(model, load_strategy(f"seq_length={ROW},{options}"), assumptions, None, SYSTEM if system else None)


@cache
def within(kind: str) -> Architecture:
    """Llama 3 8B whose layers have a window, or chunks, of 512 tokens, or such a window to either side."""
    own = {"window": WINDOW, "chunked": kind == "chunk", "bidirectional": kind == "band"}
    return DENSE.model_copy(update={"layer_kinds": {name: spec.model_copy(update=own) for name, spec in DENSE.layer_kinds.items()}})


def drawn(seed: int) -> list[int]:
    """Documents that fill a row."""
    draw, found = random.Random(seed), []
    while sum(found) < ROW:
        found.append(min(max(1, round(draw.lognormvariate(6.5, 1.1))), ROW - sum(found)))
    return found


def filled(mean: float, cv: float, row: int) -> Any:
    """Squared pieces of rows that lognormal documents are put into one after the other, from the first on, cut where a row ends."""
    sigma, most = math.sqrt(math.log1p(cv**2)), 6 * row // int(mean) + 6
    u = np.minimum(np.random.default_rng(1).lognormal(math.log(mean) - sigma**2 / 2, sigma, (100_000, most)), row)
    before = np.cumsum(u, axis=1) - u
    return (np.clip(row - before, 0, u) ** 2).sum(axis=1)


def written(path: Path, lengths: object) -> str:
    path.write_text(lengths if isinstance(lengths, str) else json.dumps(lengths))
    return f"document_lengths=@{path}"


# attention -----------------------------------------------------------------------------------------------------------------


def pairs(length: int, causal: str, window: int, chunk: int, band: int = 0) -> Fraction:
    """Queries and the keys that they are charged for in one document, counted one by one."""
    if band:
        return Fraction(length**2 if causal != "exact" else sum(min(length, i + band) - max(0, i + 1 - band) for i in range(length)))
    if causal != "exact":
        return Fraction(length * length, 1 if causal == "full" else 2)
    return Fraction(sum(min(i + 1, window, i % chunk + 1) for i in range(length)))


@pytest.mark.parametrize(
    ("reach", "causal"),
    [
        *(("all", "full"), ("all", "half"), ("all", "exact"), ("window", "exact"), ("window", "half"), ("chunk", "exact")),
        *(("band", "exact"), ("band", "half")),
    ],
)
def test_attention_is_the_sum_over_documents(reach: str, causal: str, tmp_path: Path) -> None:
    lengths = drawn(7)
    assert sum(lengths) == ROW and len(set(lengths)) > 5 and max(lengths) > 3 * WINDOW > 9 * min(lengths)
    model = DENSE if reach == "all" else within(reach)
    result = made(written(tmp_path / "row.json", lengths), model, system=False, causal=causal)
    keys = {"window": (WINDOW, ROW), "chunk": (ROW, WINDOW), "band": (ROW, ROW, WINDOW)}.get(reach, (ROW, ROW))
    scores = 4 * 32 * 128 * sum(pairs(u, causal, *keys) for u in lengths)
    assert result.numbers["F_dense_attention_core"] == scores
    equal = made(f"packed_document_length={round(Fraction(ROW, len(lengths)))}", model, system=False, causal=causal)
    assert float(equal.numbers["F_dense_attention_core"]) < 0.95 * scores or reach == "chunk"


def test_seconds_take_the_same_mean(tmp_path: Path) -> None:
    """Flash attention's work is linear in the keys in reach, so that it, too, is a sum over documents; what the beginning of a document lacks
    of its window is taken at the mean reaches, which is 7 % from the sum over these documents."""
    lengths = drawn(3)
    for reach in ("all", "window", "chunk"):
        result = made(written(tmp_path / f"{reach}.json", lengths), DENSE if reach == "all" else within(reach))
        spans = {
            "all": sum(u * u for u in lengths),
            "window": sum(u * min(u, WINDOW) for u in lengths),
            "chunk": sum(u // WINDOW * WINDOW**2 + (u % WINDOW) ** 2 for u in lengths),
        }
        span = Fraction(spans[reach], ROW)
        if reach == "window":
            exact = Fraction(sum(2 * u * min(u, WINDOW) - min(u, WINDOW) ** 2 for u in lengths), ROW)
            span = 2 * span * (1 - span / (2 * Fraction(spans["all"], ROW)))
            assert float(span / exact) == pytest.approx(1.07, abs=0.005)
        values = {**result.values, "tau_fa": 0, "kappa_fa": 0, "B_hbm": 1e30}
        found = result.derivation.definitions["t_f_dense_attention_core"].expr.evaluate(values)
        work = 32 * ROW * span * 4 * 128 / (values["Phi_bf16"] * values["eta_fa"] * 2)
        assert float(found) == pytest.approx(float(work), rel=1e-12)


def test_equal_lengths_are_the_mean() -> None:
    one, other = (made(o).to_json() for o in ("document_lengths=2048", "packed_document_length=2048"))
    for found in (one, other):
        del found["strategy"]
    assert one == other
    assert documents(load_strategy({"document_lengths": 2048})).mean == 2048
    flat = made("document_lengths=lognormal:2048+0")
    assert flat.value("time.step") == made("packed_document_length=2048").value("time.step")


def test_the_formula_says_the_moments() -> None:
    result = made("document_lengths=lognormal:1500+0.8,dp=8")
    assert str(result.formula("n_z").expand()) == "q_u*u + u"
    sizes = {str(s) for s in result.formula("n_z").sympy().free_symbols}
    # a row cuts one in ten thousand
    assert sizes == {"u", "q_u"} and 0.63 < result.values["q_u"] < Fraction(16, 25) and 1499 < result.values["u"] < 1500
    assert {"u", "q_u", "k_u", "rho_u_2_1", "s", "m"} <= set(result.formula("time.step").symbols)
    longest = result.formula("time.step").inline(["u_longest", "xi_rows"])
    named = {d.symbol: set(map(str, d.expr.symbols())) for d in longest.definitions}
    assert named["u_longest"] == {"u", "q_u", "k_u", "b", "s", "xi_rows"} and {"rho_u_2_1", "dp", "m"} <= named["xi_rows"]


def test_a_lognormal_distribution_has_the_moments_of_what_it_draws() -> None:
    lengths = documents(load_strategy("document_lengths=lognormal:1500,0.8"))
    assert lengths is not None
    sigma = math.sqrt(math.log1p(0.64))
    u = np.minimum(np.random.default_rng(0).lognormal(math.log(1500) - sigma**2 / 2, sigma, 4_000_000), 4096)
    weighted = (u**2).mean() / u.mean()
    assert float(lengths.mean) == pytest.approx(u.mean(), rel=2e-3) and lengths.mean < 1490
    assert float(lengths.alone) == pytest.approx((u**4).mean() / (u**2).mean() ** 2 - 1, rel=1e-2)
    assert float(lengths.mean * (1 + lengths.spread)) == pytest.approx(weighted, rel=3e-3)
    work = filled(1500, 0.8, 4096)
    assert float(lengths.further) == pytest.approx(work.var() / work.mean() ** 2 * 4096 / u.mean(), rel=0.02)
    most, rest = np.minimum(u, 1024), u % 1024
    inside = {"u_w": most.mean(), "u_ww": (most**2).mean(), "u_r": rest.mean(), "u_rr": (rest**2).mean()}
    for name, value in lengths.inside(1024).items():
        assert float(value) == pytest.approx(inside[name], rel=2e-3), name


# what a step waits for -----------------------------------------------------------------------------------------------------


def largest(n: int) -> float:
    return float(expected_largest(symbol("n")).evaluate({"n": n}))


def test_the_largest_of_normal_numbers() -> None:
    draws = np.random.default_rng(1).standard_normal((40_000, 96))
    for n in (2, 3, 5, 8, 12, 24, 64, 96):
        assert largest(n) == pytest.approx(draws[:, :n].max(1).mean(), rel=0.025), n
    # 1 / sqrt(pi), and 3 / (2 sqrt(pi)), of which the chord lacks 1.8 %
    assert largest(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-4) and not expected_largest(ONE)
    assert -0.018 < largest(3) / (1.5 / math.sqrt(math.pi)) - 1 < -0.017
    steps = [largest(n) for n in (*range(1, 99), 1000, 10**4, 10**6)]
    assert steps == sorted(steps)


def seconds_at(result: Evaluation, name: str, **lengths: float) -> float:
    """A definition at other lengths than those of the strategy."""
    found = result.formula(name)
    return float(found.value({**{s: float(result.values[s]) for s in found.symbols}, **lengths}))


def attention_at(result: Evaluation, u: float) -> float:
    """Seconds of a micro-batch's attention on a stage of Llama 3 8B, over documents of another mean length."""
    both = ("t_f_dense_attention_core", "t_b_dense_attention_core_backward")
    return DENSE.num_layers / result.strategy.pp * sum(seconds_at(result, name, u=u) for name in both)


def waited(result: Evaluation) -> float:
    return float(result.value("time.exposed.lengths"))


@pytest.mark.long_after(8)
@pytest.mark.parametrize(
    ("mean", "spread", "row", "options", "error", "of_the_wait"),
    [
        (1680, 0.5, 4096, "dp=8,num_microbatches=8,zero=3", 0.01, 0.06),
        (1500, 0.3, 32768, "dp=8,num_microbatches=8", 0.01, 0.05),
        (1500, 0.3, 32768, "dp=8,num_microbatches=8,pp=4", 0.01, 0.05),
        (1500, 0.8, 32768, "dp=8,num_microbatches=8", 0.01, 0.06),
        (1500, 0.8, 32768, "dp=8,num_microbatches=8,pp=4", 0.02, 0.1),
        (1500, 0.8, 16384, "dp=64,num_microbatches=4", 0.02, 0.05),
        (1500, 0.8, 16384, "dp=64,num_microbatches=4,zero=3", 0.02, 0.05),
        (1680, 0.5, 32768, "dp=8,num_microbatches=8,cp=2", 0.01, 0.05),
        (8000, 0.3, 65536, "dp=8,num_microbatches=8", 0.01, 0.08),
        (400, 0.3, 16384, "dp=8,num_microbatches=8", 0.02, 0.25),
        (3000, 0.8, 16384, "dp=16,num_microbatches=8,pp=8", 0.05, 0.11),
        (3000, 0.8, 16384, "dp=16,num_microbatches=64,pp=8", 0.03, 0.08),
        (3000, 0.8, 16384, "num_microbatches=32,pp=16", 0.03, 0.1),
        (3000, 0.8, 16384, "dp=64,num_microbatches=16,pp=2", 0.04, 0.11),
        (3000, 0.8, 16384, "dp=8,num_microbatches=16,pp=4,zero=3", 0.02, 0.05),
        (3000, 0.8, 16384, "dp=8,num_microbatches=16,pp=4,vpp=2", 0.02, 0.12),
        (3000, 0.8, 16384, "num_microbatches=16,pp=4,vpp=4", 0.02, 0.08),
        (3000, 0.8, 16384, "dp=8,num_microbatches=32,pp=8,schedule=gpipe", 0.01, 0.05),
        (3000, 0.8, 16384, "dp=8,num_microbatches=32,pp=8,schedule=zb_h1", 0.02, 0.1),
        (3000, 0.8, 16384, "num_microbatches=32,pp=8,schedule=dualpipe", 0.02, 0.08),
        (3000, 0.8, 16384, "num_microbatches=32,pp=8,vpp=2,schedule=v_min", 0.02, 0.08),
    ],
)
def test_the_step_waits_for_the_longest_rows(mean: int, spread: float, row: int, options: str, error: float, of_the_wait: float) -> None:
    """Attention of a step, against rows that are cut from documents drawn one by one, of which each takes what the kernels' own formulas say: the
    longest replica, and the order of a pipeline of equal stages, replayed. of_the_wait: the error of what is waited beyond the rows' own mean, of
    which the time of attention has a small share."""
    strategy = load_strategy(f"document_lengths=cut:lognormal:{mean}+{spread},seq_length={row},{options}")
    result = derive(DENSE, strategy, None, None, SYSTEM)
    dp, m, waits = strategy.dp, strategy.microbatches, float(result.value("waits")) if strategy.pp > 1 else 0
    keys, own = float(result.values["u"]), 1 + float(result.values["q_u"])
    draw, sigma = np.random.default_rng(2), math.sqrt(math.log1p(spread**2))
    number = dp * m * ((40_000 if strategy.pp == 1 else 200_000) // (dp * m))
    left, squares = np.full(number, float(row)), np.zeros(number)
    # the document that a row begins in is met as much more often as it is long, anywhere
    rest = draw.lognormal(math.log(mean) + sigma**2 / 2, sigma, number) * draw.random(number)
    while left.any():
        squares += np.minimum(left, rest) ** 2
        left -= np.minimum(left, rest)
        rest = draw.lognormal(math.log(mean) - sigma**2 / 2, sigma, number)
    reach = (squares / row).reshape(-1, dp, m)
    grid = np.linspace(reach.min(), reach.max(), 60)
    took = np.interp(reach, grid, [attention_at(result, z / own) for z in grid])
    rest = sum(float(result.value(f"t_{phase}_dense")) for phase in "fiw") * DENSE.num_layers / strategy.pp - attention_at(result, keys)
    each = took.max(1, keepdims=True) if strategy.zero >= 2 else took
    schedule = "interleaved" if strategy.schedule == "1f1b" and strategy.vpp > 1 else strategy.schedule
    steps = steps_of(schedule, rest + each.reshape(-1, m), strategy.pp, strategy.vpp).reshape(len(each), -1)
    simulated = steps.max(1).mean() - (m + waits) * rest
    assert (m + waits) * attention_at(result, keys) + waited(result) == pytest.approx(simulated, rel=error)
    assert waited(result) == pytest.approx(simulated - (m + waits) * took.mean(), rel=of_the_wait)


@pytest.mark.parametrize(("name", "ranks", "chunks"), [("1f1b", 4, 1), ("interleaved", 4, 2), ("zb_h1", 3, 1), ("dualpipe", 4, 1), ("v_half", 4, 2)])
def test_orders_are_replayed_as_elsewhere(name: str, ranks: int, chunks: int) -> None:
    """All steps at once as one after the other."""
    took = np.random.default_rng(4).random((3, 12))
    thirds = {"F": 1, "B": 2, "I": 1, "W": 1}
    for step, replayed in zip(took, steps_of(name, took, ranks, chunks)):
        slots = replay(order(name, ranks, 12, chunks), lambda o: step[o.microbatch] * thirds[o.kind] / 3 / chunks)  # noqa: B023
        assert max(slot.end for slot in slots) == pytest.approx(replayed)


@pytest.mark.parametrize(
    ("name", "chunks", "m", "differ", "error"), [("1f1b", 1, 64, 0.6, 0.06), ("interleaved", 2, 64, 0.6, 0.1), ("interleaved", 4, 64, 0.1, 0.1)]
)
def test_the_pace_of_a_pipeline(name: str, chunks: int, m: int, differ: float, error: float) -> None:
    """Deviations by which lognormal micro-batches make a step longer than equal ones: of interleaved stages those that differ more show."""
    draw, sigma = np.random.default_rng(5), math.sqrt(math.log1p(differ**2))
    took = draw.lognormal(-(sigma**2) / 2, sigma, (2000, m))
    waits = 7 / chunks
    replayed = (steps_of(name, took, 8, chunks).mean() - m - waits) / differ
    sample = np.sort((took.ravel() - 1) / differ)

    def longest_of(n: float) -> float:
        return float(sample @ np.diff((np.arange(len(sample) + 1) / len(sample)) ** n))

    sizes = {"pp": 8, "vpp": chunks, "m": m, "group": 8, "differ": differ}
    paced, pace = (float(e.evaluate(sizes)) for e in PACES[name])
    taken = paced * longest_of(pace) + 2 / 3 * waits * longest_of(1 + 7 / 2 * differ)
    assert taken == pytest.approx(replayed, rel=error)


def test_how_long_a_pipeline_fills() -> None:
    """With the longest of the more micro-batches, the more these differ: attention is a part of what packed ones take, tokens are all of others."""
    options = "pp=8,dp=4,num_microbatches=16"
    packed = made(f"document_lengths=cut:lognormal:3000+0.8,{options}")
    u, kappa = (float(packed.value(name)) for name in ("u", "kappa_rows"))
    longer = attention_at(packed, u * (1 + kappa)) - attention_at(packed, u)
    layers = sum(float(packed.value(f"t_{phase}_dense")) for phase in "fiw") * DENSE.num_layers / 8
    assert float(packed.value("kappa_seconds")) == pytest.approx(longer / layers, rel=1e-9) and 0.02 < longer / layers < kappa / 2
    assert float(packed.value("filling")) == pytest.approx(1 + 7 / 2 * longer / layers)
    free = made(f"document_lengths=lognormal:3000+0.8,padding_free=true,{options}")
    assert float(free.value("filling")) == pytest.approx(1 + 7 / 2 * float(free.value("kappa_tokens")))
    few = made("document_lengths=lognormal:3000+2,padding_free=true,pp=8,dp=4,num_microbatches=4")
    assert float(few.value("filling")) == 4


def test_a_pipeline_of_larger_groups_waits_for_less() -> None:
    """Micro-batches that return from the last rank before they are needed are not waited for: of four chunks a rank a third is left."""
    options = "document_lengths=cut:lognormal:3000+0.8,pp=4,vpp=4,num_microbatches=32"
    assert made(options).value("xi_rows") > 2.5 * made(f"{options},microbatch_group_size_per_vp_stage=8").value("xi_rows") > 0


def longest(result: Evaluation, n: int, added: float, rho: str = "rho_u") -> float:
    """Deviations of the longest of n sums of so many rows."""
    values = {name: float(value) for name, value in result.values.items() if name.startswith(rho)}
    return float(expected_longest(symbol("mean"), symbol("j"), rho).evaluate({**values, "mean": largest(n), "j": added}))


FOUR = {200: 50, 1000: 30, 4000: 15, 8000: 5}


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    ("lengths", "row", "options", "error"),
    [
        # a standard deviation of the logarithm of 0.5, 1 and 1.5
        ("cut:lognormal:1500+0.533", 8192, "", 0.02),
        ("cut:lognormal:1500+0.533", 32768, "", 0.04),
        ("cut:lognormal:1500+1.311", 8192, "", 0.04),
        ("cut:lognormal:3000+1.311", 32768, "", 0.04),
        ("cut:lognormal:1500+2.913", 32768, "", 0.04),
        ("cut:lognormal:100+0.533", 32768, "", 0.04),
        ("cut:four", 16384, "", 0.03),
        ("cut:3000", 8192, "", 0.04),
        ("lognormal:1500+0.533", 32768, "padding_free=true", 0.07),
        ("lognormal:1500+1.311", 32768, "padding_free=true", 0.16),
        ("lognormal:1500+2.5", 16384, "padding_free=true", 0.11),
        ("four", 16384, "padding_free=true", 0.05),
    ],
)
def test_the_longest_of_rows_that_are_drawn(lengths: str, row: int, options: str, error: float, tmp_path: Path) -> None:
    """Of 2 to 512 sums of 1 to 16 rows: attention work, and tokens, which are within 5 % of all. Moments of documents that no row cuts, and a gamma
    distribution of their skewness, would be off by up to 180 %."""
    written(tmp_path / "four.json", json.dumps({str(u): n for u, n in FOUR.items()}))
    told = lengths.replace("four", f"@{tmp_path / 'four.json'}")
    result = derive(DENSE, load_strategy(f"document_lengths={told},seq_length={row},dp=8,{options}".strip(",")), None, None, SYSTEM)
    draw = np.random.default_rng(3)

    def documents_drawn(number: int, met: bool = False) -> Any:
        name = lengths.removeprefix("cut:")
        if name.startswith("lognormal"):
            mean, spread = map(float, name.removeprefix("lognormal:").split("+"))
            sigma2 = math.log1p(spread**2)
            return draw.lognormal(math.log(mean) + (sigma2 if met else -sigma2) / 2, math.sqrt(sigma2), number)
        counts = FOUR if name == "four" else {int(name): 1}
        sizes, weights = np.array(list(counts), dtype=float), np.array(list(counts.values()), dtype=float)
        weights *= sizes if met else 1
        return draw.choice(sizes, number, p=weights / weights.sum())

    def beside(work: Any, rho: str, error: float) -> None:
        # the mean of the largest of n is one of the sample in order, with weights
        work = (work - work.mean()) / work.std()
        for added in (1, 2, 4, 16):
            sums = np.sort(sum(draw.permutation(work) for _ in range(added)) / math.sqrt(added))
            shares = np.arange(len(sums) + 1) / len(sums)
            for n in (2, 8, 64, 512):
                assert longest(result, n, added, rho) == pytest.approx(sums @ np.diff(shares**n), rel=error, abs=0.01), (added, n)

    number = 200_000
    if options:
        tokens = np.minimum(documents_drawn(number), row)
        assert float(result.values["s"]) == pytest.approx(tokens.mean(), rel=0.01)
        most = np.minimum(documents_drawn(4_000_000), row)
        assert float(result.values["k_u"]) == pytest.approx((most**4).mean() / (most**2).mean() ** 2 - 1, rel=0.03)
        beside(tokens, "rho_t", 0.05)
        beside(tokens**2, "rho_u", error)
        return
    left, squares = np.full(number, float(row)), np.zeros(number)
    rest = documents_drawn(number, met=True) * draw.random(number)
    while left.any():
        squares += np.minimum(left, rest) ** 2
        left -= np.minimum(left, rest)
        rest = documents_drawn(number)
    beside(squares, "rho_u", error)


def test_of_more_ranks_than_coefficients_are_for() -> None:
    """Of more than 4,096 the longest is that of 4,096."""
    found = [made(f"document_lengths=cut:lognormal:1500+1.311,dp={dp},zero=3").value("xi_rows") for dp in (8, 4096, 2**14)]
    assert found[0] < found[1] == pytest.approx(found[2])


def test_how_much_the_longest_varies_ends_with_the_coefficients_too() -> None:
    """Of so many micro-batches that four times as many are beyond them: a replica's step varies by more than its own micro-batches do."""
    options = "document_lengths=lognormal:1000+0.5,dp=128,ep=64,etp=1,pp=3,schedule=gpipe,num_microbatches="
    model, found = load_model("deepseek-v2-lite").architecture, []
    for m in (16, 64, 256):
        found.append(float(derive(model, load_strategy(f"{options}{m}"), system=SYSTEM).value("kappa_rows_apart")) ** 2 / m)
    assert found[0] > found[1] > 1.05 * found[2]


def test_rows_that_are_rarely_short_have_a_deviation(tmp_path: Path) -> None:
    """Left-skewed: the coefficient that stands for their skewness would make a covariance of a sum with its own largest part negative."""
    lengths = written(tmp_path / "lengths.json", [4000] * 9 + [300])
    options = f"{lengths},padding_free=true,dp=128,ep=64,etp=1,pp=3,schedule=gpipe,num_microbatches=1"
    result = derive(load_model("deepseek-v2-lite").architecture, load_strategy(options), system=SYSTEM)
    assert result.values["rho_u_2_1"] < -1 and 0 < float(result.value("kappa_rows_apart")) < 1


def test_the_variance_of_the_longest() -> None:
    """Of normal numbers, and of exponential ones, whose largest of n lies 1 + 1/2 + .. + 1/n high and has the variance 1 + 1/4 + .. + 1/n^2."""

    def derived(*of: float) -> float:
        return float(variance_of_longest(*map(symbol, "xyz")).evaluate(dict(zip("xyz", of))))

    for n, variance in ((1, 1), (2, 1 - 1 / math.pi), (8, 0.3729), (64, 0.2035)):
        assert derived(*(largest(k * n) for k in (1, 2, 4))) == pytest.approx(variance, rel=0.06)
    for n in (1, 4, 64):
        largest_of = (sum(1 / k for k in range(1, c * n + 1)) for c in (1, 2, 4))
        assert derived(*largest_of) == pytest.approx(sum(1 / k**2 for k in range(1, n + 1)), rel=0.05)


def test_who_waits_for_whom() -> None:
    """At the end of a step for sums of its micro-batches; where parameters are gathered in every layer for each of them; balanced rows for none."""
    options = "document_lengths=lognormal:1500+0.5,dp=16,num_microbatches=9"
    result = made(options)
    kappa, work = float(result.value("kappa_rows")), filled(1500, 0.5, ROW)
    assert kappa == pytest.approx(work.std() / work.mean(), rel=0.01)

    def longer(deviations: float) -> float:
        return 9 * (attention_at(result, 1500 * (1 + kappa * deviations)) - attention_at(result, 1500))

    assert waited(result) == pytest.approx(longer(longest(result, 16, 9) / 3), rel=1e-3)
    sharded = made(options + ",zero=3")
    assert waited(sharded) == pytest.approx(longer(longest(result, 16, 1)), rel=1e-3)
    balanced = made(options, row_balance="balanced")
    assert balanced.value("time.step") == pytest.approx(result.value("time.step") - result.value("time.exposed.lengths"))
    assert "lengths" not in balanced.to_json()["time"]["exposed"]
    # no row is more than one document
    alone = made("document_lengths=lognormal:8000+1,dp=512")
    u, own = float(alone.values["u"]), 1 + float(alone.values["q_u"])
    assert 7000 < u < 7600 and waited(alone) == pytest.approx(attention_at(alone, ROW / own) - attention_at(alone, u))


def test_a_floor_does_not_grow_with_the_longest_rows() -> None:
    """Attention's backward takes no less than a walk along the row, of short documents as well as of those a little longer."""
    result = made("document_lengths=lognormal:300+0.3,dp=8,num_microbatches=4")
    names = ("t_f_dense_attention_core", "t_b_dense_attention_core_backward")
    forward, backward = (float(result.value(f"{name}_longest") - result.value(name)) for name in names)
    assert backward == 0 and float(result.value(names[1])) > ROW * SYSTEM.kernels.attention.query.value
    assert forward > 0 and waited(result) == pytest.approx(4 * DENSE.num_layers * forward)


def test_all_that_follows_from_the_lengths_of_rows_takes_longer() -> None:
    """No list says which: of packed rows attention over whole documents, of rows without padding all kernels, but no message of parameters."""

    def longer(options: str, model: Architecture = DENSE) -> set[str]:
        found = made(f"document_lengths=lognormal:1500+0.5,dp=8,num_microbatches=4,{options}", model).derivation.definitions.values()
        return {d.key.operation for d in found if d.key.longest and d.key.scope == "block"} - {""}

    packed = {"attention.core"}
    assert longer("zero=1") == packed and longer("recompute=full") == packed
    assert longer("zero=1", within("window")) == longer("zero=1", within("chunk")) == set()
    assert packed | {"attention.qkv", "mlp.gate_up", "pre_mlp_norm"} < longer("padding_free=true")
    assert "attention.core" not in longer("mlp_padding_free=true,micro_batch_size=4") > {"mlp.gate_up", "pre_mlp_norm"}
    sharded = made("document_lengths=lognormal:1500+0.5,dp=8,padding_free=true,zero=3").derivation.definitions
    assert "t_stage_longest" in sharded and "c_f_fsdp_stage" in sharded and "c_f_fsdp_stage_longest" not in sharded


def test_a_ring_hides_more_beside_longer_rows() -> None:
    """What of its messages attention does not hide is less where attention takes longer, and the step waits for the rest alone."""
    result = made("document_lengths=lognormal:6000+0.4,dp=8,cp=16")

    def longer(name: str) -> float:
        return float(result.value(f"{name}_longest") - result.value(name))

    shown = longer("e_f_dense_cp") + longer("e_b_dense_cp")
    kernels = longer("t_f_dense_attention_core") + longer("t_b_dense_attention_core_backward")
    assert shown == pytest.approx(-kernels * 15 / 16, rel=0.02)
    assert 0 < waited(result) == pytest.approx(DENSE.num_layers * (kernels + shown))


def test_no_step_is_shorter_for_its_longest_rows() -> None:
    """Parameters are gathered beside kernels, and so is what a ring sends, so that longer ones would hide more than they take."""
    result = made("document_lengths=lognormal:1000+0.5,dp=8,cp=16,zero=3,num_microbatches=1")
    assert result.value("t_slow_longest") < result.value("t_slow") and waited(result) == 0


def test_experts_bring_replicas_together() -> None:
    options = load_strategy("document_lengths=lognormal:1000+0.5,dp=16,ep=8,num_microbatches=4")
    result = derive(load_model("mixtral-8x7b").architecture, options, None, None, SYSTEM)
    work = filled(1000, 0.5, 4096)
    # of two times eight ranks: each eight wait in each of four micro-batches, the two at the end
    waits = np.random.default_rng(2).choice((work - work.mean()) / work.std(), (20_000, 2, 4, 8)).max(axis=3).sum(axis=2).max(axis=1) / 4
    assert float(result.value("xi_rows")) == pytest.approx(waits.mean(), rel=0.02)
    u, kappa, xi = (float(result.value(name)) for name in ("u", "kappa_rows", "xi_rows"))
    assert float(result.value("u_longest")) == pytest.approx(u * (1 + kappa * xi))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb_h1", "dualpipe", "interleaved", "dualpipev"])
def test_what_equal_stages_wait(schedule: str) -> None:
    """The closed form of the bubble where a stage's forward and its two gradients each take a third of a micro-batch, and messages nothing: of
    DualPipe pp/2 - 1 times a forward beside a backward and a backward, less three weight gradients; in a V pp - 1 times the half of that."""
    vpp = {"interleaved": ",vpp=2", "dualpipev": ",vpp=2"}.get(schedule, "")
    named = "" if schedule == "interleaved" else f",schedule={schedule}"
    result = made(f"document_lengths=lognormal:1000+0.5,pp=4,dp=2,num_microbatches=16{vpp}{named}")
    waits = {"1f1b": 3, "gpipe": 3, "zb_h1": 1, "interleaved": Fraction(3, 2), "dualpipe": Fraction(2, 3), "dualpipev": 1}
    assert result.value("waits") == waits[schedule]


def test_rows_without_padding_work_at_the_mean_and_hold_the_longest() -> None:
    """Linear work and messages of rows of the mean length, attention of E[u^2], memory of rows of seq_length."""
    free, mean, longest = (
        derive(DENSE, load_strategy(f"dp=8,num_microbatches=4,{o}"), None, None, SYSTEM)
        for o in (f"seq_length={ROW},document_lengths=lognormal:2048+0.5,padding_free=true", "seq_length=2048", f"seq_length={ROW}")
    )
    assert free.value("memory.peak") == longest.value("memory.peak") > 2 * mean.value("memory.peak")
    assert free.stage_numbers(free.stages[0])["A_stage"] == longest.stage_numbers(longest.stages[0])["A_stage"]
    # a row holds no more of a document than fits
    tokens = free.values["u"]
    assert 2047 < tokens < 2048 and tokens == free.values["s"]
    for name in ("F_dense_mlp_gate_up", "F_dense_attention_qkv", "F_head"):
        assert free.value(name) == mean.value(name) * tokens / 2048
    weighted = tokens**2 * (1 + free.values["q_u"]) / 2048**2
    assert free.value("F_dense_attention_core") == mean.value("F_dense_attention_core") * weighted and 1.24 < weighted < 1.25
    equal = made("dp=8,num_microbatches=4,document_lengths=2048,padding_free=true")
    assert equal.value("time.step") == mean.value("time.step") and equal.value("memory.peak") == longest.value("memory.peak")
    tokens *= 8 * 4
    assert float(free.value("tokens_per_second")) == pytest.approx(tokens / float(free.value("time.step")))
    assert str(free.formula("memory.peak").expand()).count("s_max") and "s_max" in free.values
    with pytest.raises(InputError, match="padding_free=true needs the lengths"):
        made("padding_free=true")


def test_rows_without_padding_wait_for_the_longest(tmp_path: Path) -> None:
    """Against rows drawn one by one, each a document, of which each micro-batch takes what the kernels' own formulas say."""
    lengths = [min(u, 4096) for u in drawn(1) + drawn(2) + drawn(4)]
    options = f"{written(tmp_path / 'rows.json', lengths)},padding_free=true,dp=16,num_microbatches=8,micro_batch_size=4"
    result = made(options)
    of_tokens, of_pairs = (1 + float(result.value(f"xi_{name}") * result.value(f"kappa_{name}")) for name in ("tokens", "rows"))
    s, keys = (float(result.value(f"{name}_longest") / result.values[name]) for name in ("s", "u"))
    assert s == pytest.approx(of_tokens) and s * keys == pytest.approx(of_pairs)
    u = np.random.default_rng(5).choice(lengths, (4000, 16, 8, 4)).astype(float)
    spread = float(result.values["q_u"])
    tokens, keys = u.mean(3), (u**2).mean(3) / u.mean(3)
    rows, reach = (np.geomspace(x.min(), x.max(), 30) for x in (tokens, keys))
    table = np.array([[seconds_at(result, "t_slow", s=s, u=z / (1 + spread)) for z in reach] for s in rows])
    at, side = np.interp(np.log(tokens), np.log(rows), np.arange(30)), np.interp(np.log(keys), np.log(reach), np.arange(30))
    i, j = np.minimum(at.astype(int), 28), np.minimum(side.astype(int), 28)
    at, side = at - i, side - j
    lower, upper = ((1 - side) * table[k, j] + side * table[k, j + 1] for k in (i, i + 1))
    simulated = ((1 - at) * lower + at * upper).sum(2).max(1).mean()
    found = 8 * float(result.value("t_slow")) + waited(result)
    assert found == pytest.approx(simulated, rel=0.05) and found > 1.1 * 8 * float(result.value("t_slow"))


def test_networks_of_padded_rows_work_on_their_tokens_alone() -> None:
    """Networks of b u tokens, the rest of b s (mcore-bridge transformer_layer.py: norm, network and addition behind attention)."""
    options, row, tokens = "dp=8,num_microbatches=4,micro_batch_size=4,document_lengths=lognormal:2048+0.3,mlp_padding_free=true", 4 * ROW, 4 * 2048
    packed = made(options)
    whole = derive(DENSE, load_strategy(f"dp=8,num_microbatches=4,micro_batch_size=4,seq_length={ROW}"), None, None, SYSTEM)
    for name in ("F_dense_mlp_gate_up", "F_dense_mlp_down_proj"):
        assert packed.value(name) * row == whole.value(name) * tokens
    for name in ("F_dense_attention_qkv", "F_dense_attention_core", "F_head"):
        assert packed.value(name) == whole.value(name)
    h, f, layers = DENSE.hidden_size, DENSE.mlp.ffn_hidden_size if DENSE.mlp else 0, DENSE.num_layers
    # the input of the norm, what it makes, both halves of the width and their product, all in 16 bits, and a scale a token in fp32; four indices
    each = 2 * (h + h + 2 * f + f) + 4
    saved = [r.stage_numbers(r.stages[0])["A_stage"] for r in (packed, whole)]
    assert saved[1] - saved[0] == layers * ((row - tokens) * each - tokens * 4 * 8)


def test_networks_of_full_rows_have_nothing_to_leave_out() -> None:
    full, whole = (
        derive(DENSE, load_strategy(f"tp=2,sp=true,micro_batch_size=4,seq_length={ROW}{o}"), None, None, SYSTEM)
        for o in (f",document_lengths={ROW},mlp_padding_free=true", "")
    )
    assert full.to_json()["time"] == whole.to_json()["time"] and full.value("memory.peak") == whole.value("memory.peak")


def test_sequence_parallelism_gathers_what_padding_is_left_out_of() -> None:
    """Two gathers a layer each way, of b s tokens and of b u: what padding is left out of, and what is padded again. Nothing is summed
    (TransformerLayer.forward, tensor_parallel_output_grad=False)."""
    kinds = [(phase, op) for phase in ("forward", "backward") for op in ("all_gather", "reduce_scatter")]
    moved = {}
    for packed in ("true", "false"):
        result = made(f"tp=2,sp=true,micro_batch_size=4,document_lengths=2048,mlp_padding_free={packed}")
        rows = [m for m in result.to_json()["messages"] if m["axis"] == "tp" and m["per"] == "microbatch"]
        moved[packed] = {kind: sum(m["count"] * m["recv_bytes"] for m in rows if (m["phase"], m["op"]) == kind) for kind in kinds}
    # of the network itself: its input, again for backward, and its result's gradient are gathered, its result and input's gradient summed
    fewer, whole, short, each = 2048 - ROW, ROW, 2048, DENSE.num_layers * 4 * DENSE.hidden_size * 2
    for kind, tokens in zip(kinds, (fewer + whole + short, fewer / 2, 2 * fewer + whole + short, fewer / 2), strict=True):
        assert moved["true"][kind] - moved["false"][kind] == tokens * each, kind


def test_experts_of_padded_rows_get_their_tokens_alone() -> None:
    model = load_model("mixtral-8x7b").architecture
    options = "ep=8,dp=8,micro_batch_size=4,seq_length=8192"
    for dispatcher in ("alltoall", "allgather", "flex"):
        more = f",moe_token_dispatcher_type={dispatcher}"
        packed = derive(model, load_strategy(f"{options}{more},document_lengths=2048,mlp_padding_free=true"), None, None, SYSTEM)
        whole = derive(model, load_strategy(options + more), None, None, SYSTEM)
        for name in ("F_moe_moe_gate_router", "F_moe_moe_experts_fc1"):
            assert packed.value(name) * 4 == whole.value(name), (dispatcher, name)


def test_networks_of_padded_rows_wait_for_the_longest(tmp_path: Path) -> None:
    """Against rows drawn one by one: kernels of networks take what their formulas say of the tokens of their rows, and nothing else differs."""
    lengths = [min(u, 4096) for u in drawn(1) + drawn(2) + drawn(4)]
    result = made(f"{written(tmp_path / 'rows.json', lengths)},mlp_padding_free=true,dp=16,num_microbatches=8,micro_batch_size=4")
    all_of_it = float(result.value("t_slow"))
    u = np.random.default_rng(5).choice(lengths, (4000, 16, 8, 4)).astype(float).mean(3)
    grid = np.linspace(u.min(), u.max(), 40)
    simulated = np.interp(u, grid, [seconds_at(result, "t_slow", u=x) for x in grid]).sum(2).max(1).mean()
    found = 8 * all_of_it + waited(result)
    assert found == pytest.approx(simulated, rel=0.01) and found > 1.02 * 8 * all_of_it


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("micro_batch_size=2,mlp_padding_free=true", "mlp_padding_free=true needs the lengths"),
        ("document_lengths=2048,mlp_padding_free=true", "micro_batch_size=1 has one row alone"),
        ("micro_batch_size=2,document_lengths=2048,padding_free=true,mlp_padding_free=true", "set one of them"),
    ],
)
def test_padding_that_networks_cannot_leave_out(options: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(options)


def test_a_grid_has_the_numbers_of_each_point(tmp_path: Path) -> None:
    axes = [f"seq_length={ROW},{2 * ROW}", "dp=3,16"]
    rows = sweep("llama3-8b", axes, written(tmp_path / "row.json", drawn(5)), "h100-sxm")
    assert len(rows) == 4
    for at in range(len(rows)):
        point = ",".join(f"{n}={int(rows.rows[n][at])}" for n in ("seq_length", "dp"))
        one = derive(DENSE, load_strategy(f"{point},document_lengths=@{tmp_path / 'row.json'}"), None, None, SYSTEM)
        assert float(rows.rows["time.step"][at]) == pytest.approx(float(one.value("time.step")), rel=1e-12)
    strategy = "document_lengths=lognormal:700+0.4,padding_free=true,dp=4"
    rows = sweep("llama3-8b", [f"seq_length={ROW},{2 * ROW}", "micro_batch_size=1,3"], strategy, "h100-sxm")
    for at in range(len(rows)):
        point = ",".join(f"{n}={int(rows.rows[n][at])}" for n in ("seq_length", "micro_batch_size"))
        one = derive(DENSE, load_strategy(f"{point},{strategy}"), None, None, SYSTEM)
        for name in ("time.step", "memory.peak"):
            assert float(rows.rows[name][at]) == pytest.approx(float(one.value(name)), rel=1e-12)


# documents that rows cut ------------------------------------------------------------------------------------------------------


def test_rows_cut_the_documents_of_a_stream(tmp_path: Path) -> None:
    """Pieces of documents that begin at any place of a row, one by one."""
    lengths, row, pieces = [3, 5, 5, 9, 17], 7, []
    for u in lengths:
        for start in range(row):
            ends = [start, *range(row, start + u, row), start + u]
            pieces += [b - a for a, b in zip(ends, ends[1:]) if b > a]
    written(tmp_path / "a.json", lengths)
    found = documents(load_strategy({"seq_length": row, "document_lengths": f"cut:@{tmp_path / 'a.json'}"}))
    assert found is not None and found.counted == tuple(sorted(Counter(pieces).items()))
    assert found.mean == Fraction(row * sum(lengths), len(lengths) * row + sum(lengths) - len(lengths))
    equal = documents(load_strategy("seq_length=4096,document_lengths=cut: 1680"))
    assert equal is not None and equal.varied and max(equal.counted)[0] == 1680
    longer = documents(load_strategy("seq_length=4096,document_lengths=cut:100000"))
    assert longer is not None and max(longer.counted)[0] == 4096 and float(longer.mean) > 3900


def test_rows_that_are_cut_differ_as_whole_rows_do(tmp_path: Path) -> None:
    """Variance of a row's squared pieces, over every place of a stream at which a row may begin; ends count half."""
    row = 4000
    for lengths in ([1500], [500, 2600], [30, 7000]):
        found, weights = [], []
        for first in lengths:
            for gone in range(0, first + 1, 10):
                share = (0.5 if gone in (0, first) else 1) * 10 / sum(lengths)
                for work, chance in _rows_begun(first - gone, row, lengths):
                    found.append(work)
                    weights.append(share * chance)
        works, shares = np.array(found, dtype=float), np.array(weights)
        assert shares.sum() == pytest.approx(1)
        mean = shares @ works
        variance = shares @ (works - mean) ** 2
        written(tmp_path / "a.json", lengths)
        cut = documents(load_strategy({"seq_length": row, "document_lengths": f"cut:@{tmp_path / 'a.json'}"}))
        assert cut is not None
        each = row / float(cut.mean)
        assert float(cut.further) == pytest.approx(variance / mean**2 * each, rel=1e-5)


def _rows_begun(first: int, row: int, lengths: list[int]) -> list[tuple[int, float]]:
    """The work of all rows that begin with so many tokens of a document, each with its chance."""
    known: dict[int, dict[int, float]] = {0: {0: 1.0}}

    def of(left: int) -> dict[int, float]:
        if left not in known:
            made: dict[int, float] = {}
            for u in lengths:
                piece = min(u, left)
                for work, chance in of(left - piece).items():
                    made[work + piece**2] = made.get(work + piece**2, 0) + chance / len(lengths)
            known[left] = made
        return known[left]

    piece = min(first, row)
    return [(work + piece**2, chance) for work, chance in of(row - piece).items()]


def test_a_lognormal_distribution_is_cut_at_the_ends_of_rows() -> None:
    """Keys in the reach of a token, exact: E[min(u, s)^2 (s - min(u, s) / 3) + (u - s)+ s^2] / (s E[u])."""
    for text, row in (("1680+0.5", 4096), ("3000+2", 8192)):
        mean, cv = map(float, text.split("+"))
        sigma = math.sqrt(math.log1p(cv * cv))
        u = np.random.default_rng(0).lognormal(math.log(mean) - sigma**2 / 2, sigma, 4_000_000)
        inside = np.minimum(u, row)
        exact = (inside**2 * (row - inside / 3) + (u - inside) * row**2).mean() / (row * u.mean())
        found = documents(load_strategy(f"seq_length={row},document_lengths=cut:lognormal:{text}"))
        assert found is not None and float(found.mean * (1 + found.spread)) == pytest.approx(exact, rel=3e-3)
        assert float(found.mean) == pytest.approx(row * mean / (row + mean), rel=1e-3)
        within = found.inside(1024)
        assert 0 < within["u_w"] < found.mean and within["u_ww"] < found.mean**2 * (1 + found.spread)


def test_rows_too_long_to_cut_for() -> None:
    with pytest.raises(InputError, match="is cut for rows of at most 4,194,304 tokens, not of seq_length=8,388,608"):
        documents(load_strategy("seq_length=8388608,document_lengths=cut:1500"))


def test_a_grid_cuts_documents_for_each_length_of_rows() -> None:
    strategy = "document_lengths=cut:lognormal:3000+0.5,dp=4,zero=1"
    rows = sweep("llama3-8b", ["seq_length=4096,16384", "micro_batch_size=1,3"], strategy, "h100-sxm")
    assert len(rows) == 4
    for at in range(len(rows)):
        point = ",".join(f"{n}={int(rows.rows[n][at])}" for n in ("seq_length", "micro_batch_size"))
        one = derive(DENSE, load_strategy(f"{point},{strategy}"), None, None, SYSTEM)
        assert float(rows.rows["time.step"][at]) == pytest.approx(float(one.value("time.step")), rel=1e-12)


# what is given ---------------------------------------------------------------------------------------------------------------


def test_three_ways_to_write_a_file(tmp_path: Path) -> None:
    listed = documents(load_strategy(written(tmp_path / "a.json", [500, 700, 700, 1000])))
    counted = documents(load_strategy(written(tmp_path / "b.json", '{"500": 1, "1000": 1, "9000": 0,\n "700": 2}')))
    lines = documents(load_strategy(written(tmp_path / "c.txt", "500\n700\n\n700\n1000\n")))
    assert listed is not None and listed.mean == 725 and listed.spread == Fraction(557500, 725**2) - 1
    assert listed.values() == counted.values() == lines.values()  # type: ignore[union-attr]
    alike = documents(load_strategy(written(tmp_path / "d.txt", "512\n512\n")))
    assert alike is not None and not alike.varied and alike.values() == {"u": 512}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no lengths"),
        ("[]", "holds no lengths"),
        ("12\n-3\n", ":2: '-3' is no length of a document"),
        ("12\nabc\n", ":2: 'abc' is no length"),
        ("12\n0\n", ":2: '0' is no length"),
        ("12\n99999999999999999999\n", ":2: '99999999999999999999' is no length"),
        ("[12,\n 3.5]", ":2: '3.5' is no length"),
        ("[12,\n true]", ":2: 'True' is no length"),
        ("[12,\n\n [3]]", ":3: '[3]' is no length"),
        ('{"12": 1,\n "x": 2}', ":2: 'x' is no length"),
        ('{"12": 0}', "holds no lengths"),
        ('{"12": 1,\n "13": -2}', ":2: -2 documents of 13 tokens"),
        ("[12,\n 3", ":2: not JSON"),
        ("[" * 100_000, "is no JSON list of lengths"),
        ("[12,\n 20000]", f":2: a document of 20,000 tokens does not fit into a row of seq_length={ROW}"),
        ("400\n1000000000\n", f":2: a document of 1,000,000,000 tokens does not fit into a row of seq_length={ROW}"),
    ],
)
def test_a_bad_file_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        made(written(tmp_path / "lengths.json", text), system=False)
    assert said in str(raised.value) and "lengths.json" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("document_lengths=@nowhere.json", "nowhere.json: no such file"),
        ("document_lengths=0", "document_lengths takes a length"),
        ("document_lengths=lognormal:1500", "lognormal:MEAN+CV"),
        ("document_lengths=lognormal:1500+1000", "a coefficient of variation from 0 to 100"),
        ("document_lengths=lognormal:1e999999+1", "document_lengths takes a length"),
        ("document_lengths=lognormal:1500+4", "documents that rows cut; give document_lengths=cut:"),
        ("document_lengths=20000", "document_lengths=20000 is longer than the sequence"),
        ("document_lengths=1500,packed_document_length=1500", "give one of them"),
        ("document_lengths=cut:", "document_lengths takes a length"),
        ("document_lengths=cut:@nowhere.json", "nowhere.json: no such file"),
        ("document_lengths=cut:1500,padding_free=true", "one to a row, uncut"),
    ],
)
def test_a_bad_option_is_one_sentence(options: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        made(options, system=False)
    assert said in str(raised.value) and "\n" not in str(raised.value)


# jobs of other systems -------------------------------------------------------------------------------------------------------

SWIFT = ["megatron", "sft", "--packing", "true", "--max_length", "8192", "--group_by_length", "true", "--sequence_packing_scheduler", "dp_balanced"]


@pytest.mark.parametrize(
    ("said", "option", "value"),
    [
        ({}, None, None),
        ({"packed_document_length": "1500"}, "packed_document_length", 1500),
        ({"document_lengths": "lognormal:1500+0.8"}, "document_lengths", "lognormal:1500+0.8"),
    ],
)
def test_a_job_that_packs_has_the_lengths_that_are_said(said: dict[str, str], option: str | None, value: Any, tmp_path: Path) -> None:
    text = "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 8192\nsample_packing: true\ngroup_by_length: true\nmicro_batch_size: 1\n"
    (tmp_path / "a.yaml").write_text(text)
    factory = "model_name_or_path: meta-llama/Meta-Llama-3-8B\ncutoff_len: 8192\nneat_packing: true\ngroup_by_length: true\nfinetuning_type: full\n"
    (tmp_path / "l.yaml").write_text(factory)
    jobs = {
        "packing": load_job("swift", *SWIFT, variables={**said, "world": "8"}),
        "sample_packing": load_job("axolotl", str(tmp_path / "a.yaml"), variables=said),
        "neat_packing": load_job("llama-factory", str(tmp_path / "l.yaml"), variables=said),
    }
    for key, job in jobs.items():
        told = {row.key: row for row in job.rows}
        assert told[key].fate == ("mapped" if option else "derived") and ("document_lengths" in told[key].why) == (option is None), key
        assert told["group_by_length"].to == "assume.row_balance" and job.assumptions["row_balance"] == "balanced"
        assert job.strategy is not None and job.strategy["seq_length"] == 8192
        assert option is None or job.strategy[option] == value
    assert {row.key: row for row in jobs["packing"].rows}["sequence_packing_scheduler"].fate == "mapped"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("megatron sft --micro_batch_size 2", "padding_free"),
        ("megatron sft --micro_batch_size 2 --mlp_padding_free true", "padding_free"),
        ("megatron sft --micro_batch_size 2 --padding_free false", None),
        ("megatron sft --micro_batch_size 2 --padding_free false --mlp_padding_free true", "mlp_padding_free"),
        ("megatron sft --padding_free false", "padding_free"),
        ("swift sft --per_device_train_batch_size 2", None),
        ("swift sft --per_device_train_batch_size 1", "padding_free"),
        ("swift sft --per_device_train_batch_size 2 --padding_free true", "padding_free"),
        ("swift sft --per_device_train_batch_size 2 --packing true", "packing"),
    ],
)
def test_rows_of_an_ms_swift_job(words: str, option: str | None) -> None:
    """Without padding by default under Megatron alone (swift/megatron/arguments/megatron_args.py, base_args/template_args.py)."""
    job = load_job(
        "swift", *words.split(), "--max_length", "8192", variables={"world": "8", "document_lengths": "lognormal:1500+0.8"}, model="llama3-8b"
    )
    found = job.placed()
    assert found.padding_free == (option == "padding_free") and found.mlp_padding_free == (option == "mlp_padding_free")
    assert (found.document_lengths is None) == (option is None)


def test_rows_without_padding_of_a_job(tmp_path: Path) -> None:
    text = "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 8192\nbatch_flattening: true\nmicro_batch_size: 4\n"
    (tmp_path / "a.yaml").write_text(text)
    said = {"document_lengths": "lognormal:1500+0.8"}
    swift = ["megatron", "sft", "--padding_free", "true", "--mlp_padding_free", "true", "--max_length", "8192"]
    for lengths in (said, {}):
        flat = load_job("axolotl", str(tmp_path / "a.yaml"), variables=lengths)
        free = load_job("swift", *swift, variables={**lengths, "world": "8"})
        for job, key in ((flat, "batch_flattening"), (free, "padding_free")):
            told = {row.key: row for row in job.rows}
            assert told[key].fate == ("mapped" if lengths else "derived")
            assert job.strategy is not None and job.strategy.get("padding_free") is (True if lengths else None)
        assert {row.key: row for row in free.rows}["mlp_padding_free"].fate == "no_cost_effect"


@pytest.mark.parametrize(("rows", "lengths", "fate"), [("1", True, "no_cost_effect"), ("2", False, "derived"), ("2", True, "mapped")])
def test_networks_without_padding_are_of_rows_side_by_side(rows: str, lengths: bool, fate: str) -> None:
    """One row of a micro-batch has no padding (mcore-bridge transformer_layer.py)."""
    words = ["megatron", "sft", "--mlp_padding_free", "true", "--max_length", "8192", "--micro_batch_size", rows]
    words += "--padding_free false --tensor_model_parallel_size 2 --sequence_parallel true".split()
    said = {"document_lengths": "lognormal:1500+0.8"} if lengths else {}
    job = load_job("swift", *words, variables={"world": "8", **said}, model="llama3-8b")
    told = {row.key: row for row in job.rows}["mlp_padding_free"]
    assert told.fate == fate and ("document_lengths" in told.why) == (fate == "derived")
    assert job.placed().mlp_padding_free == (fate == "mapped")


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_padded_to_the_longest_of_a_job(tmp_path: Path, rows: int) -> None:
    """One row of a micro-batch is as long as its sample; of two the longer is not known, and no packing is meant."""
    (tmp_path / "a.yaml").write_text(
        f"base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 8192\nmicro_batch_size: {rows}\npad_to_sequence_len: false\n"
    )
    (tmp_path / "l.yaml").write_text(
        f"model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\ncutoff_len: 8192\n"
        f"per_device_train_batch_size: {rows}\npacking: false\n"
    )
    for kind, file, key in (("axolotl", "a.yaml", "pad_to_sequence_len"), ("llama-factory", "l.yaml", "packing")):
        job = load_job(kind, str(tmp_path / file), variables={"document_lengths": "lognormal:1500+0.8"})
        assert {row.key: row.fate for row in job.rows}[key] == ("mapped" if rows == 1 else "derived")
        found = job.strategy or {}
        assert (found.get("padding_free"), found.get("document_lengths")) == ((True, "lognormal:1500+0.8") if rows == 1 else (None, None))


def test_hybrid_context_parallelism_balances_rows() -> None:
    script = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 256 --context-parallel-size 2".split()
    job = load_job("megatron", *script, "--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank", "32")
    told = {row.key.strip("-").replace("-", "_"): row.fate for row in job.rows}
    assert told["hybrid_context_parallel"] == told["max_seqlen_per_dp_cp_rank"] == "mapped" and job.assumptions["row_balance"] == "balanced"
    alone = {row.key: row.fate for row in load_job("megatron", *script, "--max-seqlen-per-dp-cp-rank", "32").rows}
    assert alone["--max-seqlen-per-dp-cp-rank"] == "no_cost_effect"


@pytest.mark.parametrize(
    ("said", "why"),
    [({"document_lengths": "many"}, "document_lengths takes"), ({"document_lengths": "9", "packed_document_length": "9"}, "give one of them")],
)
def test_a_bad_length_of_a_job_is_one_sentence(said: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        load_job("swift", *SWIFT, variables={**said, "world": "8"})


def test_a_file_without_its_sign_is_told_how_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lengths.txt").write_text("100")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="a file stands behind @: document_lengths=@lengths.txt"):
        documents(load_strategy("document_lengths=lengths.txt"))
