"""What is known of the cells of a plan before their options are chosen, and what they share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from symsim.algebra.key import of_block
from symsim.api.python import derive
from symsim.inputs.models import load_model
from symsim.planning.frameworks import FRAMEWORKS
from symsim.planning.search import Cell, Search
from symsim.planning.space import Asked
from tests.plan_bounds import searched


def of(model: str, world: int, fixed: dict[str, object], allowed: tuple[str, ...] = ()) -> Search:
    loaded = load_model(model)
    return searched(Asked(loaded, loaded.architecture, "h100-sxm", world, 32, 4096, FRAMEWORKS["megatron"], fixed, allowed), 1.0)


def looked(search: Search) -> list[Cell]:
    return search._looked_here(Cell((), np.arange(search.space.points), np.zeros(search.space.points)))


def test_kernels_bound_a_step_before_it_is_chosen_what_runs_again() -> None:
    found = looked(of("smollm2-360m", 8, {"cp": 1, "pp": 1, "vpp": 1}))
    assert found and all((cell.low > 0).all() for cell in found)


def test_what_stays_in_memory_is_known_before_it_is_chosen_what_runs_again() -> None:
    """Weights, gradients and states of 70 billion parameters on one rank: too many, whatever runs again, with each of three micro-batches."""
    search = of("llama3-70b", 8, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1})
    assert "recompute" in search._free(0)
    assert not looked(search) and search.account.larger == 3 * search._members(0)


def test_kernels_of_layers_do_not_wait_for_the_loss() -> None:
    """Which loss it is, is not chosen before all else is known."""
    search = of("smollm2-360m", 8, {"cp": 1, "pp": 1, "vpp": 1, "recompute": "none"}, ("cross_entropy_fusion=unfused,te,linear",))
    assert "cross_entropy_fusion" in search._free(0)
    assert all((cell.low > 0).all() for cell in looked(search))


def test_choices_that_tell_nothing_alone_are_made_together() -> None:
    """What hides an exchange of tokens is one pass, which reads two options."""
    degrees = {"cp": 1, "pp": 4, "vpp": 1, "tp": 4, "etp": 1, "ep": 64}
    search = of("deepseek-v3", 256, {**degrees, "recompute": "none", "overlap_grad_reduce": True})
    names = [choice.names[0] for choice in search.choices]
    assert {"overlap_moe_expert_parallel_comm", "moe_shared_expert_overlap"} <= set(names)
    # as of the second part of a cell whose first had no sum that was known
    search._further[search._free(1)] = False
    first = search._looked_here(Cell((0,), np.arange(search.space.points), np.zeros(search.space.points)))
    assert {cell.further for cell in first} == {2}


def test_parts_under_options_that_no_rule_reads_are_cut_once() -> None:
    search = of("smollm2-360m", 8, {"cp": 1})
    at = next(k for k, choice in enumerate(search.choices) if choice.names == ("overlap_grad_reduce", "overlap_param_gather"))
    one, other = ([0] * len(search.choices) for _ in range(2))
    other[at] = 1
    first, second = search._parts(tuple(one)), search._parts(tuple(other))
    assert len(first.parts) == len(second.parts) and all(a.cut is b.cut for a, b in zip(first.parts, second.parts))
    assert (first.part == second.part).all() and (first.broken == second.broken).all()
    assert second.parts[0].undone.fields["overlap_grad_reduce"] and not first.parts[0].undone.fields["overlap_grad_reduce"]


def test_a_member_that_runs_stands_for_a_cell_whose_first_rows_do_not() -> None:
    """Weight gradients are delayed only beside an exchange that overlaps: with the first rows nothing runs."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "ep": 8, "tp": 1, "moe_token_dispatcher_type": "alltoall", "recompute": "none"}
    search = of("olmoe-1b-7b", 8, fixed, ("delay_wgrad_compute=true,false",))
    assert not search._parts(()).here.any()
    assert all((cell.low > 0).all() for cell in looked(search))


def test_the_least_of_a_blocks_ways_bounds_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what hides an exchange of tokens and is not chosen yet, the bound of a cell is that of the row that hides the most."""
    fixed = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "ep": 8, "moe_token_dispatcher_type": "alltoall", "recompute": "none", "overlap_grad_reduce": True}
    search = of("olmoe-1b-7b", 8, fixed, ("delay_wgrad_compute=false", "tp_comm_overlap=false"))
    at = [k for k, choice in enumerate(search.choices) if "overlap_moe_expert_parallel_comm" in choice.names]
    assert len(at) == 1 and len(search.choices[at[0]].rows) == 2
    lows = []
    for known in (True, False):
        if not known:
            monkeypatch.setattr(Search, "_ways", lambda *asked: None)
            search = of("olmoe-1b-7b", 8, fixed, ("delay_wgrad_compute=false", "tp_comm_overlap=false"))
        lows.append({int(p): low for cell in looked(search) for p, low in zip(cell.points, cell.low)})
    assert lows[0].keys() == lows[1].keys() and all(low > lows[1][p] for p, low in lows[0].items())


def test_blocks_with_too_many_ways_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    search = of("olmoe-1b-7b", 8, {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "ep": 8})
    part = next(p for p in search._parts(()).parts if p.point is not None)
    asked = replace(part.undone, point=part.point).asked
    # four rows of recomputation, two dispatchers
    few = search._ways(asked, "embedding", search._free(0))
    assert few is not None and len(few) == 8
    # and with and without an exchange beside another micro-batch
    ways = search._ways(asked, "moe", search._free(0))
    assert ways is not None and len(ways) == 16 and len({tuple(map(id, w.definitions.values())) for w in ways}) > 4
    monkeypatch.setattr("symsim.planning.ways._MOST_WAYS", 15)
    assert search._ways(asked, "moe", search._free(0)) is None
    # nor is it asked for again where it had too many
    monkeypatch.setattr("symsim.planning.ways._MOST_WAYS", 16)
    assert search._ways(asked, "moe", search._free(0)) is None and search._ways(asked, "embedding", search._free(0)) is not None


def test_what_a_micro_batch_saves_counts_before_all_options_are_chosen() -> None:
    """The one micro-batch in flight of the only stage is no earlier one: 8 sequences of it fit no rank, whatever overlaps; one does."""
    given = {"cp": 1, "pp": 1, "vpp": 1, "tp": 1, "etp": 1, "ep": 4, "recompute": "none", "moe_token_dispatcher_type": "flex"}
    search = of("olmoe-1b-7b", 4, {**given, "micro_batch_size": 8})
    assert {"overlap_moe_expert_parallel_comm", "overlap_grad_reduce"} <= search._free(0)
    assert not looked(search) and search.account.larger == search._members(0)
    assert looked(of("olmoe-1b-7b", 4, {**given, "micro_batch_size": 1}))


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
