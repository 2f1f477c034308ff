"""What is known of the cells of a plan before their options are chosen, and what they share."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from symsim.algebra.key import of_block
from symsim.algebra.quantity import Definition
from symsim.api.python import derive
from symsim.inputs.models import load_model
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.least import Least
from symsim.planning.search import Cell, Search
from symsim.planning.space import Asked
from symsim.planning.tables import Tables
from symsim.planning.trees import Trees
from symsim.planning.ways import Tree, _Begun
from tests.plan_bounds import searched, whole


def of(model: str, world: int, fixed: dict[str, object], allowed: tuple[str, ...] = (), share: float = 1.0) -> Search:
    loaded = load_model(model)
    return searched(Asked(loaded, loaded.architecture, "h100-sxm", world, 32, 4096, FRAMEWORKS["megatron"], fixed, allowed), share)


def looked(search: Search, cells: list[Cell] | None = None) -> list[Cell]:
    return [one for cell in cells or [whole(search)] for one in search._looked_here(cell)]


def test_kernels_bound_a_step_before_it_is_chosen_what_runs_again() -> None:
    found = looked(of("smollm2-360m", 8, {"cp": 1, "pp": 1, "vpp": 1}))
    assert found and all((cell.low > 0).all() and cell.looked for cell in found)


def test_kernels_that_run_again_count_before_messages_do() -> None:
    """A forward more under full recomputation: a third of forward and backward, but for attention and the head."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1}
    of_rows = [
        {int(p): low for cell in looked(of("smollm2-360m", 8, {**fixed, "recompute": kind})) for p, low in zip(cell.points, cell.low)}
        for kind in ("none", "full")
    ]
    assert of_rows[0].keys() == of_rows[1].keys() and all(1.15 < of_rows[1][p] / low < 1.33 for p, low in of_rows[0].items())


def test_what_stays_in_memory_is_known_before_it_is_chosen_what_runs_again() -> None:
    """Weights, gradients and states of 70 billion parameters on one rank: too many, whatever runs again, with each of three micro-batches."""
    search = of("llama3-70b", 8, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1})
    assert "recompute" in search._free(search.whole)
    assert not looked(search) and search.account.larger == 3 * search._members(search.whole)


def test_what_fits_under_one_row_is_not_too_large() -> None:
    """8 billion parameters on four ranks: weights of 15 GiB, states of 22 GiB, and gradients of 30 or 15 GiB, whichever is chosen, of 60."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "micro_batch_size": 1}
    assert looked(of("llama3-8b", 4, fixed, ("grad_reduce_in_fp32=true,false",), 0.75))
    assert not looked(of("llama3-8b", 4, {**fixed, "grad_reduce_in_fp32": True}, (), 0.75))


def test_kernels_of_layers_do_not_wait_for_the_loss() -> None:
    """Which loss it is, is not chosen before all else is known."""
    search = of("smollm2-360m", 8, {"cp": 1, "pp": 1, "vpp": 1, "recompute": "none"}, ("cross_entropy_fusion=unfused,te,linear",))
    assert "cross_entropy_fusion" in search._free(search.whole)
    assert all((cell.low > 0).all() for cell in looked(search))


def test_options_that_nothing_reads_are_not_chosen() -> None:
    """How many layers a group of recomputation has, where none runs again: all members are evaluated together."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "recompute": "none", "tp_comm_overlap": False, "overlap_grad_reduce": True, "micro_batch_size": 1}
    search = of("smollm2-360m", 8, fixed, ("recompute_num_layers=1,2,4",))
    assert search._members(search.whole) == 3
    cells = [whole(search)]
    while cells:
        cells = looked(search, cells)
        assert all(cell.rows == search.whole for cell in cells)
    assert search.account.evaluated == 3


def test_rules_that_read_no_free_option_are_asked_once() -> None:
    search = of("smollm2-360m", 8, {"cp": 1})
    at = next(k for k, choice in enumerate(search.choices) if choice.names == ("overlap_grad_reduce", "overlap_param_gather"))
    points = np.arange(search.space.points)
    one = (0,) * len(search.choices)
    first = search._parts(one, points)
    second = search._parts((*one[:at], 1, *one[at + 1 :]), points)
    asked = {name: len(known) for (name, *_), known in search._ruled.said.items()}
    # of two families, one of which has its messages between stages batched
    assert len(search._members_at(one)) == 2 and len(asked) > 20
    assert {name for name, count in asked.items() if count > 1} == {"overlap", "schedule"}
    assert len(first.parts) == len(second.parts) and (first.part == second.part).all() and (first.broken == second.broken).all()
    assert second.parts[0].undone.fields["overlap_grad_reduce"] and not first.parts[0].undone.fields["overlap_grad_reduce"]


def test_parts_are_of_the_points_that_are_asked_for() -> None:
    search = of("olmoe-1b-7b", 16, {"cp": 1})
    points = np.arange(search.space.points)
    all_of_them, some = search._parts(search.whole, points), search._parts(search.whole, points[::7])
    assert (some.broken == all_of_them.broken[::7]).all() and (some.here == all_of_them.here[::7]).all()
    pairs = set(zip(some.part.tolist(), all_of_them.part[::7].tolist()))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}) > 2


