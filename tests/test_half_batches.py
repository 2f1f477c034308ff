"""tp_comm_halves: all-reduces of half batches beside the other half, against a replay of two halves that take turns."""

from __future__ import annotations

import random

import pytest

import symsim
from symsim.algebra.expr import expr
from symsim.api.result import Result
from symsim.cost.half_batches import Turn, exposed
from symsim.errors import InputError

MODEL = "llama2-7b"
BASE = "tp=4,fusion=eager,micro_batch_size=4"


def derived(options: str = "", model: str = MODEL) -> Result:
    return derived_at(f"{BASE}{options}", model)


def derived_at(strategy: str, model: str = MODEL, **overrides: str) -> Result:
    made = symsim.derive(model, strategy, system="a100-sxm-80", assumptions={"host_launch": "hidden"}, overrides=overrides)
    assert isinstance(made, Result)
    return made


def replayed(computes: list[float], halves: list[float], after: float, layers: int) -> float:
    """Seconds of two half batches through so many layers on one rank: its kernels in turn, its messages in turn."""
    device = network = 0.0
    arrived = [0.0, 0.0]
    for _ in range(layers):
        for compute, half in zip(computes, halves):
            for side in (0, 1):
                device = max(device, arrived[side]) + compute / 2
                network = max(network, device) + half
                arrived[side] = network
        for side in (0, 1):
            if after:
                device = max(device, arrived[side]) + after / 2
    return max(device, *arrived)


@pytest.mark.parametrize("seed", range(40))
def test_turns_are_the_replay_where_computation_is_longer(seed: int) -> None:
    """A layer alone, exactly; many in a row, once each, with the last message of the last layer."""
    draw = random.Random(seed)
    computes = [draw.uniform(2, 4) for _ in range(draw.choice((1, 2, 3)))]
    halves = [draw.uniform(0.1, 0.9) for _ in computes]
    turns = [Turn(expr(c), expr(c), expr(h)) for c, h in zip(computes, halves)]
    whole = sum(computes)
    found = float(exposed("layer", turns, expr(0)).expr.evaluate({}))
    assert replayed(computes, halves, 0, 1) == pytest.approx(whole + found)
    across = float(exposed("model", turns, expr(0)).expr.evaluate({}))
    assert replayed(computes, halves, 0, 5) == pytest.approx(5 * (whole + across) + halves[-1])


def test_where_messages_are_longer_than_what_hides_them() -> None:
    """Attention, its message, feed-forward, its message: what is left beside each half, written out."""
    a, m, h = 2.0, 6.0, 2.5
    turns = [Turn(expr(a), expr(a), expr(h)), Turn(expr(m), expr(m), expr(h))]
    layer = max(0, h - a / 2) + 2 * max(0, h - m / 2) + h
    model = 2 * max(0, h - a / 2) + 2 * max(0, h - m / 2)
    linear = 2 * h + max(0, h - a / 2) + max(0, h - m / 2)
    assert [float(exposed(level, turns, expr(0)).expr.evaluate({})) for level in ("layer", "model", "linear")] == [layer, model, linear]


def of(numbers: dict[str, float], prefix: str, *names: str) -> float:
    """Seconds of the layer's kernels whose operations begin with these names."""
    return sum(float(t) for n, t in numbers.items() if n.startswith(tuple(f"{prefix}_dense_{name}" for name in names)))


def taking_turns(computes: list[float], half: float, after: float, level: str) -> float:
    """Layer and model, written out: each half's message beside the other half's computation."""
    left = 0.0
    for at, compute in enumerate(computes):
        following = computes[at + 1] if at + 1 < len(computes) else after + computes[0]
        left += max(0, half - compute / 2)
        left += half if level == "layer" and at + 1 == len(computes) else max(0, half - following / 2)
    return left


@pytest.mark.parametrize("bandwidth", ["200 GB/s", "30 GB/s", "2 GB/s"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_layer_of_a_model(bandwidth: str, recompute: str) -> None:
    """Seconds of the layer's own kernels and messages, put together by hand, at networks that hide much and little."""
    tail = f",recompute={recompute}"
    numbers = {level: derived_at(f"{BASE}{tail},tp_comm_halves={level}", B_1=bandwidth).numbers for level in ("none", "linear", "layer", "model")}
    own = numbers["none"]
    half = float(derived_at(f"tp=4,fusion=eager,micro_batch_size=2{tail}", B_1=bandwidth).numbers["c_f_dense_tp"]) / 2
    attention, after = of(own, "t_f", "attention", "pre_attention"), of(own, "t_f", "add_ffn")
    mlp = of(own, "t_f", "mlp", "pre_mlp", "add_attention")
    assert attention + mlp + after == pytest.approx(float(own["t_f_dense"]))
    products = [float(own[f"t_f_dense_{name}"]) for name in ("attention_o_proj", "mlp_down_proj")]
    forward = {level: float(n["e_f_dense_tp"]) for level, n in numbers.items()}
    assert forward["linear"] == pytest.approx(sum(half + max(0, half - p / 2) for p in products))
    for level in ("layer", "model"):
        assert forward[level] == pytest.approx(taking_turns([attention, mlp], half, after, level))
    back = [of(own, "t_b", "mlp", "add_ffn"), of(own, "t_b", "attention", "add_attention", "pre_mlp")]
    behind = of(own, "t_b", "pre_attention")
    assert sum(back) + behind == pytest.approx(float(own["t_i_dense"] + own["t_w_dense"]))
    tag = "dense"
    if recompute == "full":
        # what runs again ends with the last saved tensor, before the sums of the second product
        tag, sums = "dense_ckpt", float(own["t_r_dense_ckpt"])
        back = [attention, back[0] + sums - attention, back[1]]
    for level in ("layer", "model"):
        assert float(numbers[level][f"e_b_{tag}_tp"]) == pytest.approx(taking_turns(back, half, behind, level))


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("model", ["llama2-7b", "llama3-8b"])
def test_backward_hides_no_more_than_there_is(model: str, recompute: str) -> None:
    tag = "dense_ckpt" if recompute == "full" else "dense"
    for level in ("linear", "layer", "model"):
        numbers = derived(f",tp_comm_halves={level},recompute={recompute}", model).numbers
        assert 0 <= numbers[f"e_b_{tag}_tp"] < 1.05 * numbers[f"c_b_{tag}_tp"]
    steps = [float(derived(f",tp_comm_halves={level},recompute={recompute}", model).value("time.step")) for level in ("none", "linear", "model")]
    assert steps[0] > steps[1] > steps[2]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="with sp=true there is none"):
        derived(",sp=true,tp_comm_halves=layer")
    with pytest.raises(InputError, match="micro_batch_size is 3"):
        symsim.derive(MODEL, "tp=4,micro_batch_size=3,tp_comm_halves=layer")
