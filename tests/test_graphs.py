"""CUDA graphs by scope: whose launches the host pays one by one, and what stays in memory for a graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

LAUNCH = 1e-3  # slower than any kernel here, so that every phase is what the host takes


@cache
def made(model: str = "mixtral-8x7b", **options: Any) -> Result:
    given = {"seq_length": 64, "num_microbatches": 2, **options}
    given |= {"ep": 8, "dp": 8} if model == "mixtral-8x7b" else {}
    return derive(load_model(model).architecture, Strategy(**given), {}, {"t_launch": "1 ms"}, load_system("h100-sxm"))


def launches(result: Result, block: str, phase: str) -> int:
    return round(float(result.numbers[f"t_{phase}_{block}"]) / LAUNCH)


def of(scope: str) -> dict[str, Any]:
    return {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": tuple(scope.split(","))}


# kernels of a layer of Mixtral: its norm, queries with keys and values and a copy of them apart, two rotary embeddings of 6, a copy of values,
# attention, the projection and the sum; a norm, the router and 18 of top-K; 8 that sort tokens
ATTENTION, ROUTER, SORTING = 1 + 2 + 6 + 6 + 1 + 1 + 1 + 1, 1 + 1 + 18, 8


@pytest.mark.parametrize(
    ("scope", "saved"),
    [
        ("attn", ATTENTION - 1),
        ("moe_router", ROUTER - 1),
        ("moe_router,moe_preprocess", ROUTER - 1 + SORTING - 1),
        ("attn,moe_router,moe_preprocess", ATTENTION - 1 + ROUTER - 1 + SORTING - 1),
        ("mlp,mamba", 0),
    ],
)
def test_a_graph_is_one_launch(scope: str, saved: int) -> None:
    plain, graphed = made(), made(**of(scope))
    assert launches(plain, "moe", "f") - launches(graphed, "moe", "f") == saved
    assert launches(graphed, "head", "f") == launches(plain, "head", "f")


def test_weight_gradients_come_with_their_graph() -> None:
    whole = made("llama3-8b", cuda_graph_impl="local")
    assert launches(whole, "dense", "f") == launches(whole, "dense", "i") == 1
    assert float(whole.numbers["t_w_dense"]) < LAUNCH < float(made("llama3-8b").numbers["t_w_dense"])


def test_a_whole_iteration_leaves_no_launch() -> None:
    hidden = made(cuda_graph_impl="full_iteration")
    assert max(float(hidden.numbers[f"t_{p}_{b}"]) for p in "fiw" for b in ("moe", "head")) < LAUNCH
    assert float(hidden.value("time.step")) < 0.1 * float(made().value("time.step"))


def test_a_whole_iteration_is_one_launch_with_any_kernels() -> None:
    plain, hidden = made("llama3-8b", fusion="eager"), made("llama3-8b", fusion="eager", cuda_graph_impl="full_iteration")
    assert float(hidden.numbers["t_f_dense"]) < LAUNCH < float(plain.numbers["t_f_dense"])


@pytest.mark.parametrize(("scope", "graphs"), [("attn", 1), ("attn,moe_router,moe_preprocess", 2)])
def test_static_inputs_stay(scope: str, graphs: int) -> None:
    """A copy of the stream (64 tokens of 4096 in bf16) for each of 32 layers' graphs that begin with a norm."""
    plain, graphed = made(), made(**of(scope))
    assert float(graphed.value("memory.peak") - plain.value("memory.peak")) == graphs * 32 * 64 * 4096 * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cuda_graph_scope": ("attn",)}, "belongs to cuda_graph_impl"),
        ({"cuda_graph_impl": "full_iteration", "cuda_graph_scope": ("attn",)}, "belongs to cuda_graph_impl"),
        ({"cuda_graph_impl": "local"}, "needs rows of a fixed number"),
        (of("moe"), "needs rows of a fixed number"),
        (of("moe_preprocess"), "needs moe_router"),
        ({"cuda_graph_impl": "local", "fusion": "eager"}, "fusion=te only"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(**options)


def test_launches_of_a_profiled_step() -> None:
    """Megatron-Bridge counts 463,348 kernels of a rank in a step of Qwen3 30B: 64 micro-batches of 48 layers, HybridEP over 16 ranks. Every
    launch here is of a kernel, and its optimizer's kernels are not counted."""
    strategy = Strategy(ep=16, dp=16, num_microbatches=64, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="hybridep")
    model = load_model("qwen3-30b-a3b").architecture
    result = derive(model, strategy, {"moe_permute_fusion": "true"}, {"t_launch": "1 s"}, load_system("h100-sxm"))
    exposed = {p: float(result.numbers[f"e_{p}_moe_ep"]) for p in "fb"}
    of_a_layer = sum(float(result.numbers[f"t_{p}_moe"]) for p in "fiw") + sum(exposed.values())
    assert 64 * 48 * of_a_layer == pytest.approx(463_348, rel=0.08)
    # and a launch of the system's is no longer than the step of 20.99 s allows
    launch = load_system("h100-sxm").host
    assert launch is not None and launch.launch is not None
    assert float(launch.launch.value) * 463_348 < 20.99


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({}, True),
        ({"moe_token_dispatcher_type": "flex"}, True),
        ({"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}, False),
        ({"overlap_moe_expert_parallel_comm": True}, False),
    ],
)
def test_experts_wait_for_the_host_that_reads_how_many_rows_come(options: dict[str, Any], waits: bool) -> None:
    """A host that launches a whole layer, whose other parts are graphs, in less time than its kernels take, and its 16 experts in more: it has no
    launches ahead where it waits for their rows, so that the layer's forward is longer than its kernels by what it takes longer for them."""
    graphs = {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ("attn", "moe_router", "moe_preprocess")}
    strategy = Strategy(**{"ep": 8, "dp": 8, "seq_length": 16384, **graphs, **options})
    model, system = load_model("qwen3-30b-a3b").architecture, load_system("gb200-nvl72")
    result = derive(model, strategy, {"moe_permute_fusion": "true"}, {"t_launch": "80 us"}, system)
    names = (op.name.replace(".", "_") for op in result.lowered.blocks["moe"].placed.block.ops)
    kernels = sum(float(result.numbers.get(f"t_f_moe_{name}", 0)) for name in names)
    assert (float(result.numbers["t_f_moe"]) > kernels * 1.05) is waits
    assert float(result.numbers["t_f_moe"]) >= kernels * (1 - 1e-9)
