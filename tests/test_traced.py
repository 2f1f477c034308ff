"""What a pass made is taken again where it reads the same, and only there: every derivation is as if nothing had been made before."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import pytest

from symsim.algebra.expr import ZERO, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_stage
from symsim.algebra.quantity import Quantity
from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.grid import engines, stored, work
from symsim.grid import sweep as swept
from symsim.grid.api import sweep
from symsim.grid.processes import beside
from symsim.inputs.architecture import Architecture
from symsim.inputs.deciding import DEGREES, SIZES, deciding
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.inputs.traced import Memory, once, parts_of, reading

# options of all rooms: of drawn strategies few share a pass
WIDE: dict[str, list[Any]] = {
    "tp": [1, 2, 8],
    "pp": [1, 4],
    "vpp": [1, 2],
    "cp": [1, 2],
    "dp": [1, 16],
    "recompute": ["none", "selective", "full"],
    "zero": [0, 1, 3],
    "tp_comm_overlap": [False, True],
    "overlap_grad_reduce": [False, True],
    "sp": [False, True],
    "ep": [1, 8],
    "etp": [None, 1],
    "fusion": ["te", "eager"],
    "schedule": ["1f1b", "gpipe", "zb_h1", "dualpipe"],
    "fp8": ["none", "blockwise"],
    "num_layers_at_start_in_bf16": [0, 1],
    "optimizer": ["adam", "muon"],
    "tuner_type": ["full", "lora"],
    "reshard_after_forward": [True, 1],
    "cp_comm_type": ["p2p", "a2a"],
    "optimizer_cpu_offload": [False, True],
}


def memory_of(model: Architecture) -> Memory:
    return Memory(SIZES, DEGREES, deciding(model))


def drawn(options: dict[str, list[Any]], seed: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(seed)
    while True:
        yield {name: value for name, values in options.items() if (value := draw.choice(values)) is not None}


def compared(model: Architecture, memory: Memory, asked: Iterable[dict[str, Any]], count: int) -> None:
    """Derivations with what was made before, and by themselves, of the first that can run."""
    system = load_system("h100-sxm")
    for given in asked:
        try:
            strategy = load_strategy(None, {**given, "num_microbatches": 16})
            alone = evaluated(model, strategy, system=system).derivation
        except InputError:
            continue
        together = evaluated(model, strategy, system=system, memory=memory).derivation
        assert list(together.definitions.items()) == list(alone.definitions.items()), strategy
        count -= 1
        if not count:
            return


@pytest.mark.parametrize(("name", "count"), [("llama3-8b", 5), ("mixtral-8x7b", 3)])
def test_a_derivation_is_the_same_whatever_was_derived_before(name: str, count: int) -> None:
    model = load_model(name).architecture
    compared(model, memory_of(model), drawn(WIDE, 7), count)


def test_options_add() -> None:
    """Of 16 combinations of four options most passes run once or twice; those of a step's end, which read three of them, more often."""
    model = load_model("llama3-8b").architecture
    memory = memory_of(model)
    base = {"tp": 2, "dp": 4, "pp": 2, "sp": True, "overlap_grad_reduce": True}
    four = product((False, True), ("none", "full"), (1, 3), (False, True))
    names = ("tp_comm_overlap", "recompute", "zero", "overlap_param_gather")
    compared(model, memory, (base | dict(zip(names, values)) for values in four), 16)
    ran = {name: counts[0] for name, counts in memory.runs.items()}
    assert ran["declared_block"] == 3 and ran["_spelt"] == 1
    # embedding, layers and head; what they keep, without and with recomputation, and layers that are run again
    assert ran["differentiated"] <= 4 and ran["kernel_times"] <= 4 and ran["remembered"] <= 7
    # the end of a step reads neither what is recomputed nor how products and messages overlap
    assert ran["_step"] == ran["define_tail"] == 4 and ran["define_activations"] == 2
    assert ran["_seconds"] <= 12


def begun(memory: Memory, **options: Any) -> tuple[Strategy, Derivation]:
    return memory.begin(Strategy(**options))


def test_the_key_follows_an_option_that_is_read_late() -> None:
    """An option that a pass reads only where another has some value, and that no list names."""
    ran = []

    @once
    def work(strategy: Strategy) -> tuple[int, bool | None]:
        ran.append(strategy.zero)
        return strategy.zero, strategy.overlap_grad_reduce if strategy.zero == 2 else None

    memory = memory_of(load_model("llama3-8b").architecture)
    asked = [(zero, overlap) for zero in (1, 2) for overlap in (False, True)] * 2
    made = [work(begun(memory, zero=zero, overlap_grad_reduce=overlap)[0]) for zero, overlap in asked]
    assert made == [(1, None), (1, None), (2, False), (2, True)] * 2
    assert ran == [1, 2, 2]


