"""A sweep's numbers are those of `symsim eval`: at random points of grids over every kind of option."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import symsim
from symsim.api.result import derive
from symsim.errors import InputError
from symsim.grid.axes import parse_axes
from symsim.grid.family import families
from symsim.grid.group import grouped
from symsim.grid.reported import Reported
from symsim.grid.space import Space
from symsim.grid.stored import Memories
from symsim.grid.variant import Variant, at_point, strategy_at, variants, with_formulas
from symsim.program.base import read_base
from symsim.program.numpy_kernel import NumpyKernel
from symsim.program.plan import make_plan
from symsim.program.points import Points
from symsim.program.program import Program, restricted
from symsim.program.value import Value

COUNTS = {
    "params.total": ("params", "total"),
    "params.active": ("params", "active"),
    "flops.forward": ("flops", "forward"),
    "flops.backward": ("flops", "backward"),
    "flops.recompute": ("flops", "recompute"),
    "memory.peak": ("memory", "peak"),
}
TIMES = {
    "time.step": ("time", "step"),
    "time.compute": ("time", "compute"),
    "time.bubble": ("time", "bubble"),
    "time.optimizer": ("time", "optimizer"),
    "mfu": ("mfu",),
    "hfu": ("hfu",),
    "tokens_per_second": ("tokens_per_second",),
}
PARTS = ("weights", "gradients", "optimizer", "activations", "transient")
SIZES = ["micro_batch_size=1,2,3", "num_microbatches=1,4,8,24"]
DENSE = ["tp=1,2,8", "sp==tp>1", "pp=1,2,5", "dp=1,2,6", *SIZES]
ENDS = ["account_for_embedding_in_pipeline_split=false,true", "account_for_loss_in_pipeline_split=true,false"]
MOE = ["tp=1,2", "sp==tp>1", "ep=1,2,8", "dp=1,8,16", *SIZES]

CASES: dict[str, tuple[str, str | None, list[str], list[str]]] = {
    "dense": ("llama3-8b", "h100-sxm", DENSE, ["seq_length=4096"]),
    "dense without a system": ("llama3-8b", None, DENSE, []),
    "interleaved": ("llama3-8b", "h100-sxm", ["pp=2,4", "vpp=2,4", "dp=1,4", "tp=1,4", *SIZES], []),
    "ends that count as layers": ("llama3-8b", "h100-sxm", ["pp=1,2,3,17", "vpp=1,2", *ENDS, "dp=1,4", *SIZES], []),
    "ends that count as layers of two kinds": ("deepseek-v3", "h800-sxm", ["pp=1,4,7,31,62", *ENDS, "ep=1,8", "dp=8", "zero=1,2", *SIZES], []),
    "ends that count as layers or hold fewer": ("llama3-8b", "h100-sxm", ["pp=2,4", *ENDS, "num_layers_in_last_pipeline_stage=null,5,2", *SIZES], []),
    "stages without experts": ("mixtral-8x7b", "h100-sxm", ["pp=11,33,34", *ENDS, "ep=8", "dp=8,16", "num_microbatches=1,64"], []),
    "ends that follow from the depth": ("llama3-8b", "h100-sxm", ["pp=1,2,3,11", "account_for_loss_in_pipeline_split==pp>2", *SIZES], []),
    "one group a rank": ("qwen3-8b", "h100-sxm", ["tp=2,4,8,16", "sp=true"], []),
    "overlap": ("llama3-8b", "b200-sxm", [*DENSE, "overlap_grad_reduce=true", "overlap_param_gather=true"], []),
    "context parallel": ("llama3-8b", "a100-sxm-80", ["tp=1,2", "sp==tp>1", "cp=1,2,4", "cp_comm_type=p2p,all_gather,a2a", *SIZES], []),
    "tied tables": ("gemma-2-2b", "h100-sxm", ["tp=1,2", "pp=1,2,4", "dp=1,4", *SIZES], []),
    "sharded": ("llama3-8b", "h100-sxm", ["zero=0,1,2,3", "dp=1,2,8", "fusion=te,eager", *SIZES], []),
    "adapters": ("llama3-8b", "h100-sxm", ["tuner_type=full,lora", "lora_rank=4,64", "tp=1,2", "sp==tp>1", "pp=1,3", "dp=1,4", *SIZES], []),
    "frozen layers": ("llama3-8b", "h100-sxm", ["freeze_parameters=embedding+layers.0-9,norm", "zero=1,3", "dp=1,4", *SIZES], []),
    "HSDP": ("llama3-8b", "h100-sxm", ["zero=1,3", "dp=8,16", "num_distributed_optimizer_instances=1,2,4", *SIZES], []),
    "recompute": ("llama3-8b", "h100-sxm", ["recompute=none,full", "pp=1,2,3", "vpp=1,2", "recompute_method=uniform,block", *SIZES], []),
    "selective": ("llama3-8b", "h100-sxm", ["recompute=selective", "recompute_modules=core_attn,core_attn+mlp,layernorm", "tp=1,2", *SIZES], []),
    "schedules": (
        "llama3-8b",
        "h100-sxm",
        ["schedule=gpipe,1f1b,zb_h1,zb_h2,ds_default,merak_1f1b,pre_recompute_1f1b,last_no_recompute_1f1b,shifted_critical_path", "pp=2,3,4", *SIZES],
        [],
    ),
    "schedules with chunks": ("llama3-8b", "h100-sxm", ["schedule=looped_bfs,interleaved_zb,zbv,dualpipev", "pp=2,4", "vpp=2", *SIZES], []),
    "mirrored": ("deepseek-v3", "h800-sxm", ["schedule=dualpipe", "pp=4,8", "ep=8", "dp=8,16", "num_microbatches=16,32"], []),
    "experts": ("mixtral-8x7b", "h100-sxm", MOE, []),
    "experts split by tensor": ("mixtral-8x7b", "h100-sxm", ["tp=2,4", "sp=true", "etp=1,2,4", "ep=1,2,8", "dp=1,4,8", *SIZES], []),
    "uneven experts": ("deepseek-v3", "h100-sxm", ["lam=1,1.2,2", "ep=8,64", "dp=8,64", "pp=1,4,16", *SIZES], []),
    "capacity": (
        "mixtral-8x7b",
        "h100-sxm",
        ["moe_expert_capacity_factor=1,1.25", "ep=1,4", "dp=1,4,8", "seq_length=1000,4096", *SIZES],
        ["moe_pad_expert_input_to_capacity=true"],
    ),
    "latent attention": ("deepseek-v3", "h100-sxm", ["tp=1,4", "sp==tp>1", "pp=1,2,7", "vpp=1,2", "ep=1,8", "dp=1,4,16", *SIZES], []),
    "fp8": ("deepseek-v3", "h800-sxm", ["fp8=none,blockwise", "ep=8,32", "dp=32", "pp=4,8", *SIZES], []),
    "linear attention": ("qwen3-next-80b-a3b", "h100-sxm", MOE, []),
    "windows": ("gemma-3-12b", "h100-sxm", ["seq_length=512,4096,32768", "tp=1,2", "dp=1,2", *SIZES], []),
    "conventions": ("llama3-8b", "h100-sxm", ["assume.causal=full,half,exact", "assume.memory=allocated,reserved", "tp=1,2", *SIZES], []),
    "systems": ("llama3-8b", None, ["system=h100-sxm,b200-sxm,a100-sxm-80", "tp=1,8", "dp=1,8", *SIZES], []),
    "bandwidths": ("llama3-8b", "h100-sxm", ["B_2=25 GB/s,50 GB/s,100 GB/s", "alpha_1=1 us,2 us", "tp=2,8", "dp=2,16", *SIZES], []),
    "widths": ("llama3-8b", "h100-sxm", ["hidden_size=4096,8192", "mlp.ffn_hidden_size=14336,16384", "tp=1,2,4", *SIZES], []),
    "ranks": ("llama3-8b", "h100-sxm", ["world=64,96,128", "tp=1,2,8", "sp==tp>1", "pp=1,3", "global_batch_size=384", "micro_batch_size=1,2"], []),
    "host": (
        "llama3-8b",
        "h100-sxm",
        ["optimizer_offload_fraction=0.5,1", "dp=2,8", *SIZES],
        ["use_precision_aware_optimizer=true", "optimizer_cpu_offload=true"],
    ),
    "two numbers behind one rate": (
        "deepseek-v3",
        "h800-sxm",
        ["accelerator.fp8_share=0.5,0.8", "accelerator.peak.fp8=1000 TFLOP/s,2000 TFLOP/s", "dp=2,8", "ep=2", "micro_batch_size=1,2"],
        ["fp8=blockwise"],
    ),
    "derived first stage": ("llama3-8b", "h100-sxm", ["micro_batch_size=2,4,8", "num_layers_in_first_pipeline_stage==micro_batch_size*2"], ["pp=3"]),
    "derived recompute": (
        "llama3-8b",
        "h100-sxm",
        ["num_microbatches=1,2,4", "recompute_num_layers==num_microbatches"],
        ["pp=3", "recompute=full", "recompute_method=block"],
    ),
    "derived depths": ("deepseek-v3", "h100-sxm", ["micro_batch_size=1,2,3", "mtp_num_layers==micro_batch_size-1"], ["pp=3"]),
    "derived degree": ("gemma-2-2b", "h100-sxm", ["micro_batch_size=2,4,8", "tp==micro_batch_size"], []),
    "derived mirror": ("deepseek-v3", "h800-sxm", ["micro_batch_size=1,2", "pp==micro_batch_size*4"], ["schedule=dualpipe", "ep=8", "dp=8", "m=32"]),
    "few groups": ("qwen2.5-7b", "h100-sxm", ["tp=1,2,4", "sp==tp>1", "dp=1,2", "pp=1,2", *SIZES], []),
}

MOST_VARIANTS = 5


def space_of(case: str) -> Space:
    model, system, axes, settings = CASES[case]
    free, derived = parse_axes(axes)
    return Space(read_base(model, None, system, settings), free, derived)


def at(data: Any, point: Sequence[int]) -> float:
    if not isinstance(data, np.ndarray):
        return float(data)
    return float(data[tuple(min(k, n - 1) for k, n in zip(point, data.shape))])


def evaluated(variant: Variant, point: Sequence[int]) -> dict[str, Any]:
    """`symsim eval --json` at a point of the grid."""
    family = variant.family
    symbols, changes = at_point(family.space, point)
    system = family.space.system(family.fixed["machine"], changes)
    return derive(family.fixed["architecture"], strategy_at(variant.fields, point), family.fixed["assumptions"], symbols, system).to_json()


def look(data: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = data
    for key in path:
        found = found[key]
    return found


def points_of(variant: Variant, count: int, rng: random.Random) -> list[tuple[int, ...]]:
    runs = np.argwhere(np.broadcast_to(variant.running(), variant.sizes))
    chosen = rng.sample(range(len(runs)), min(count, len(runs)))
    return [tuple(int(c[k]) for c, k in zip(variant.chosen, runs[n])) for n in chosen]


@pytest.mark.long_after(14)
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_eval(case):
    """Random points of every variant, or of some where there are many: counts are equal, times within 1e-12 of the step."""
    rng = random.Random(case)
    space = space_of(case)
    program = Program(space.sizes, small=1 << 62)
    all_of_them = [undone for family in families(space) for undone in variants(family)]
    assert all_of_them
    found = with_formulas(rng.sample(all_of_them, min(len(all_of_them), MOST_VARIANTS)), Memories())
    for variant in found:
        reported = Reported(variant, program)
        points = points_of(variant, 2 if len(found) < MOST_VARIANTS else 1, rng)
        assert points
        for point in points:
            check_point(reported, point, evaluated(variant, point))


def check_point(reported: Reported, point: Sequence[int], expected: Mapping[str, Any]) -> None:
    def value(name: str) -> float:
        return at(reported.quantity(name).data, point)

    for name, path in COUNTS.items():
        exact = look(expected, path)
        found = value(name)
        if name == "memory.peak":
            # a fraction of a byte is rounded up at the end
            assert -1e-3 < exact - found < 1, (name, found, exact)
        elif exact < 2**53:
            assert found == exact, (name, found, exact)
        else:
            assert found == pytest.approx(exact, rel=1e-12), name
    fullest = max(expected["memory"]["stages"], key=lambda s: s["peak"])
    for part in PARTS:
        assert -1e-3 < fullest[part] - value(f"memory.{part}") < 1, part
    saved = max(expected["activations"]["saved_per_microbatch"])
    assert 0 <= saved - value("activations.saved_per_microbatch") < 1
    assert value("params.per_rank") == max(r["total"] for r in expected["params"]["per_rank"])
    if "time" not in expected:
        with pytest.raises(KeyError):
            reported.quantity("time.step")
        return
    step = expected["time"]["step"]
    for name, path in TIMES.items():
        scale = step if name.startswith("time.") else look(expected, path)
        assert abs(value(name) - look(expected, path)) <= 1e-12 * scale, name
    assert abs(value("time.exposed") - sum(expected["time"]["exposed"].values())) <= 1e-12 * step
    for axis, exposed in expected["time"]["exposed"].items():
        assert abs(value(f"time.exposed.{axis}") - exposed) <= 1e-12 * step, axis


@pytest.mark.parametrize("case", ["adapters", "recompute", "conventions", "widths"])
def test_variants_together_have_what_each_has_alone(case):
    """One program for all variants gives at each point what the point's own variant gives, and 0 for what that does not have."""
    space = space_of(case)
    found = with_formulas([undone for family in families(space) for undone in variants(family)], Memories())
    (group,) = grouped(found)
    assert len(group.variants) > 1 and group.running_points == sum(v.running_points for v in found)
    together, alone = Reported(group, Program(space.sizes, small=1 << 62)), Program(space.sizes, small=1 << 62)
    names = ["time.step", "memory.peak", "mfu", "time.exposed.tp", "c_f_dense_tp", "params.trained", "recompute_num_layers", "dp"]
    rng = random.Random(case)
    for variant in found:
        own = Reported(variant, alone)
        for point in points_of(variant, 2, rng):
            for name in names:
                sort = own.sort(name)
                expected = at(own.quantity(name).data, point) if sort not in (None, "nothing") else 0.0
                value = at(together.quantity(name).data, point) if together.sort(name) not in (None, "nothing") else 0.0
                assert value == pytest.approx(expected, rel=1e-13), (name, point)


