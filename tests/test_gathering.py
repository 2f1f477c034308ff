"""Buckets of gradients, and the limits of what FSDP gathers: counts done by hand on a small model."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.evaluation.buffers import gradient_buffers
from symsim.evaluation.traffic import stage_messages
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

MODEL = load_model("llama3-8b").architecture
HIDDEN, FFN, LAYERS, KEYS = 4096, 14336, 32, 1024
WEIGHTS = (HIDDEN * HIDDEN, HIDDEN * KEYS, HIDDEN * KEYS, HIDDEN * HIDDEN, HIDDEN * FFN, HIDDEN * FFN, FFN * HIDDEN)
LAYER = sum(WEIGHTS) + 2 * HIDDEN
TABLES = 2 * 128256 * HIDDEN + HIDDEN
SYSTEM = load_system("h100-sxm")
RANKS = 8


def numbers(assumptions: dict[str, str] | None = None, system: Any = None, **strategy: Any) -> Any:
    given = {"dp": RANKS, "seq_length": 512, "fusion": "eager", **strategy}
    return derive(MODEL, Strategy(**given), assumptions or {}, None, system)


def messages(result: Any) -> list[Any]:
    return stage_messages(result, result.stages[0])


def elements(result: Any, message: Any) -> int:
    """What is whole of a message on every rank."""
    return max(int(size.evaluate(result.stage_numbers(result.stages[0]))) for size in (message.send_elements, message.receive_elements))


def first(result: Any, name: str) -> float:
    return float(result.stage_numbers(result.stages[0])[name])


def test_gradients_leave_in_buckets_of_the_size_that_is_given() -> None:
    size = 3 * 10**8
    result = numbers(ddp_bucket_size=size, zero=1)
    sent = [m for m in messages(result) if "dense" in m.what]
    number = math.ceil((LAYERS * LAYER + TABLES) / size)
    assert [(m.op, int(m.count.evaluate({}))) for m in sent] == [("reduce_scatter", number), ("all_gather", number)]
    assert elements(result, sent[0]) == (LAYERS * LAYER + TABLES) // number


def test_buckets_cost_a_latency_each_and_the_last_one_is_exposed() -> None:
    size = 3 * 10**8
    number = math.ceil((LAYERS * LAYER + TABLES) / size)
    plain, cut = (numbers(system=SYSTEM, zero=0, **more) for more in ({}, {"ddp_bucket_size": size}))
    added = float(cut.step_numbers["t_step"] - plain.step_numbers["t_step"])
    assert any(added == pytest.approx((number - 1) * 2 * first(cut, name), rel=1e-6) for name in ("alpha_dp_cp", "delta_dp_cp"))
    hidden = numbers(system=SYSTEM, zero=0, micro_batch_size=64, overlap_grad_reduce=True, ddp_bucket_size=size)
    assert first(hidden, "e_grad_stage") == pytest.approx(first(hidden, "c_grad_stage") / number)
    gathered = {"overlap_grad_reduce": True, "overlap_param_gather": True, "micro_batch_size": 64}
    other = numbers(system=SYSTEM, ddp_bucket_size=size, allgather_bucket_size=2 * size, **gathered)
    assert first(other, "n_bucket_param") == math.ceil((LAYERS * LAYER + TABLES) / (2 * size))


@pytest.mark.parametrize(("choice", "copies"), [("none", 0), ("one", 1), ("two", 2)])
def test_gradients_are_copied_into_buffers_while_backward_runs(choice: str, copies: int) -> None:
    size = 10**8
    before, after = (numbers({"reduction_buffers": c}, ddp_bucket_size=size) for c in ("none", choice))
    for moment, held in (("M_at_backward_dense", copies), ("M_at_first_layers", copies), ("M_at_forward_dense", 0), ("M_at_optimizer", 0)):
        assert first(after, moment) - first(before, moment) == held * 4 * size
    # under FSDP they are there from the start, in place of the gradients of a unit
    before, after = (numbers({"reduction_buffers": c}, zero=3, ddp_bucket_size=size) for c in ("none", choice))
    assert first(after, "M_at_optimizer") - first(before, "M_at_optimizer") == copies * 4 * size
    whole = numbers(zero=3)
    reduced = first(whole, "M_at_second_dense") - first(before, "M_at_second_dense")
    assert reduced == 4 * (LAYER - size)


def test_small_parameters_stay_whole_and_are_gathered_once_a_step() -> None:
    norms = LAYERS * 2 * HIDDEN
    plain, whole = numbers(zero=3), numbers(zero=3, param_persistence_threshold=HIDDEN)
    assert first(whole, "M_stage_weights") - first(plain, "M_stage_weights") == 2 * norms * (RANKS - 1) / RANKS
    sent = [m for m in messages(whole) if m.op == "all_gather" and "layer" in m.what]
    assert {(m.phase, m.per, elements(whole, m), int(m.count.evaluate({}))) for m in sent} == {
        ("forward", "microbatch", LAYER - 2 * HIDDEN, LAYERS),
        ("backward", "microbatch", LAYER - 2 * HIDDEN, LAYERS),
        ("step", "step", 2 * HIDDEN, LAYERS),
    }
    assert first(numbers(zero=3, param_persistence_threshold=HIDDEN - 1), "M_stage_weights") == first(plain, "M_stage_weights")


def fetched(limit: int, live: int) -> int:
    """The most parameters that are gathered at once in a forward, after DeepSpeed's fetch_sub_module: one module after the other, each
    released when it is done, and whole parameters fetched ahead until there are enough."""
    queue = [size for _ in range(LAYERS) for size in WEIGHTS]
    ready: list[int] = []
    most = 0
    while queue or ready:
        current = ready.pop(0) if ready else queue.pop(0)
        ahead, room = 0, min(limit, live - current - sum(ready))
        while queue and ahead < room:
            ahead += queue[0]
            ready.append(queue.pop(0))
        most = max(most, current + sum(ready))
    return most


@pytest.mark.parametrize(("limit", "live"), [(5 * 10**7, 10**9), (5 * 10**7, 8 * 10**7), (0, 10**9)])
def test_parameters_fetched_ahead_as_a_replayed_queue_has_them(limit: int, live: int) -> None:
    given = {"prefetch_bucket_size": limit, "max_live_parameters": live, "param_persistence_threshold": HIDDEN}
    result = numbers({"fsdp_unit": "module"}, zero=3, **given)
    moment, without = first(result, "M_at_forward_dense"), numbers({"fsdp_unit": "module"}, zero=3, param_persistence_threshold=HIDDEN)
    # without limits a layer at work and the next are whole
    held = (moment - first(without, "M_at_forward_dense")) / 2 + 2 * (LAYER - 2 * HIDDEN)
    assert fetched(limit, live) <= held < fetched(limit, live) + max(WEIGHTS)


def test_what_is_not_fetched_ahead_is_waited_for() -> None:
    sizes = ({}, {"prefetch_bucket_size": LAYER // 2}, {"prefetch_bucket_size": 0})
    plain, ahead, nothing = (numbers(system=SYSTEM, zero=3, **more) for more in sizes)
    gathers = first(plain, "c_f_fsdp_stage")
    assert first(nothing, "e_f_fsdp_stage") == pytest.approx(gathers)
    root = first(numbers(system=SYSTEM, zero=3, num_microbatches=1, micro_batch_size=64), "e_f_fsdp_stage")
    half = first(numbers(system=SYSTEM, zero=3, micro_batch_size=64, prefetch_bucket_size=LAYER // 2), "e_f_fsdp_stage")
    assert half == pytest.approx(root + (gathers - root) / 2, rel=1e-3)
    # one by one, whatever is fetched ahead at all is in time
    single = numbers({"fsdp_unit": "module"}, SYSTEM, zero=3, micro_batch_size=64, prefetch_bucket_size=1)
    assert first(single, "e_f_fsdp_stage") == pytest.approx(root)
    assert first(ahead, "e_f_fsdp_stage") >= half


def test_what_is_needed_again_soon_stays_gathered() -> None:
    kept = 4
    plain, near = numbers(zero=3), numbers(zero=3, max_reuse_distance=2 * kept * LAYER + 10**6)
    sent = {m.phase: m for m in messages(near) if m.op == "all_gather" and "layer" in m.what}
    assert tuple(int(sent[phase].count.evaluate({})) for phase in ("forward", "backward")) == (LAYERS, LAYERS - kept)
    assert first(near, "M_at_forward_head") - first(plain, "M_at_forward_head") == 2 * kept * LAYER
    assert first(near, "M_at_forward_dense") - first(plain, "M_at_forward_dense") == 2 * (kept - 1) * LAYER


def test_a_stage_without_layers_has_none_to_keep() -> None:
    """max_reuse_distance is shared out over layers, of which the last stage has none."""
    around = "dp=2,pp=2,num_microbatches=4,zero=3,fusion=eager,pipeline_model_parallel_layout=Etttttttttttttttttttttttt|L"
    model = load_model("gpt2-medium").architecture
    plain, near = (derive(model, load_strategy(f"{around}{more}")) for more in ("", ",max_reuse_distance=1000000000"))
    here, there = (float(result.stage_numbers(result.stages[1])["M_stage_peak"]) for result in (near, plain))
    assert here == there > 0


def test_the_host_gathers_what_is_sharded_alone() -> None:
    """Module by module: of a layer seven linear maps and two norms, which a threshold leaves whole, in forward, backward and again."""
    assumptions, around = {"fsdp_unit": "module"}, {"zero": 3, "seq_length": 64, "system": load_system("a800-sxm")}
    plain, whole = (numbers(assumptions, param_persistence_threshold=size, **around) for size in (None, HIDDEN))
    moved = float(plain.values["t_gather"]) * 2
    assert moved > 0
    saved = first(plain, "t_f_dense") - first(whole, "t_f_dense")
    assert saved == pytest.approx(moved)


def test_weights_that_are_kept_and_gathered_in_fp8() -> None:
    """A byte for rows and a byte for columns in place of the weight itself; norms and tables stay as they are."""
    narrow = LAYERS * sum(WEIGHTS)
    kept, whole = (numbers(fusion="te", fp8="tensorwise", fp8_param_gather=on) for on in (True, False))
    assert first(kept, "M_stage_weights") == 2 * (LAYERS * LAYER + TABLES)
    assert first(whole, "M_stage_weights") - first(kept, "M_stage_weights") == 2 * narrow
    gathers = {m.dtype: elements(kept, m) for m in messages(kept) if m.op == "all_gather"}
    assert gathers == {"fp8": narrow, "bf16": LAYERS * LAYER + TABLES - narrow}
    mixture = derive(load_model("mixtral-8x7b").architecture, Strategy(dp=8, ep=4, fp8="delayed", fp8_param_gather=True))
    experts = [m for m in messages(mixture) if m.op == "all_gather" and m.what == "expert parameters in FP8"]
    assert [elements(mixture, m) for m in experts] == [2 * 32 * 3 * 4096 * 14336]
    with pytest.raises(InputError, match="needs an FP8 recipe"):
        numbers(fusion="te", fp8_param_gather=True)


def test_weights_in_blocks_of_32_are_gathered_in_16_bits() -> None:
    """Megatron-Core param_and_grad_buffer.py; two forms of a byte and a scale of a byte for 32 are kept."""
    narrow = LAYERS * sum(WEIGHTS)
    kept = numbers(fusion="te", fp8="mxfp8", fp8_param_gather=True)
    assert first(kept, "M_stage_weights") == 2 * (LAYERS * LAYER + TABLES) + 2 * narrow // 32
    assert {m.dtype for m in messages(kept) if m.op == "all_gather"} == {"bf16"}


def test_narrow_weights_that_are_sharded() -> None:
    """zero=3: a rank's share in one byte, and no form of the whole but of the layer at work, whose bytes follow by its forms; gathers in
    a byte. keep_fp8_transpose_cache: another byte of every weight on every rank."""
    settings = {"fusion": "te", "fp8": "tensorwise", "zero": 3}
    plain, sharded = (numbers(**settings, fp8_param_gather=on) for on in (False, True))
    narrow, share = LAYERS * sum(WEIGHTS), int(plain.values["dp"])
    assert first(plain, "M_stage_weights") == 2 * (LAYERS * LAYER + TABLES) // share
    assert first(plain, "M_stage_weights") - first(sharded, "M_stage_weights") == narrow // share
    cached = numbers(**settings, fp8_param_gather=True, keep_fp8_transpose_cache=True)
    assert first(cached, "M_stage_weights") - first(sharded, "M_stage_weights") == narrow
    gathered = {m.dtype for m in messages(sharded) if m.op == "all_gather"}
    assert gathered == {"fp8", "bf16"} and {m.dtype for m in messages(plain) if m.op == "all_gather"} == {"bf16"}
    one = numbers({"fp8_layouts": "any"}, **settings, fp8_param_gather=True)
    assert first(sharded, "M_at_backward_dense") - first(one, "M_at_backward_dense") == sum(WEIGHTS)


def test_shards_that_are_cast_before_they_are_gathered_have_no_narrow_copy() -> None:
    """torch's FSDP keeps the shards that the optimizer updates alone, whatever they are gathered in."""
    plain, cast = (numbers({"fsdp_parameters": "main"}, fusion="te", fp8="tensorwise", zero=3, fp8_param_gather=on) for on in (False, True))
    assert first(plain, "M_stage_weights") == first(cast, "M_stage_weights")
    assert {m.dtype for m in messages(cast) if m.op == "all_gather"} == {"fp8", "bf16"}


