"""The C kernel of a plan gives the same bits as the NumPy kernel, and what goes wrong with a compiler stays in one exception."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symsim.grid.axes import parse_axes
from symsim.grid.question import Question, ask, values_of
from symsim.grid.reported import Reported
from symsim.grid.space import Space
from symsim.grid.sweep import Sweep
from symsim.grid.variant import Variant
from symsim.grid.work import Best, Numbering
from symsim.program import c_build, c_kernel, c_source
from symsim.program.base import read_base
from symsim.program.c_kernel import CKernel, CompilerError, compiler
from symsim.program.numpy_kernel import NumpyKernel
from symsim.program.plan import C_LOOP, Plan, make_plan
from symsim.program.program import Program, restricted
from symsim.program.value import Value

Array = np.ndarray

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler here: neither $CC nor cc, gcc or clang answers")

SCHEDULES = ("schedule=1f1b,zb_h1", "zero=0,1,2,3", "tp=1,2,4", "pp=2,4", "dp=1:3", "micro_batch_size=1,3", "num_microbatches=4:40:4")
DENSE = ("llama3-8b", (*SCHEDULES, "seq_length=1024,3000"))
RECOMPUTED = ("recompute=none,full", "tp=1,2", "pp=4,8", "ep=8,16", "dp=8,16,32", "num_microbatches=16:160:16")
EXPERTS = ("deepseek-v3", (*RECOMPUTED, "seq_length=1024:4096:512"))
FASTEST = ask(timed=True, top=10, by="-tokens_per_second/world", fits=True)


@pytest.fixture(autouse=True, scope="module")
def kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled here is kept in a directory of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMSIM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Everything:
    """A sink that keeps every vector that it is given."""

    def __init__(self, length: int, wants: bool = True):
        self.length, self.wants = length, wants
        self.vectors: dict[int, list[Array]] = {}

    def wanted(self, value: Any) -> bool:
        return self.wants

    def __call__(self, vector: int, *outputs: Any) -> None:
        assert vector not in self.vectors
        self.vectors[vector] = [np.array(np.broadcast_to(o, (self.length,))) for o in outputs]


def scanned(kernel: Any, plan: Plan) -> dict[int, list[Array]]:
    sink = Everything(plan.length)
    kernel.scan(0, plan.blocks, sink)
    return sink.vectors


def assert_same(found: dict[int, list[Array]], expected: dict[int, list[Array]]) -> None:
    assert found.keys() == expected.keys()
    for vector, outputs in expected.items():
        for k, output in enumerate(outputs):
            assert found[vector][k].dtype == output.dtype
            np.testing.assert_array_equal(found[vector][k], output, err_msg=f"output {k} of vector {vector}")


def plan_of(sweep: Sweep, variant: Variant, small: int = 8, longest: int = 64) -> Plan:
    """A plan of which little is computed beforehand, so that the kernel does the work."""
    values = values_of(sweep.question, Reported(variant, Program(sweep.space.sizes, small=small)))
    return make_plan(*restricted(values, variant.chosen, small), longest=longest, call=C_LOOP)


def sweep_of(model: str, axes: Sequence[str], question: Question = FASTEST) -> Sweep:
    free, derived = parse_axes(list(axes))
    sweep = Sweep(Space(read_base(model, None, "h100-sxm", []), free, derived), question)
    sweep.prepare()
    return sweep


# models ----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("model, axes", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_whole_grids_are_the_same_bits(model: str, axes: tuple[str, ...]):
    sweep = sweep_of(model, axes)
    assert len(sweep.variants) >= 4
    for variant in sweep.variants:
        plan = plan_of(sweep, variant)
        # before NumPy, which computes some operations beforehand and leaves them in the plan
        found = scanned(CKernel(plan), plan)
        assert_same(found, scanned(NumpyKernel(plan), plan))


@pytest.mark.skipif("clang" in (compiler() or ""), reason="what was vectorised is asked as GCC has it")
def test_every_row_is_vectorised():
    """A loop over a row that is not costs four times as much."""
    sweep = sweep_of(*EXPERTS)
    for variant in sweep.variants[:2]:
        source = CKernel(plan_of(sweep, variant))._function("best")[0].source
        flags = (*c_build._FLAGS, *c_build._OWN_CPU, "-w", "-fopt-info-vec-optimized")
        command = [(compiler() or "").partition(":")[0], *flags, "-x", "c", "-", "-o", os.devnull, "-lm"]
        said = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stderr
        vectorised = {int(line.split(":")[1]) for line in said.splitlines() if "loop vectorized" in line}
        rows = [k for k, line in enumerate(source.splitlines(), 1) if line.strip().startswith("#pragma omp simd")]
        # said of the loop, of its pragma, or of what stands first in it
        assert len(rows) > 2 and [k for k in rows if not {k, k + 1, k + 2} & vectorised] == []


def test_the_best_are_those_of_numpy():
    sweep = sweep_of(*EXPERTS)
    for variant in sweep.variants[::3]:
        plan = plan_of(sweep, variant)
        numbering = Numbering(plan, variant.chosen, sweep.space.sizes)
        kernel = CKernel(plan, 0)
        for count in (1, 10, 1 << 20):
            sink = Best(count)
            sink.begin(numbering, plan.length)
            NumpyKernel(plan, 0).scan(0, plan.blocks, sink)
            values, numbers = kernel.scan_best(0, plan.blocks, count, np.inf, numbering)
            np.testing.assert_array_equal(values, sink.rows()["value"])
            np.testing.assert_array_equal(numbers, sink.rows()["number"])


FRONT = ask(timed=True, pareto="time.step,memory.peak")
SMALL_ONES = ask(timed=True, where=["memory.peak <= 300e9"], everything=True)


@pytest.mark.parametrize("question, wanted", [(FRONT, 2), (SMALL_ONES, 0)], ids=["front", "rows"])
def test_fronts_and_rows_are_those_of_numpy(question: Question, wanted: int):
    grid = ("tp=1,2", "pp=8,16", "ep=8,16", "dp=8,16,32", "num_microbatches=16:800:16", "seq_length=1024:16384:256")
    sweep = sweep_of("deepseek-v3", grid, question)
    work = sweep.work(0)
    plan = work.plan
    numbering = Numbering(plan, work.group.chosen, sweep.space.sizes)
    found = []
    for kernel in (CKernel(plan, wanted=wanted), NumpyKernel(plan)):
        sink = sweep.sink()
        sink.begin(numbering, plan.length)
        kernel.scan(0, plan.blocks, sink)
        rows = sink.rows()
        found.append(list(rows.values()) if isinstance(rows, dict) else [rows[0], *rows[1]])
    assert len(found[0]) == len(found[1]) and len(found[0][0]) > 1
    for own, expected in zip(*found):
        np.testing.assert_array_equal(own, expected)


def test_ties_go_to_the_least_numbers():
    # the peak of memory is the same for many numbers of micro-batches
    axes = ("num_microbatches=8:80:8", "tp=1,2,4", "dp=1,2,3", "micro_batch_size=1:4", "seq_length=1024:6144:1024")
    sweep = sweep_of("llama3-8b", axes, ask(timed=True, top=7, by="memory.peak"))
    variant = sweep.variants[-1]
    assert_ties(plan_of(sweep, variant), variant.chosen, sweep.space.sizes)


def test_ties_of_most_of_a_grid():
    program = Program((6, 50, 40, 30), small=0)
    draw = np.random.default_rng(0)
    x, y = (program.array(draw.uniform(1, 2, shape)) for shape in ((6, 50, 40, 1), (6, 1, 40, 30)))
    level = program.apply("ceil", program.apply("mul", x, y))
    plan = make_plan(program, [level, program.apply("lt", x, y)], longest=100, call=C_LOOP)
    assert_ties(plan, [np.arange(n)[::-1] for n in program.sizes], program.sizes)


def assert_ties(plan: Plan, chosen: Sequence[Array], sizes: Sequence[int]) -> None:
    """The best are right wherever the list ends among points that tie."""
    numbering = Numbering(plan, chosen, sizes)
    values, numbers = everything(plan, numbering)
    ends = np.flatnonzero(values[1:] == values[:-1]) + 1
    kernels = [CKernel(plan, guard) for guard in (None, 0)]
    for count in ends[:: len(ends) // 7]:
        for kernel in kernels:
            found = kernel.scan_best(0, plan.blocks, int(count), np.inf, numbering)
            np.testing.assert_array_equal(found[0], values[:count])
            np.testing.assert_array_equal(found[1], numbers[:count])


def everything(plan: Plan, numbering: Numbering) -> tuple[Array, Array]:
    """All wanted points, the best first, by NumPy and a sort."""
    kept = []
    for vector, (value, wanted) in scanned(NumpyKernel(plan), plan).items():
        places = np.flatnonzero(wanted)
        kept.append((value[places], numbering.numbers(places + vector * plan.length)))
    values, numbers = (np.concatenate(c) for c in zip(*kept))
    order = np.lexsort((numbers, values))
    return values[order], numbers[order]


# programs of every operation -------------------------------------------------------------------------------------------


def random_program(sizes: Sequence[int], seed: int, steps: int = 60) -> tuple[Program, list[Value]]:
    """Positive values over random axes by all operations; outputs: an objective, whether it is wanted, and both kinds again."""
    draw = np.random.default_rng(seed)
    program = Program(sizes, small=0)

    def leaf(truth: bool = False) -> Value:
        shape = [n if draw.random() < 0.4 else 1 for n in sizes]
        data = draw.uniform(0.5, 1.5, shape)
        return program.array(data < 1.2) if truth else program.array(data)

    def one(op: str, *args: Value) -> Value:
        return program.apply(op, *args)

    number, numbers, truths = program.number(1), [leaf() for _ in range(8)], [leaf(True) for _ in range(3)]
    for _ in range(steps):
        a, b = (numbers[int(draw.integers(max(0, len(numbers) - 25), len(numbers)))] for _ in range(2))
        c, d = (truths[int(draw.integers(len(truths)))] for _ in range(2))
        kind = int(draw.integers(18))
        if kind < 5:
            numbers.append(one(("add", "max", "min", "div", "max")[kind], a, b))
        elif kind < 8:
            numbers.append(one("mul", a, leaf()))
        elif kind < 12:
            op = ("ceil", "floor", "log2", "abs")[kind - 8]
            numbers.append(one("add", one(op, one("sub", a, b) if op == "abs" else one("mul", a, program.number(3))), number))
        elif kind == 12:
            numbers.append(one("add", one("mod", one("mul", a, program.number(7)), b), number))
        elif kind == 13:
            numbers.append(one("where", c, a, b))
        elif kind == 14:
            truths.append(one("where", c, d, one("lt", a, b)))
        elif kind == 15:
            truths.append(one("not", c))
        else:
            compared = one(("lt", "le", "eq", "ne")[int(draw.integers(4))], a, b)
            truths.append(one(("and", "or")[kind - 16], compared, c))
    over_all = one("add", numbers[-1], program.array(draw.uniform(0.5, 1.5, sizes)))
    wanted = one("and", one("lt", over_all, one("mul", numbers[-2], program.number(4))), one("and", leaf(True), leaf(True)))
    for axis in range(len(sizes)):
        # conditions over few axes, which run at every depth and over every part of the vector
        own, next_one = (program.array(draw.uniform(0.5, 1.5, [n if a == k else 1 for a, n in enumerate(sizes)])) for k in (axis, axis - 1))
        wanted = one("and", wanted, one("lt", one("mul", own, next_one), program.number(2)))
    return program, [over_all, wanted, numbers[-3], truths[-1], number, leaf(), leaf(True)]


SHAPES = [(3, 5, 4, 11, 70), (2, 3, 4, 3, 2, 5), (7, 37), (3, 2), (1, 1), (40_000,), (2, 3, 5, 1, 2, 3, 9)]


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("least_row", [32, 4])
def test_every_operation_is_the_same_bits(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], least_row: int):
    """Whatever part of a vector is a row: with short ones most operations run in loops of their own."""
    monkeypatch.setattr(c_source, "_LEAST_ROW", least_row)
    program, outputs = random_program(sizes, len(sizes))
    plan = make_plan(program, outputs, longest=100, call=C_LOOP)
    found = scanned(CKernel(plan), plan)
    assert_same(found, scanned(NumpyKernel(plan), plan))


def test_arrays_that_repeat_along_a_row_can_be_spread_later(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(c_source, "_MOST_SPREAD", 0)
    program, outputs = random_program(SHAPES[1], 5)
    plan = make_plan(program, outputs, longest=100, call=C_LOOP)
    kernel = CKernel(plan)
    assert "M[" in kernel.source
    assert_same(scanned(kernel, plan), scanned(NumpyKernel(plan), plan))


def test_remainders_and_depths_at_the_edges():
    x = np.array([0, 1, 1.5, 2, 3, 4, 5, 1023, 1024, 1025, 2.0**40, 2.0**40 + 1, -1, -2.5, 1e300, np.inf])
    y = np.array([1, 2, 3, -3, -1, 0.5, 7, 2.0**30])
    program = Program((len(x), len(y)), small=0)
    over_x, over_y = program.array(x[:, None]), program.array(y[None, :])
    outputs = [program.apply("add", program.apply(op, over_x), program.apply("mul", over_y, program.number(0))) for op in ("log2", "ceil", "floor")]
    plan = make_plan(program, [*outputs, program.apply("mod", over_x, over_y), program.apply("div", over_x, over_y)], longest=64, call=C_LOOP)
    assert_same(scanned(CKernel(plan), plan), scanned(NumpyKernel(plan), plan))


@pytest.mark.parametrize("op", ["max", "min"])
def test_what_is_no_number_stays_none_beside_numbers(op: str):
    x = np.array([np.nan, -np.inf, -1, 0, 2, np.inf])
    program = Program((len(x), 40), small=0)
    over_x, over_y = program.array(x[:, None]), program.array(np.arange(40.0)[None, :])
    nowhere = program.apply("add", over_x, program.apply("mul", over_y, program.number(0)))
    outputs = [program.apply(op, *pair) for one in (over_y, program.number(1)) for pair in ((one, nowhere), (nowhere, one))]
    plan = make_plan(program, outputs, longest=64, call=C_LOOP)
    found = scanned(CKernel(plan), plan)
    assert "at_" + {"max": "least", "min": "most"}[op] + "(D[" in CKernel(plan).source
    assert sum(np.isnan(output).sum() for outputs in found.values() for output in outputs) == 4 * 40
    assert_same(found, scanned(NumpyKernel(plan), plan))


@pytest.mark.parametrize("sizes", [SHAPES[0], SHAPES[1], SHAPES[4], SHAPES[5]], ids=str)
@pytest.mark.parametrize("least_row", [32, 4])
def test_the_best_of_a_random_program(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], least_row: int):
    monkeypatch.setattr(c_source, "_LEAST_ROW", least_row)
    program, outputs = random_program(sizes, 11 + len(sizes))
    plan = make_plan(program, outputs[:2], longest=100, call=C_LOOP)
    # some positions of a larger grid
    chosen = [np.arange(n) * 2 + 1 for n in sizes]
    numbering = Numbering(plan, chosen, [2 * n + 1 for n in sizes])
    kernels = [CKernel(plan, guard) for guard in (None, 0)]
    values, numbers = everything(plan, numbering)
    assert 0 < len(values) < np.prod(sizes) or sizes == (1, 1)
    middle = values[len(values) // 2] if len(values) else 1.0
    for count, worst in [(1, np.inf), (50, np.inf), (3000, np.inf), (1 << 22, np.inf), (50, middle), (1 << 22, middle), (50, -1.0)]:
        expected = int(np.sum(values <= worst))
        for kernel in kernels:
            found = kernel.scan_best(0, plan.blocks, count, float(worst), numbering)
            np.testing.assert_array_equal(found[0], values[: min(count, expected)])
            np.testing.assert_array_equal(found[1], numbers[: min(count, expected)])


def test_parts_of_a_grid_are_its_whole(monkeypatch: pytest.MonkeyPatch):
    """Calls that go on where another stopped, some of them in the middle of a block."""
    program, outputs = random_program(SHAPES[0], 3)
    plan = make_plan(program, outputs, longest=100, call=C_LOOP)
    assert plan.blocks > 3 and plan.loops
    kernel = CKernel(plan)
    expected = scanned(kernel, plan)
    monkeypatch.setattr(c_kernel, "_FILLED_POINTS", 3 * plan.length)
    assert_same(scanned(kernel, plan), expected)
    parts: dict[int, list[Array]] = {}
    for first, last in [(0, 1), (1, 3), (3, plan.blocks)]:
        sink = Everything(plan.length)
        kernel.scan(first, last, sink)
        parts |= sink.vectors
    assert_same(parts, expected)


def test_vectors_without_a_wanted_point_can_be_left_out(monkeypatch: pytest.MonkeyPatch):
    program, outputs = random_program(SHAPES[0], 4)
    some = program.array(np.arange(11).reshape(1, 1, 1, 11, 1) % 4 == 1)
    few = program.apply("and", outputs[1], program.apply("and", some, program.apply("lt", outputs[0], program.number(3))))
    plan = make_plan(program, [outputs[0], few, *outputs[2:]], longest=100, call=C_LOOP)
    monkeypatch.setattr(c_kernel, "_FILLED_POINTS", 2 * plan.length)
    kernel = CKernel(plan, wanted=1)
    assert "!= 0)) continue;" in kernel.source, "loops below which nothing is wanted are left at once"
    found = scanned(kernel, plan)
    every = scanned(NumpyKernel(plan), plan)
    assert_same(found, {vector: own for vector, own in every.items() if own[1].any()})
    assert 0 < len(found) < len(every)


def test_a_sink_may_refuse_vectors():
    program, outputs = random_program(SHAPES[1], 6)
    plan = make_plan(program, outputs[:2], longest=100, call=C_LOOP)
    kernel = CKernel(plan, 0)
    for wants in (True, False):
        sink = Everything(plan.length, wants)
        kernel.scan(0, plan.blocks, sink)
        assert bool(sink.vectors) == wants


def test_an_error_of_a_sink_comes_through():
    program, outputs = random_program(SHAPES[1], 6)
    plan = make_plan(program, outputs[:2], longest=100, call=C_LOOP)

    def refuses(*_: Any) -> None:
        raise KeyError("full")

    with pytest.raises(KeyError, match="full"):
        CKernel(plan).scan(0, plan.blocks, refuses)


def test_two_threads_give_what_one_does():
    program, outputs = random_program((4, 8, 5, 30, 70), 8)
    plan = make_plan(program, outputs[:2], longest=100, call=C_LOOP)
    numbering = Numbering(plan, [np.arange(n) for n in program.sizes], program.sizes)
    kernel, half = CKernel(plan, 0), plan.blocks // 2
    expected = kernel.scan_best(0, plan.blocks, 500, np.inf, numbering)
    vectors = scanned(kernel, plan)
    for _ in range(5):
        found: dict[int, tuple[Array, Array]] = {}
        sink = Everything(plan.length)

        def part(k: int, first: int, last: int, found: dict[int, tuple[Array, Array]] = found, sink: Everything = sink) -> None:
            found[k] = kernel.scan_best(first, last, 500, np.inf, numbering)
            kernel.scan(first, last, sink)

        threads = [threading.Thread(target=part, args=(0, 0, half)), threading.Thread(target=part, args=(1, half, plan.blocks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        values, numbers = (np.concatenate(c) for c in zip(found[0], found[1]))
        order = np.lexsort((numbers, values))[:500]
        np.testing.assert_array_equal(values[order], expected[0])
        np.testing.assert_array_equal(numbers[order], expected[1])
        assert_same(sink.vectors, vectors)


def test_plans_without_an_objective_have_no_best():
    program, outputs = random_program(SHAPES[3], 2)
    for own in ([outputs[1], outputs[0]], outputs[:1], outputs[:3]):
        plan = make_plan(program, own, longest=100, call=C_LOOP)
        with pytest.raises(CompilerError):
            CKernel(plan, 0)


# compilers and the cache -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_plan() -> Plan:
    program, outputs = random_program((3, 4), 1, 12)
    return make_plan(program, outputs, longest=100, call=C_LOOP)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """An empty cache, nothing loaded, and a list that grows with every run of the compiler."""
    monkeypatch.setenv("SYMSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(c_build, "_LIBRARIES", {})
    runs: list[int] = []
    real = c_build._compiled

    def counted(*args: Any) -> bytes:
        runs.append(1)
        return real(*args)

    monkeypatch.setattr(c_build, "_compiled", counted)
    return runs


def entries() -> list[Path]:
    return list((Path(os.environ["SYMSIM_CACHE"]) / "kernels").iterdir())


def test_what_was_compiled_is_used_again(compiled: list[int], small_plan: Plan, monkeypatch: pytest.MonkeyPatch):
    expected = scanned(CKernel(small_plan), small_plan)
    CKernel(small_plan)
    assert len(compiled) == 1
    monkeypatch.setattr(c_build, "_LIBRARIES", {})
    assert_same(scanned(CKernel(small_plan), small_plan), expected)
    assert len(compiled) == 1
    assert len(entries()) == 1, "files for loading are removed"


def test_numbers_are_no_part_of_what_is_compiled(compiled: list[int]):
    for factor in (3, 5.5):
        program = Program((4, 50), small=0)
        x = program.array(np.linspace(1, factor, 200).reshape(4, 50))
        plan = make_plan(program, [program.apply("mul", program.number(factor), x)], longest=100, call=C_LOOP)
        assert_same(scanned(CKernel(plan), plan), scanned(NumpyKernel(plan), plan))
    assert len(compiled) == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied"])
def test_a_damaged_entry_is_compiled_again(compiled: list[int], small_plan: Plan, monkeypatch: pytest.MonkeyPatch, damage: str):
    expected = scanned(CKernel(small_plan), small_plan)
    (entry,) = entries()
    raw = bytearray(entry.read_bytes())
    raw[len(raw) // 2] ^= 255
    entry.write_bytes({"flipped": bytes(raw), "cut": bytes(raw[: len(raw) // 2]), "emptied": b""}[damage])
    monkeypatch.setattr(c_build, "_LIBRARIES", {})
    assert_same(scanned(CKernel(small_plan), small_plan), expected)
    assert len(compiled) == 2
    monkeypatch.setattr(c_build, "_LIBRARIES", {})
    CKernel(small_plan)
    assert len(compiled) == 2


def test_an_entry_that_others_may_have_written_is_not_run(compiled: list[int], small_plan: Plan, monkeypatch: pytest.MonkeyPatch):
    CKernel(small_plan)
    root = Path(os.environ["SYMSIM_CACHE"])
    root.chmod(0o777)
    monkeypatch.setattr(c_build, "_LIBRARIES", {})
    CKernel(small_plan)
    assert len(compiled) == 2


@pytest.mark.parametrize("cache", ["off", "/dev/null/nowhere"])
def test_without_a_cache(compiled: list[int], small_plan: Plan, monkeypatch: pytest.MonkeyPatch, cache: str):
    monkeypatch.setenv("SYMSIM_CACHE", cache)
    assert_same(scanned(CKernel(small_plan), small_plan), scanned(NumpyKernel(small_plan), small_plan))
    assert len(compiled) == 1


@pytest.mark.parametrize("command", ["false", "true", "/nowhere/cc", "cc --no-such-option", "'"])
def test_a_broken_compiler_is_one_exception(compiled: list[int], small_plan: Plan, monkeypatch: pytest.MonkeyPatch, command: str):
    monkeypatch.setenv("CC", command)
    with pytest.raises(CompilerError) as raised:
        CKernel(small_plan)
    assert command.split()[0] in str(raised.value)
    assert type(raised.value).__mro__[1] is Exception


def test_a_compiler_that_makes_rubbish_is_one_exception(compiled: list[int], small_plan: Plan, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(c_build, "_compiled", lambda *_: b"not a shared object")
    with pytest.raises(CompilerError, match="cannot be loaded"):
        CKernel(small_plan)


def test_the_compiler_says_what_it_is(monkeypatch: pytest.MonkeyPatch):
    said = compiler()
    assert said is not None and said.startswith("/") and any(letter.isdigit() for letter in said)
    monkeypatch.setenv("CC", "false")
    assert compiler() is None