def test_what_is_a_number_in_some_variants_and_an_array_in_others():
    space = Space(read_base("llama3-8b", None, "h100-sxm", []), *parse_axes(["fusion=te,eager", "tp=2,4"]))
    (group,) = grouped(with_formulas([undone for family in families(space) for undone in variants(family)], Memories()))
    assert len(group.variants) == 2
    np.testing.assert_array_equal(group.together([np.array([[0.0, 1.0]]), 7]), [[0.0, 1.0], [7.0, 7.0]])
    np.testing.assert_array_equal(group.together([7, np.array([[0.0, 1.0]])]), [[7.0, 7.0], [0.0, 1.0]])
    np.testing.assert_array_equal(group.together([None, 2]), [[0.0], [2.0]])
    assert group.together([None, None]) is None and group.together([3, 3]) == 3


class Kept:
    """A sink that keeps everything it is handed."""

    def __init__(self, length: int) -> None:
        self.length, self.rows = length, []

    def wanted(self, value: Any) -> bool:
        return True

    def __call__(self, vector: int, *outputs: Any) -> None:
        self.rows.append([np.array(np.broadcast_to(o, (self.length,))) for o in outputs])


@pytest.mark.long_after(2)
@pytest.mark.parametrize("case", ["dense", "sharded", "latent attention", "uneven experts", "schedules with chunks"])
def test_a_kernel_gives_what_its_program_says(case):
    """However much is computed beforehand, and however the grid is cut into vectors: the same bits at every point."""
    space = space_of(case)
    names = ["time.step", "memory.peak", "tokens_per_second"]
    checked = 0
    for variant in with_formulas([undone for family in families(space) for undone in list(variants(family))[::3]], Memories()):
        whole = Reported(variant, Program(space.sizes, small=1 << 62))
        _, expected = restricted([whole.quantity(n) for n in names], variant.chosen, small=1 << 62)
        for small, longest in ((0, 16), (8, 64), (64, 4096)):
            parts = Reported(variant, Program(space.sizes, small=small))
            program, values = restricted([parts.quantity(n) for n in names], variant.chosen, small=small)
            plan = make_plan(program, values, longest=longest, call=100)
            kept = Kept(plan.length)
            NumpyKernel(plan).scan(0, plan.blocks, kept)
            for k, name in enumerate(names):
                found = np.concatenate([r[k] for r in kept.rows])
                np.testing.assert_allclose(found, in_order(expected[k], plan.order, variant.sizes), rtol=2e-14, err_msg=f"{name}, {small}, {longest}")
            checked += 1
    assert checked