def test_what_is_read_of_the_book_is_an_input() -> None:
    """Definitions, whether there is one, and which there are of a quantity; not what a pass defined itself."""
    ran = []

    @once
    def work(book: Derivation, strategy: Strategy) -> None:
        ran.append(strategy.zero)
        book.define(of_stage("own"), Quantity(symbol("b")), "its own")
        assert of_stage("own") in book
        there = book[of_stage("x")].expr if of_stage("x") in book else ZERO
        book.define(of_stage("y"), Quantity(there + book[of_stage("own")].expr + len(book.keys("z"))), "made")

    memory, found = memory_of(load_model("llama3-8b").architecture), []
    for x, z in ((None, False), ("h", False), ("h", True), ("V", True), ("h", False), (None, False)):
        strategy, book = begun(memory)
        if x is not None:
            book.define(of_stage("x"), Quantity(symbol(x)), "given")
        if z:
            book.define(of_stage("z"), Quantity(symbol("V")), "given")
        work(book, strategy)
        found.append(str(book[of_stage("y")].expr))
        assert list(book.definitions)[-2:] == ["own_stage", "y_stage"]
    assert found == ["b", "b + h", "1 + b + h", "1 + V + b", "b + h", "b"] and len(ran) == 4


def test_what_a_pass_inside_reads_is_read_by_the_one_around_it() -> None:
    """Options, definitions and degrees: of two that are compared, one may be read by either; and what it defines, both define."""
    ran: list[str] = []

    @once
    def inner(book: Derivation, strategy: Strategy) -> int:
        ran.append("inner")
        there = book[of_stage("x")].expr if of_stage("x") in book else ZERO
        book.define(of_stage("y"), Quantity(there * strategy.zero), "made inside")
        return int(strategy.tp > 1)

    @once
    def outer(book: Derivation, strategy: Strategy) -> tuple[str, bool]:
        ran.append("outer")
        apart = bool(inner(book, strategy)) and strategy.expert_tp == strategy.tp
        return str(book[of_stage("y")].expr), apart

    memory, found = memory_of(load_model("llama3-8b").architecture), []
    given = [{"zero": zero, "tp": 4, "etp": etp} for zero, etp in ((1, 4), (2, 4), (2, 2), (1, 4), (2, 4), (2, 2))]
    for number, options in enumerate(given):
        strategy, book = begun(memory, **options)
        if number % 3:
            book.define(of_stage("x"), Quantity(symbol("h")), "given")
        found.append(outer(book, strategy))
        assert list(book.definitions)[-1] == "y_stage"
    assert found == [("0", True), ("2*h", True), ("2*h", False)] * 2
    assert ran.count("outer") == 3 and ran.count("inner") == 2
    # where the one around it ran again, the one inside was taken
    assert memory.runs["inner"] == [2, 1]


def test_of_what_passes_made_the_fields_are_read() -> None:
    """A pass that reads one field of a block is not run again where another differs, nor where a block that it does not read is there."""
    ran = []

    @dataclass(frozen=True)
    class Thing:
        kept: str
        lost: str

    @once
    def work(strategy: Strategy, things: Mapping[str, Thing]) -> tuple[str, bool]:
        ran.append(things["a"].kept)
        return things["a"].kept, "b" in things

    memory, made = memory_of(load_model("llama3-8b").architecture), []
    one, other = Thing("x", "1"), Thing("x", "2")
    for things in ({"a": one}, {"a": other}, {"a": one, "c": one}, {"a": one, "b": one}, {"a": Thing("y", "1")}):
        strategy, _ = begun(memory)
        made.append(work(strategy, parts_of(strategy, "thing", things)))
    assert made == [("x", False), ("x", False), ("x", False), ("x", True), ("y", False)]
    assert ran == ["x", "x", "y"]


def test_a_mapping_that_a_pass_made_is_there_where_the_pass_is_taken() -> None:
    """What it reads of its own mapping follows from its reads; what is made after it reads the mapping of the derivation at hand."""
    ran = []

    @dataclass(frozen=True)
    class Thing:
        kept: str

    @once
    def outer(strategy: Strategy) -> Mapping[str, Thing]:
        things = parts_of(strategy, "thing", {"a": Thing("full" if strategy.recompute == "full" else "x")})
        ran.append(f"outer {inner(strategy, things)}")
        return things

    @once
    def inner(strategy: Strategy, things: Mapping[str, Thing]) -> str:
        ran.append("inner")
        return things["a"].kept

    @once
    def after(strategy: Strategy, things: Mapping[str, Thing]) -> tuple[str, bool]:
        return things["a"].kept, strategy.sp

    memory, made = memory_of(load_model("llama3-8b").architecture), []
    for recompute, sp in (("none", False), ("full", False), ("none", True), ("full", True), ("selective", True)):
        strategy, _ = begun(memory, tp=2, recompute=recompute, sp=sp)
        made.append(after(strategy, outer(strategy)))
    assert made == [("x", False), ("full", False), ("x", True), ("full", True), ("x", True)]
    assert ran == ["inner", "outer x", "inner", "outer full", "outer x"]


def test_what_another_derivation_read_is_not_this_ones() -> None:
    """A mapping that this derivation does not have, though the one before it had: what was made of it is not taken."""

    @once
    def work(strategy: Strategy, things: Mapping[str, Any]) -> str:
        return cast(str, things["a"])

    memory = memory_of(load_model("llama3-8b").architecture)
    for name in ("early", "late"):
        strategy, _ = begun(memory)
        assert work(strategy, reading(strategy, name, {"a": name})) == name