def test_a_member_that_runs_stands_for_a_cell_whose_first_rows_do_not() -> None:
    """Weight gradients are delayed only beside an exchange that overlaps: with the first rows nothing runs."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "ep": 8, "tp": 1, "moe_token_dispatcher_type": "alltoall", "recompute": "none"}
    search = of("olmoe-1b-7b", 8, fixed, ("delay_wgrad_compute=true,false",))
    assert not search._parts(search.whole, whole(search).points).here.any()
    assert all((cell.low > 0).all() for cell in looked(search))


def test_the_least_of_a_blocks_ways_bounds_a_step() -> None:
    """Of what hides an exchange of tokens each row has the bound of its own ways as soon as it is chosen."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "ep": 8, "moe_token_dispatcher_type": "alltoall", "recompute": "none", "overlap_grad_reduce": True}
    search = of("olmoe-1b-7b", 8, fixed, ("delay_wgrad_compute=false", "tp_comm_overlap=false"))
    at = [k for k, choice in enumerate(search.choices) if "overlap_moe_expert_parallel_comm" in choice.names]
    assert len(at) == 1 and len(search.choices[at[0]].rows) == 2
    found = looked(search, looked(search))
    assert {cell.rows[at[0]] for cell in found} == {0, 1}
    shown, hidden = [{int(p): low for cell in found if cell.rows[at[0]] == row for p, low in zip(cell.points, cell.low)} for row in (0, 1)]
    assert shown.keys() == hidden.keys() and all(low < shown[p] for p, low in hidden.items())
    # with messages it is more than its kernels take
    kernels = {int(p): low for cell in looked(search) for p, low in zip(cell.points, cell.low)}
    assert all(low > kernels[p] for p, low in hidden.items())


def tree_of(search: Search, name: str) -> Tree:
    part = next(p for p in search._parts(search.whole, whole(search).points).parts if p.runs)
    return search._trees_of(part.undone.asked).blocks[name]


def test_blocks_with_too_many_ways_have_none() -> None:
    search = of("olmoe-1b-7b", 8, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "ep": 8})
    # what the embedding does is the same under four rows of recomputation and two dispatchers
    few, _ = tree_of(search, "embedding").ways({}, 16)
    assert few is not None and len(few) == 1
    # and with and without an exchange beside another micro-batch
    ways, asked = tree_of(search, "moe").ways({}, 16)
    assert ways is not None and 4 < len(ways) <= 16 and len(set(ways)) == len(ways)
    assert {search.choices[at].names[0] for at in asked} == {"moe_token_dispatcher_type", "recompute", "overlap_moe_expert_parallel_comm"}
    at = next(k for k, choice in enumerate(search.choices) if choice.names[0] == "recompute")
    some, _ = tree_of(search, "moe").ways({at: 1}, 16)
    assert some is not None and 1 < len(some) < len(ways) and set(some) < set(ways)
    tree = tree_of(of("olmoe-1b-7b", 8, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "ep": 8}), "moe")
    assert tree.ways({}, 3)[0] is None
    # nor is it looked for again where it had too many, but where one of these choices is made
    assert tree.ways({}, 16)[0] is None and tree.ways({at: 1}, 16)[0] is not None


def trees_of(search: Search) -> list[Trees]:
    return [search._trees_of(p.undone.asked) for p in search._parts(search.whole, whole(search).points).parts if p.runs]


def test_what_a_pass_made_is_taken_at_other_points() -> None:
    """How a pipeline's stages exchange is of no block's concern."""
    search = of("olmoe-1b-7b", 8, {"cp": 1, "tp": 2, "etp": 1, "ep": 2, "micro_batch_size": 1})
    first, second = (trees.blocks["moe"] for trees in trees_of(search) if trees.base.strategy.pp == 2)
    assert first.of.memory is second.of.memory and {tree.of.base.p2p_comm for tree in (first, second)} == {"batched", "asynchronous"}
    ways, _ = first.ways({}, 16)
    made = first.of.memory.runs["_block"][0]
    again, _ = second.ways({}, 16)
    assert ways is not None and len(ways) > 4 and again == ways and first.of.memory.runs["_block"][0] == made


def test_rows_under_which_layers_are_of_the_same_kinds_share_a_derivation() -> None:
    """With adapters a checkpointed layer's input needs a gradient: what runs again in full is another model, what runs again in parts is not."""
    search = of("olmoe-1b-7b", 8, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "ep": 8, "micro_batch_size": 1, "tuner_type": "lora"})
    at = next(k for k, choice in enumerate(search.choices) if choice.names[0] == "recompute")
    cells = looked(search)
    assert {search.choices[at].rows[cell.rows[at] or 0][0] for cell in cells} == {"none", "full", "selective"} and None not in {
        c.rows[at] for c in cells
    }
    looked(search, cells)
    shared = {trees.base.strategy.recompute for trees in search._trees.kept.values()}
    assert shared == {"none", "full"} and len(search._trees.kept) == 2