def in_order(value: Value, order: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    data = np.broadcast_to(np.asarray(value.data, dtype=float), sizes)
    return np.transpose(data, [*order, *(a for a in range(len(sizes)) if a not in order)]).reshape(-1)


@pytest.mark.parametrize("options", ["schedule=1f1b", "schedule=interleaved_zb,vpp=2"])
def test_a_size_that_follows_from_others_is_a_column_where_it_is_not_given(options: str):
    found = symsim.sweep("llama3-8b", ["pp=2,4,8"], f"{options},num_microbatches=12", columns="group").rows
    for pp, group in zip(found["pp"].tolist(), found["group"].tolist(), strict=True):
        assert group == symsim.derive("llama3-8b", f"{options},num_microbatches=12,pp={pp}").value("group") > 0


@pytest.mark.long
def test_every_point_of_a_grid_is_refused_or_evaluated_as_eval_does():
    """The masks of a grid are the rules of `check`, point by point."""
    space = space_of("latent attention")
    (family,) = families(space)
    covered = np.zeros(space.sizes, dtype=int)
    for variant in with_formulas(list(variants(family)), Memories()):
        inside = np.zeros(space.sizes, dtype=bool)
        inside[np.ix_(*variant.chosen)] = np.broadcast_to(variant.running(), variant.sizes)
        covered += inside
    assert covered.max() == 1
    rng = random.Random(0)
    for _ in range(100):
        point = tuple(rng.randrange(n) for n in space.sizes)
        fields = {n: v for n, v in family.fields.items()}
        fields["sp"] = bool(at(np.asarray(fields["sp"]), point))
        try:
            derive(family.fixed["architecture"], strategy_at(fields, point))
            allowed = True
        except InputError:
            allowed = False
        assert bool(covered[point]) == allowed, point


def test_values_at_points_are_those_of_the_whole_grid():
    """What is not known is computed on the smallest grid that holds the points; what is known is read where they are."""
    rng = np.random.default_rng(7)
    shape = (6, 5, 4)
    for _ in range(20):
        program = Program(shape, small=0)
        along = [program.array(rng.random([n if axis == own else 1 for axis, n in enumerate(shape)])) for own in range(3)]
        over_all = program.array(rng.random(shape))
        wanted = [program.apply("mul", along[0], along[2]), program.apply("add", over_all, along[1]), over_all, along[1], program.number(3)]
        whole = [
            np.broadcast_to(made, shape).reshape(-1)
            for made in (along[0].data * along[2].data, over_all.data + along[1].data, over_all.data, along[1].data, np.float64(3))
        ]
        numbers = np.sort(rng.choice(120, size=rng.integers(1, 12), replace=False))
        points = Points(numbers, shape)
        for values in (wanted, wanted[2:]):
            assert [value.known for value in values].count(False) == (2 if values is wanted else 0)
            for made, expected in zip(points.values(values), whole[-len(values) :], strict=True):
                assert np.array_equal(made, expected[numbers])
        at = rng.integers(len(numbers), size=3)
        assert np.array_equal(points.spread(along[2].data, at), np.broadcast_to(along[2].data, shape).reshape(-1)[numbers[at]])
