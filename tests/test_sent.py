"""What a layer sends that hangs on one fact each: around experts, inside the loss, for the balance of experts, in FP8; and over which
ranks the gradient of each parameter is summed."""

from __future__ import annotations

import pytest

from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.lowering.lower import lower
from symsim.lowering.remember import Remembered

EXPERTS = {"tp": 2, "sp": True, "ep": 2, "dp": 2}


def block(model: str, name: str, **strategy: object) -> Remembered:
    architecture = load_model(model).architecture
    if name == "mtp":
        architecture = architecture.model_copy(update={"mtp_num_layers": 1})
    return lower(architecture, Strategy(**strategy), {}).blocks[name]  # type: ignore[arg-type]


def sent(made: Remembered, within: str) -> list[str]:
    """Messages of the operations of a scope: phase, collective, axes, elements handed in and got back, type."""
    names = [op.name for op in made.placed.block.ops]
    both = [*made.differentiated.forward_messages, *made.backward_messages]
    return [f"{m.phase} {m.op} {m.axis} {m.send_elements} {m.receive_elements} {m.dtype}" for i, m in both if names[i].startswith(within)]


def test_rows_are_gathered_over_etp_and_scattered_after_the_second_product() -> None:
    """token_dispatcher.py, alltoall: exchanged over ep, rows and their probabilities gathered over etp for the first product and the
    activation; the second product's partial sums scattered, and exchanged back."""
    rows, weights = "K*b*h*lam*s/tp", "K*b*lam*s/tp"
    assert sent(block("mixtral-8x7b", "moe", **EXPERTS), "moe.experts") == [
        "forward all_gather etp_ep E E*ep*etp int64",
        f"forward all_to_all ep K*b*h*s/tp {rows} bf16",
        f"forward all_to_all ep K*b*s/tp {weights} bf16",
        f"forward all_gather etp {rows} K*b*etp*h*lam*s/tp bf16",
        f"forward all_gather etp {weights} K*b*etp*lam*s/tp bf16",
        f"forward reduce_scatter etp K*b*etp*h*lam*s/tp {rows} bf16",
        f"forward all_to_all ep {rows} K*b*h*s/tp bf16",
        f"backward all_to_all ep K*b*h*s/tp {rows} bf16",
        f"backward all_gather etp {rows} K*b*etp*h*lam*s/tp bf16",
        f"backward reduce_scatter etp K*b*etp*lam*s/tp {weights} bf16",
        f"backward reduce_scatter etp K*b*etp*h*lam*s/tp {rows} bf16",
        f"backward all_to_all ep {weights} K*b*s/tp bf16",
        f"backward all_to_all ep {rows} K*b*h*s/tp bf16",
    ]


def test_the_allgather_dispatcher_sums_over_etp_as_it_scatters() -> None:
    """Partial sums of experts split over etp need no collective of their own; the map has no gradient."""
    tokens, all_tokens, routes, all_routes = "b*h*s/tp", "b*ep*etp*h*s/tp", "E*b*s/tp", "E*b*ep*etp*s/tp"
    assert sent(block("mixtral-8x7b", "moe", **EXPERTS, moe_token_dispatcher_type="allgather"), "moe.experts") == [
        f"forward all_gather etp_ep {routes} {all_routes} bool",
        f"forward all_gather etp_ep {routes} {all_routes} bf16",
        f"forward all_gather etp_ep {tokens} {all_tokens} bf16",
        f"forward reduce_scatter etp_ep {all_tokens} {tokens} bf16",
        f"backward all_gather etp_ep {tokens} {all_tokens} bf16",
        f"backward reduce_scatter etp_ep {all_tokens} {tokens} bf16",
        f"backward reduce_scatter etp_ep {all_routes} {routes} bf16",
    ]


def test_probabilities_in_fp32_make_what_experts_sum_fp32() -> None:
    found = sent(block("mixtral-8x7b", "moe", **EXPERTS, moe_router_dtype="fp32"), "moe.experts.fc2")
    assert [line.split()[1] for line in found] == ["reduce_scatter", "all_gather"] and all(line.endswith("fp32") for line in found)