def test_degrees_are_read_as_what_decides() -> None:
    """Any degree above 1 is the same to a pass, and a batch of any size; whether a number is given is not."""
    ran = []

    @once
    def work(strategy: Strategy) -> tuple[bool, bool]:
        ran.append(strategy.tp)
        return strategy.tp > 1, strategy.num_microbatches is None

    memory = memory_of(load_model("llama3-8b").architecture)
    made = [work(begun(memory, tp=tp, pp=pp, num_microbatches=m)[0]) for tp, pp, m in ((2, 1, 4), (4, 2, 8), (1, 2, 8), (2, 1, None), (8, 1, 1))]
    assert made == [(True, False), (True, False), (False, False), (True, True), (True, False)]
    assert ran == [2, 1, 2]


def test_true_is_another_value_than_one() -> None:
    @once
    def work(strategy: Strategy) -> str:
        return repr(strategy.reshard_after_forward)

    memory = memory_of(load_model("llama3-8b").architecture)
    assert [work(begun(memory, zero=3, reshard_after_forward=given)[0]) for given in (True, 1, True)] == ["True", "1", "True"]


def test_what_is_placed_by_names_or_of_drawn_rows_is_derived_by_itself() -> None:
    """Both change what passes have made."""
    model = load_model("llama3-8b").architecture
    memory = memory_of(model)
    for given in (
        {"tp": 2, "cp": 2, "placement": ("lm_head.V=none", "lm_head.s=cp*tp")},
        {"document_lengths": "lognormal:1000+0.5", "padding_free": True},
    ):
        strategy = load_strategy(None, given)
        assert evaluated(model, strategy, memory=memory).derivation.definitions == evaluated(model, strategy).derivation.definitions
    assert not memory.runs


@pytest.mark.long_after(1)
@pytest.mark.parametrize("asked", [{"top": 20, "by": "time.step"}, {"pareto": "time.step,memory.peak"}])
@pytest.mark.parametrize("where", ["memory.peak <= 20e9 and time.bubble < 0.4 * time.step", "memory.peak > 1e15"])
def test_conditions_that_another_process_finds_hold_at_the_same_points(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], where: str) -> None:
    axes = ["tp=1,2", "pp=1,2", "zero=0,1", "recompute=none,full", "micro_batch_size=1,2"]
    begun: list[int] = []

    def counted(run: Any) -> Any:
        begun.append(1)
        return beside(run)

    def rows(workers: int) -> dict[str, list[Any]]:
        found = sweep("llama3.2-1b", axes, strategy="dp=2,global_batch_size=8", system="h100-sxm", where=where, workers=workers, **asked)
        return {name: list(values) for name, values in found.rows.items()}

    monkeypatch.setattr(swept, "_FORK_VARIANTS", 2)
    monkeypatch.setattr(work, "beside", counted)
    alone = rows(1)
    assert not begun and bool(alone["tp"]) == (where[-4:] != "1e15")
    assert rows(2) == alone and begun


def test_parts_that_other_processes_make_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many variants of few points are shared by processes, and their pipelines by variants whose options do not cut layers otherwise."""
    axes = ["tp=1,2", "pp=2,4", "zero=0,1", "recompute=none,full", "num_layers_in_first_pipeline_stage=1,4"]

    def rows(workers: int) -> list[dict[str, Any]]:
        found = sweep("llama3.2-1b", axes, strategy="dp=2,num_microbatches=8", system="h100-sxm", workers=workers, columns="time.step,memory.peak")
        return [{name: values[k] for name, values in found.rows.items()} for k in range(len(found.rows["tp"]))]

    derived: list[int] = []

    def counted(*args: Any, **named: Any) -> Any:
        derived[-1] += 1
        return evaluated(*args, **named)

    monkeypatch.setattr(engines, "_FORK_PARTS", 2)
    monkeypatch.setattr(stored, "_FORK_DERIVATIONS", 2)
    monkeypatch.setattr(stored, "evaluated", counted)
    monkeypatch.setenv("SYMSIM_CACHE", "off")
    derived.append(0)
    alone = rows(1)
    # by axes as they were given, whatever the order of derivations
    assert [(row["tp"], row["pp"], row["zero"]) for row in alone] == sorted((row["tp"], row["pp"], row["zero"]) for row in alone)
    derived.append(0)
    assert rows(2) == alone
    # a share was derived by another process
    assert derived[0] > 8 and derived[1] == derived[0] // 2
    for row in alone[::5]:
        shown = {name: row[name] for name in (axis.partition("=")[0] for axis in axes)}
        given = {name: value.item() if hasattr(value, "item") else value for name, value in shown.items()}
        strategy = load_strategy(None, {**given, "dp": 2, "num_microbatches": 8})
        result = evaluated(load_model("llama3.2-1b").architecture, strategy, system=load_system("h100-sxm"))
        assert row["time.step"] == pytest.approx(float(result.value("time.step")), rel=1e-12), given
        assert row["memory.peak"] == result.value("memory.peak"), given