def test_a_bound_of_a_cell_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, str, bytes]] = []

    def time(self: Least) -> Any:
        done.append((id(self._trees), repr(sorted(self._chosen.items())), self._at.tobytes()))
        return original(self)

    original = Least.time
    monkeypatch.setattr(Least, "time", time)
    search = of("smollm2-360m", 8, {"cp": 1, "vpp": 1, "recompute": "none"}, ("cross_entropy_fusion=unfused,te",))
    search.run(lambda what, done, total: None)
    assert len(done) > 10 and len(set(done)) == len(done)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("name", ["head", "moe", "staying", "following"])
def test_what_is_taken_is_what_would_be_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(asked: tuple[str, ...]) -> list[set[frozenset[Definition]]]:
        search = of("olmoe-1b-7b", 8, {"vpp": 1, "micro_batch_size": 1, "recompute": "none"}, asked)
        trees = (trees.blocks[name] if name in trees.blocks else getattr(trees, name) for trees in trees_of(search))
        return [{frozenset(way.definitions.values()) for way in tree.ways({}, 16)[0] or ()} for tree in trees]

    # of a way of context parallelism passes are told by the mesh alone
    asked = ("grad_reduce_in_fp32=false,true", "cross_entropy_fusion=native,te", "cp_comm_type=p2p,a2a")
    taken = found(asked)
    monkeypatch.setattr(_Begun, "holds", lambda self, strategy: False)
    assert taken == found(asked) and len({frozenset(one) for one in taken}) > 1 and any(len(one) > 1 for one in taken)


def test_what_ways_share_of_memory_is_what_each_has() -> None:
    """Weights, gradients, states and what is kept free are evaluated once for ways that have the same; asked for alone a way has no other's."""
    allowed = ("grad_reduce_in_fp32=true,false", "use_precision_aware_optimizer=false,true", "main_params_dtype=fp32,bf16")
    search, seen = of("llama3-8b", 4, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "micro_batch_size": 1}, allowed), set()
    looked(search)
    for trees in search._trees.kept.values():
        together = trees._tables
        assert together is not None
        for way in trees.staying.ways({}, 64)[0] or ():
            alone = Tables(together._variant, together.points, together._program, {})
            for gradients in (True, False):
                each, own = (tables.stay(way, slice(None), gradients) for tables in (together, alone))
                assert all(np.array_equal(one, other) for one, other in zip(each, own, strict=True))
            assert all(np.array_equal(one, other) for one, other in zip(together.most_that_stays(way), alone.most_that_stays(way), strict=True))
            seen.add(float(alone.stay(way, slice(None))[0].max()))
    assert len(seen) > 2


def test_what_a_micro_batch_saves_counts_before_all_options_are_chosen() -> None:
    """The one micro-batch in flight of the only stage is no earlier one: 8 sequences of it fit no rank, whatever overlaps; one does."""
    given = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "etp": 1, "ep": 4, "recompute": "none", "moe_token_dispatcher_type": "flex"}
    search = of("olmoe-1b-7b", 4, {**given, "micro_batch_size": 8})
    assert {"overlap_moe_expert_parallel_comm", "overlap_grad_reduce"} <= search._free(search.whole)
    assert not looked(search, looked(search)) and search.account.larger == search._members(search.whole)
    search = of("olmoe-1b-7b", 4, {**given, "micro_batch_size": 1})
    assert looked(search, looked(search))


@pytest.mark.parametrize("model", ["llama3-8b", "deepseek-v3", "gemma-3-4b", "granite-4.0-h-tiny"])
@pytest.mark.parametrize("options", ["recompute=selective", "zero=3,dp=2,fusion=compile", "recompute=full", "fusion=eager", "tuner_type=lora"])
def test_the_worst_kernel_of_backward_holds_what_its_block_saved(model: str, options: str) -> None:
    """What a bound of memory stands on."""
    found, compared = derive(model, options), 0
    for block in found.lowered.blocks:
        for again in (False, True):
            saved, worst = of_block("A", block, again).text, of_block("W", block, again, phase="backward").text
            if saved in found.derivation.definitions and worst in found.derivation.definitions:
                compared += 1
                assert found.value(worst) >= found.value(saved), block
    assert compared >= 3


@pytest.mark.parametrize("fixed", [{"vpp": 5, "overlap_p2p_comm": True}, {"vpp": 5, "overlap_p2p_comm": False}, {"vpp": 1}])
def test_the_bound_is_the_step_when_all_is_chosen(fixed: dict[str, object]) -> None:
    """With boundary tensors, but for what computation hides of gradients' messages."""
    search = of("llama3-70b", 64, {"cp": 1, "tp": 8, "pp": 4, "micro_batch_size": 1, "recompute": "none", **fixed})
    cells, evaluate, beyond = [whole(search)], search._evaluate, list[float]()

    def told(cell: Cell, *given: Any) -> int | None:
        at = evaluate(cell, *given)
        beyond.extend(found.value / low - 1 for *_, found in search._new for low in cell.low[cell.points == found.point])
        search._new.clear()
        return at

    with patch.object(search, "_evaluate", told):
        while cells:
            cells = looked(search, cells)
    assert 0 <= min(beyond) < 1e-8