@pytest.mark.parametrize(
    ("fusion", "expected"),
    [
        ("unfused", ["forward all_reduce tp b*s b*s fp32"] * 3),
        ("native", ["forward all_reduce tp b*s b*s fp32", "forward all_reduce tp 2*b*s 2*b*s fp32"]),
        ("te", ["forward all_gather tp 3*b*s 3*b*s*tp fp32"]),
    ],
)
def test_a_loss_over_a_split_vocabulary(fusion: str, expected: list[str]) -> None:
    """tensor_parallel/cross_entropy.py, fusions/fused_cross_entropy.py, TransformerEngine triton/cross_entropy.py."""
    assert sent(block("llama3-8b", "head", tp=2, cross_entropy_fusion=fusion), "loss") == expected


def test_a_depth_gathers_the_best_token_of_every_rank() -> None:
    """multi_token_prediction.py: the largest logit, and which it is."""
    found = sent(block("deepseek-v3", "mtp", tp=2), "loss")
    assert found[3:] == ["forward all_gather tp b*s b*s*tp bf16", "forward all_gather tp b*s b*s*tp int64"]


@pytest.mark.parametrize(
    ("balancing", "expected"),
    [
        ("aux_loss", "forward all_reduce tp_cp E E int64"),
        ("seq_aux_loss", "forward all_reduce tp_cp E*b E*b int64"),
        ("global_aux_loss", "forward all_reduce tp_dp_cp E E int64"),
    ],
)
def test_loads_of_experts(balancing: str, expected: str) -> None:
    """transformer/moe/router.py: of all tokens, of every sequence, of all data ranks too."""
    made = block("mixtral-8x7b", "moe", tp=2, sp=True, dp=2, moe_router_load_balancing_type=balancing)
    assert sent(made, "moe.gate.top_k") == [expected]
    ((_, message),) = [(i, m) for i, m in made.differentiated.forward_messages if "tokens per expert for" in m.what]
    assert ("dp" in message.group.symbols()) == (balancing == "global_aux_loss")


def test_fp8_inputs_are_gathered_in_fp8_and_their_gradients_scattered_in_bf16() -> None:
    assert sent(block("llama3-8b", "dense", tp=2, sp=True, fp8="mxfp8"), "attention.qkv") == [
        "forward all_gather tp b*h*s/tp b*h*s fp8",
        "backward reduce_scatter tp b*h*s b*h*s/tp bf16",
        "backward all_gather tp b*h*s/tp b*h*s fp8",
    ]


def test_over_which_ranks_gradients_are_summed() -> None:
    """Weights over the ranks of other tokens, experts' over those that hold the same experts, norms and routers over tp too."""
    found = block("mixtral-8x7b", "moe", tp=2, sp=True, ep=2, dp=4, cp=2).differentiated.reduced_over
    everywhere = ("cp", "dp", "tp")
    assert {name.removesuffix(".weight"): axes for name, axes in found.items()} == {
        **{name: ("edp",) for name in ("moe.experts.fc1", "moe.experts.down_proj")},
        **{name: everywhere for name in ("moe.gate.router", "pre_mlp_norm", "pre_attention_norm")},
        **{name: ("cp", "dp") for name in ("attention.o_proj", "attention.qkv")},
    }


def test_biases_see_the_tokens_that_are_there_when_they_are_added() -> None:
    """A column-parallel bias has the whole sequence and its own columns; a row-parallel one is added after the scatter."""
    found = block("gpt2", "dense", tp=2, sp=True, dp=2).differentiated.reduced_over
    biases = {name.removesuffix(".bias"): axes for name, axes in found.items() if name.endswith("proj.bias") or name.endswith("qkv.bias")}
    assert biases == {
        **{name: ("dp",) for name in ("attention.qkv", "mlp.up_proj")},
        **{name: ("dp", "tp") for name in ("attention.o_proj", "mlp.down_proj")},
    }


def test_without_a_distributed_optimizer_gradients_are_summed_whole() -> None:
    result = derive(load_model("llama3-8b").architecture, Strategy(tp=2, sp=True, dp=8, zero=0))
    at = result.stage_numbers(result.stages[0])
    over_data = [m for m in result.stage_messages(result.stages[0]) if m.axis == "dp_cp"]
    assert [(m.op, int(m.send_bytes.evaluate(at)), int(m.receive_bytes.evaluate(at))) for m in over_data] == [("all_reduce", *[4 * 4015263744] * 2)]