def test_megatron_and_swift_say_so() -> None:
    words = "--bf16 --fp8-format hybrid --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer --micro-batch-size 1".split()
    made = load_job("megatron", *words, model="llama3-8b")
    assert dict(made.strategy or {})["fp8_param_gather"] is True
    command = "megatron sft --model Qwen/Qwen2.5-7B --fp8_format hybrid --fp8_recipe mxfp8 --fp8_param_gather true".split()
    assert dict(load_job("swift", *command).strategy or {})["fp8_param_gather"] is True


def test_states_that_instances_share_too() -> None:
    """Hybrid-FSDP: states over all ranks, weights and gradients over those of an instance; between instances gradients are scattered and
    what is updated is gathered, once a step (Megatron-Core docs/user-guide/features/megatron_fsdp.md)."""
    settings = {"fusion": "te", "zero": 3, "num_distributed_optimizer_instances": 2, "num_microbatches": 4}
    plain, shared = (numbers(**settings, outer_dp_sharding_strategy=outer) for outer in ("no_shard", "optim"))
    held = LAYERS * LAYER + TABLES
    assert [first(r, "M_stage_optimizer") for r in (plain, shared)] == [12 * held // 4, 12 * held // 8]
    assert all(first(plain, name) == first(shared, name) for name in ("M_stage_weights", "M_stage_gradients"))
    between = [m for m in messages(shared) if "inter" in m.axis]
    assert {(m.op, m.dtype, m.per) for m in between} == {("reduce_scatter", "fp32", "step"), ("all_gather", "bf16", "step")}
    times = shared.stage_numbers(shared.stages[0])
    for op in ("reduce_scatter", "all_gather"):
        assert sum(elements(shared, m) * int(m.count.evaluate(times)) for m in between if m.op == op) == held // 4
    with pytest.raises(InputError, match="outer_dp_sharding_strategy=optim shards states over replicas"):
        numbers(zero=3, outer_dp_sharding_strategy="optim")


def test_what_is_counted_for_logs_is_a_pass_each() -> None:
    """Of the gradients, and of the parameters that the optimizer updates, on the share that a rank owns."""
    owned = (LAYERS * LAYER + TABLES) // RANKS
    plain, zeros, norm = (numbers(system=SYSTEM, zero=1, **more) for more in ({}, {"log_num_zeros_in_grad": True}, {"log_params_norm": True}))
    for result in (zeros, norm):
        added = first(result, "t_opt_stage") - first(plain, "t_opt_stage")
        assert added == pytest.approx(4 * owned / (first(plain, "eta_mem") * first(plain, "B_hbm")), rel=0.05)


_WORDS = "--bf16 --micro-batch-size 1 --overlap-grad-reduce --use-distributed-optimizer --seq-length 512 --world-size 32".split()


def test_megatrons_weight_shards_are_groups_of_fsdp() -> None:
    made = load_job("megatron", *_WORDS, *"--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 8".split(), model="llama3-8b")
    strategy = dict(made.strategy or {})
    expected = {"zero": 3, "num_distributed_optimizer_instances": 4, "outer_dp_sharding_strategy": "optim", "tp": 2, "dp": 16}
    assert {name: strategy[name] for name in expected} == expected and "fsdp_unit" not in made.assumptions
    assert {row.fate for row in made.rows if row.key.endswith("weight-shards")} == {"mapped"}
    one = load_job("megatron", *_WORDS, *"--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 2".split(), model="llama3-8b")
    assert dict(one.strategy or {})["zero"] == 1
    with pytest.raises(InputError, match="tensor_parallel_num_weight_shards is 6; it should be tp times a divisor of the 16 ranks"):
        load_job("megatron", *_WORDS, *"--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 6".split(), model="llama3-8b")


def _experts_sharded(*words: str) -> Any:
    """Mixtral on 32 ranks in bf16, with 8 ranks to an expert, as Megatron's words say."""
    job = load_job("megatron", *_WORDS, *"--expert-model-parallel-size 4 --global-batch-size 128".split(), *words, model="mixtral-8x7b")
    return derive(load_model("mixtral-8x7b").architecture, Strategy.model_validate(dict(job.strategy or {})), job.assumptions, None, SYSTEM)


def test_weight_shards_of_experts_alone() -> None:
    """Experts are cut over groups of their ranks and gathered for every use; all others are as under the distributed optimizer (Megatron-LM
    docs/api-guide/core/generalized_tensor_parallel.md)."""
    plain, cut = _experts_sharded(), _experts_sharded("--expert-tensor-parallel-num-weight-shards", "2")
    assert cut.strategy.expert_shard_ranks == 2
    dense, expert = (int(first(plain, f"P_stage_{part}")) for part in ("dense", "expert"))
    for name, width in (("M_stage_weights", 2), ("M_stage_gradients", 4)):
        assert (first(plain, name), first(cut, name)) == ((dense + expert) * width, (dense + expert // 2) * width)
    assert first(plain, "M_stage_optimizer") == first(cut, "M_stage_optimizer") == pytest.approx(12 * (dense / 32 + expert / 8))
    ways = [{(m.op, m.dtype, m.per) for m in messages(r) if m.axis.endswith("dp_cp")} for r in (plain, cut)]
    assert ways[0] == ways[1] == {("reduce_scatter", "fp32", "step"), ("all_gather", "bf16", "step")}
    own = [m for m in messages(cut) if m.axis == "intra_edp"]
    gathers = [("all_gather", phase, "microbatch") for phase in ("backward", "forward")]
    assert sorted((m.op, m.phase, m.per) for m in own) == [*gathers, ("reduce_scatter", "backward", "microbatch")]
    assert {int(m.group.evaluate(cut.stage_numbers(cut.stages[0]))) for m in own} == {2}
    assert {b.kind: b.shard for b in gradient_buffers(cut, cut.stages[0])} == {"dense": 32, "expert": 2}
    # a layer's experts are gathered as it runs, and the next one's with them
    layer, running = expert // LAYERS, "M_at_backward_moe"
    assert first(plain, running) - first(cut, running) == expert // 2 * 6 - layer * 2 * 2


def test_weight_shards_of_other_weights_alone() -> None:
    """Those of experts are whole on every rank then."""
    cut = _experts_sharded("--tensor-parallel-num-weight-shards", "8")
    assert cut.strategy.expert_shard_ranks == 1
    dense, expert = (int(first(cut, f"P_stage_{part}")) for part in ("dense", "expert"))
    assert first(cut, "M_stage_weights") == 2 * (dense // 8 + expert)
    assert {(m.op, m.per) for m in messages(cut) if m.axis == "inter_edp"} == {("reduce_scatter", "step"), ("all_gather", "step")}
    assert not [m for m in messages(cut) if m.axis in ("edp", "intra_edp")]


def test_experts_that_one_rank_has_need_no_owners() -> None:
    """Other weights in as many shards as there are ranks, and each expert on one of them: nothing is sent once a step."""
    words = "--expert-model-parallel-size 32 --tensor-parallel-num-weight-shards 32".split()
    given = "--bf16 --micro-batch-size 1 --use-distributed-optimizer --seq-length 512 --world-size 32".split()
    job = load_job("megatron", *given, *words, model="qwen3-30b-a3b")
    cut = derive(load_model("qwen3-30b-a3b").architecture, Strategy.model_validate(dict(job.strategy or {})), job.assumptions, None, SYSTEM)
    assert (cut.strategy.expert_shard_ranks, cut.strategy.expert_dp) == (1, 1)
    dense, expert = (int(first(cut, f"P_stage_{part}")) for part in ("dense", "expert"))
    assert first(cut, "M_stage_weights") == 2 * (Fraction(dense, 32) + expert)
    assert not [m for m in messages(cut) if "edp" in m.axis or (m.per == "step" and m.op in ("reduce_scatter", "all_gather"))]


def test_weight_shards_without_a_distributed_optimizer() -> None:
    """Experts on every rank, with whole states, are not those of FSDP's copies: a row says so."""
    words = "--expert-model-parallel-size 4 --tensor-parallel-num-weight-shards 4".split()
    given = [word for word in _WORDS if word != "--use-distributed-optimizer"]
    job = load_job("megatron", *given, *words, model="mixtral-8x7b")
    strategy = dict(job.strategy or {})
    assert (strategy["zero"], strategy["num_distributed_optimizer_instances"], "expert_shard_ranks" in strategy) == (3, 8, False)
    (row,) = (row for row in job.rows if row.fate == "not_modelled" and "expert" in row.key and "shards" in row.key)
    assert "here they are in 8 copies, as the other weights" in row.why
    with pytest.raises(InputError, match="num_distributed_optimizer_instances=2: Megatron-LM runs weights in shards with one instance"):
        load_job("megatron", *_WORDS, *words, "--num-distributed-optimizer-instances", "2", model="mixtral-8x7b")


def test_shards_of_experts_that_are_none() -> None:
    moe = load_model("mixtral-8x7b").architecture
    for given, said in (
        ({"zero": 1}, "expert_shard_ranks=2 says over how many ranks FSDP .zero=3. shards experts, and zero is 1"),
        ({"zero": 3, "expert_shard_ranks": 3}, "expert_shard_ranks=3 does not divide the 8 ranks that share an expert; valid: 1, 2, 4, 8"),
        ({"zero": 3, "num_distributed_optimizer_instances": 8}, "give outer_dp_sharding_strategy=optim"),
        ({"zero": 3, "reshard_after_backward": False}, "expert_shard_ranks=2 and reshard_after_backward=false are of two frameworks"),
        ({"zero": 3, "gradient_sync": "last_microbatch"}, "expert_shard_ranks=2 and gradient_sync=last_microbatch are of two frameworks"),
    ):
        with pytest.raises(InputError, match=said):
            derive(moe, Strategy(**{"dp": 8, "expert_shard_ranks": 2, **given}), {}, None, None)


def test_megatrons_hybrid_fsdp() -> None:
    words = "--use-megatron-fsdp --num-distributed-optimizer-instances 4 --outer-dp-sharding-strategy optim --log-num-zeros-in-grad".split()
    strategy = dict(load_job("megatron", *_WORDS, *words, model="llama3-8b").strategy or {})
    assert (strategy["zero"], strategy["outer_dp_sharding_strategy"], strategy["log_num_zeros_in_grad"]) == (3, "optim", True)
