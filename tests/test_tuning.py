"""What is trained and what is not: counts of transformers' modules under PyTorch (tests/oracle/tuning.json), and what follows on a mesh."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from symsim.algebra.expr import expr
from symsim.api.result import Result, derive
from symsim.cost.hbm import forward_bytes
from symsim.errors import InputError
from symsim.evaluation.traffic import stage_messages
from symsim.grid.tabulate import Watched
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.ir.messages import Message
from symsim.lowering.checks_tuning import tuning
from symsim.report.kernels import block_kernels
from symsim.report.text import eval_table

ORACLE = json.loads((Path(__file__).parent / "oracle" / "tuning.json").read_text())


@cache
def counted(name: str) -> dict[str, int]:
    """symsim's counts of a case of the oracle."""
    case = ORACLE["cases"][name]
    model, _ = read_config(ORACLE["configs"][case["model"]], name, name)
    at = {"fusion": "eager", "micro_batch_size": ORACLE["batch"], "seq_length": ORACLE["length"], "grad_reduce_in_fp32": False}
    at |= {"main_params_dtype": case["strategy"].get("precision", "bf16")}
    result = derive(
        model, Strategy(**at, **{n: tuple(v) if isinstance(v, list) else v for n, v in case["strategy"].items()}), {"attention_kernel": "eager"}
    )
    (stage,) = result.stages
    numbers = result.stage_numbers(stage)
    width = 4 if "precision" in case["strategy"] else 2
    return {
        "parameters": int(result.value("params.total")),
        "trained": int(result.value("params.trained")),
        "gradients": int(numbers["M_stage_gradients"]) // width,
        "states": int(numbers["M_stage_optimizer"]),
        "kept": int(numbers["A_stage"]),
        "forward": int(result.value("flops.forward")),
        "backward": int(result.value("flops.backward")),
        "weights": int(numbers["M_stage_weights"]),
    }


@pytest.mark.long_after(12)
@pytest.mark.parametrize("name", ORACLE["cases"])
def test_counts_equal_pytorchs(name: str) -> None:
    case = ORACLE["cases"][name]
    expected = {what: n for what, n in case.items() if what not in ("model", "strategy")}
    assert {what: n for what, n in counted(name).items() if what in expected} == expected


@cache
def derived(model: str, strategy: str, system: str = "") -> Result:
    return derive(load_model(model).architecture, load_strategy(strategy), {}, None, load_system(system) if system else None)


def sent(result: Result, stage: int = 0) -> list[tuple[Message, int, int, int]]:
    """Messages of a stage: how often, elements handed in, elements got back."""
    at = result.stage_numbers(result.stages[stage])
    found = stage_messages(result, result.stages[stage])
    return [(m, *(int(expr(n).evaluate(at)) for n in (m.count, m.send_elements, m.receive_elements))) for m in found]


H, R, S, QKV, F, LAYERS = 4096, 8, 4096, 6144, 14336, 32
A_AND_B = {"qkv": (H, QKV), "proj": (H, H), "fc1": (H, 2 * F), "fc2": (F, H)}
"""Rows of A and columns of B of a layer of llama3-8b, whose q, k and v, and gate and up, are one product each."""


def test_adapters_split_as_their_weights_do() -> None:
    """Of a column-parallel weight B is split, of a row-parallel one A; the other half sees a share of the tokens."""
    result = derived("llama3-8b", "tp=4,sp=true,dp=2,tuner_type=lora")
    whole = {n: R * (a + b) for n, (a, b) in A_AND_B.items()}
    split = {n: R * (a + b // 4) if n in ("qkv", "fc1") else R * (a // 4 + b) for n, (a, b) in A_AND_B.items()}
    assert result.value("params.trained") == LAYERS * sum(whole.values())
    numbers = result.stage_numbers(result.stages[0])
    assert numbers["M_stage_gradients"] == 4 * LAYERS * sum(split.values())
    assert numbers["M_stage_optimizer"] == 12 * LAYERS * sum(split.values()) // 2
    assert numbers["M_stage_weights"] == 2 * numbers["P_stage"]
    found = sent(result)
    over_tp = [n for m, _, n, _ in found if m.phase == "step" and m.axis == "tp"]
    assert over_tp == [LAYERS * R * (2 * H + 2 * H)]  # A of qkv and fc1, B of proj and fc2: all of 4096
    (reduced,) = [n for m, _, n, _ in found if m.phase == "step" and m.op == "reduce_scatter"]
    assert reduced == LAYERS * sum(split.values())
    low = [(m.op, often) for m, often, n, back in found if m.phase == "forward" and m.axis == "tp" and R * S in (n, back)]
    assert sorted(low) == [("all_gather", 2 * LAYERS), ("reduce_scatter", 2 * LAYERS)]


def test_linear_maps_that_are_taken_out_have_no_adapters() -> None:
    whole = {n: R * (a + b) for n, (a, b) in A_AND_B.items()}
    left = derived("llama3-8b", "tuner_type=lora,exclude_modules=o_proj+linear_fc1")
    assert left.value("params.trained") == LAYERS * (whole["qkv"] + whole["fc2"])
    same = derived("llama3-8b", "tuner_type=lora,target_modules=linear_qkv+linear_fc2")
    assert same.value("params.trained") == left.value("params.trained")


def test_adapters_in_some_layers_are_in_these() -> None:
    """peft layers_to_transform: backward ends at the lowest layer that has one, and above the highest gradients pass."""
    lora = "tuner_type=lora,fusion=eager,lora_rank=8"
    every, named, some, two = (
        derived("llama3-8b", f"{lora},target_modules={targets}", "h100-sxm")
        for targets in ("all_linear", "layers.0-31", "layers.10-19", "layers.0-3.q_proj+layers.2-9.v_proj")
    )
    assert named.value("time.step") == every.value("time.step") and named.value("memory.peak") == every.value("memory.peak")
    assert 32 * some.value("params.trained") == 10 * every.value("params.trained")
    assert two.value("params.trained") == 8 * (4 * (4096 + 4096) + 8 * (4096 + 1024))
    assert [kind.replace("__", "_") for kind in some.model.kind_names()] == ["dense_frozen", "dense_lowest", "dense", "dense_passing"]
    assert some.value("flops.backward") < every.value("flops.backward") and some.value("memory.peak") < every.value("memory.peak")
    left = derived("llama3-8b", f"{lora},target_modules=q_proj+v_proj,exclude_modules=layers.0-1+layers.4-5.v_proj")
    assert left.value("params.trained") == 8 * (30 * (4096 + 4096) + 28 * (4096 + 1024))


def test_without_sequence_parallelism_products_of_rank_r_are_reduced() -> None:
    found = sent(derived("llama3-8b", "tp=4,tuner_type=lora"))
    low = [(m.phase, m.op, often) for m, often, n, _ in found if m.axis == "tp" and n == R * S]
    # forward: x A of proj and fc2, split by rows; backward: the gradients of x A of qkv and fc1, whose B are split
    assert sorted(low) == [("backward", "all_reduce", 2 * LAYERS), ("forward", "all_reduce", 2 * LAYERS)]
    assert not [m for m, *_ in found if m.phase == "step"]  # every rank has the same gradient of what all hold


def test_sharded_parameters_are_gathered_whole_and_trained_ones_reduced() -> None:
    result = derived("llama3-8b", "zero=3,dp=8,tuner_type=lora")
    found = sent(result)
    whole, trained = result.value("params.total"), result.value("params.trained")
    for phase in ("forward", "backward"):
        assert sum(often * back for m, often, _, back in found if m.op == "all_gather" and m.phase == phase) == whole
    assert sum(often * n for m, often, n, _ in found if m.op == "reduce_scatter") == trained
    numbers = result.stage_numbers(result.stages[0])
    assert numbers["M_stage_weights"] == 2 * whole // 8 and numbers["M_stage_optimizer"] == 12 * trained // 8


def test_adapters_of_experts_are_the_experts() -> None:
    """Of every expert its own pair; gradients go over the ranks that hold the same experts."""
    result = derived("mixtral-8x7b", "ep=4,dp=8,tuner_type=lora,target_modules=experts")
    h, f, layers, experts = 4096, 14336, 32, 8
    own = R * (h + 2 * f) + R * (f + h)
    assert result.value("params.trained") == layers * experts * own
    (sizes,) = [(m.axis, n, m.group.evaluate(result.values)) for m, _, n, _ in sent(result) if m.phase == "step" and m.op == "reduce_scatter"]
    assert sizes == ("edp", layers * experts // 4 * own, 2)


def test_adapters_of_experts_split_by_etp_sum_what_saw_a_share_of_the_rows() -> None:
    result = derived("mixtral-8x7b", "tp=2,sp=true,etp=2,ep=2,dp=2,tuner_type=lora,target_modules=experts")
    (n,) = [n for m, _, n, _ in sent(result) if m.phase == "step" and m.axis == "etp"]
    assert n == 32 * 8 // 2 * R * (4096 + 4096)  # A of fc1 and B of fc2


def test_backward_ends_at_the_lowest_trained_layer() -> None:
    """Of four stages the first two have no backward, and what is below the third keeps nothing."""
    result = derived("llama3-8b", "pp=4,num_microbatches=8,freeze_parameters=embedding+layers.0-15", "h100-sxm")
    assert [(k, int(result.values[f"L_{k.replace('_', '__')}"])) for k in ("dense_frozen", "dense_lowest", "dense")] == [
        ("dense_frozen", 16),
        ("dense_lowest", 1),
        ("dense", 15),
    ]
    numbers = [result.stage_numbers(s) for s in result.stages]
    assert [n["Y_stage"] > 0 for n in numbers] == [False, False, True, True]
    assert [n["A_stage"] > 0 for n in numbers] == [False, False, True, True]
    assert [n["M_stage_optimizer"] > 0 for n in numbers] == [False, False, True, True]
    assert result.value("flops.backward") < derived("llama3-8b", "pp=4,num_microbatches=8", "h100-sxm").value("flops.backward") / 1.8


def test_a_frozen_run_that_gradients_pass_has_input_gradients_alone() -> None:
    result, full = derived("llama3-8b", "freeze_parameters=layers.8-15"), derived("llama3-8b", "")
    forward = {k: int(result.value(f"F_{k}")) for k in ("dense", "dense__passing")}
    backward = {k: int(result.value(f"G_{k}")) for k in ("dense", "dense__passing")}
    products = int(full.value("F_dense")) - int(full.value("F_dense_attention_core"))
    assert forward["dense"] == forward["dense__passing"] and backward["dense"] - backward["dense__passing"] == products


def test_full_recomputation_keeps_the_gradient_of_the_stream() -> None:
    """Adapters' libraries ask for a gradient of the embedding's result, without which a checkpointed first layer has no backward."""
    kinds = derived("llama3-8b", "tuner_type=lora,recompute=full").model.kind_names()
    assert kinds == ["dense"] and derived("llama3-8b", "tuner_type=lora").model.kind_names() == ["dense__lowest", "dense"]


def test_what_is_tuned_is_tuned_again_as_before() -> None:
    """An option is tried against its default on the model of a result: its own kinds come back."""
    first = derived("llama3-8b", "tuner_type=lora,lora_rank=16")
    again = derive(first.model, Strategy(tuner_type="lora", lora_rank=16), {}, None, None)
    assert again.model.kind_names() == first.model.kind_names() and again.value("flops.backward") == first.value("flops.backward")


def test_all_trained_is_what_it_was() -> None:
    names = derived("llama3-8b", "").derivation.definitions
    assert not [n for n in names if "trained" in n] and derived("llama3-8b", "").value("params.trained") == derived("llama3-8b", "").value("N")


def test_reports_say_what_is_trained() -> None:
    result, whole = derived("llama3-8b", "tuner_type=lora"), derived("llama3-8b", "")
    assert result.to_json()["params"]["trained"] == result.value("params.trained") == 17_825_792
    assert "trained" not in whole.to_json()["params"] and "17,825,792" in eval_table(result) and "trained" not in eval_table(whole)


def test_a_frozen_output_layer_makes_no_gradient_in_a_loss_that_has_it() -> None:
    losses = {how: derived("llama3-8b", f"cross_entropy_fusion={how},freeze_parameters=lm_head") for how in ("unfused", "liger", "cut")}
    forward = losses["unfused"].value("F_head_lm_head_lm_head")
    assert [int(r.value("G_head") / forward) for r in losses.values()] == [1, 1, 2]
    assert not [s.name for s in losses["liger"].lowered.blocks["head"].saved if "weight_gradient" in s.name]


def test_adapters_save_time_and_memory() -> None:
    full, lora = derived("llama3-8b", "tp=2,sp=true,dp=4", "h100-sxm"), derived("llama3-8b", "tp=2,sp=true,dp=4,tuner_type=lora", "h100-sxm")
    assert 0.6 < lora.value("time.step") / full.value("time.step") < 0.9
    assert lora.value("memory.peak") < full.value("memory.peak") / 2


LINEAR = LAYERS * sum(a * b for a, b in A_AND_B.values())
"""Elements of all linear maps of the layers of llama3-8b."""


def weights(strategy: str) -> int:
    result = derived("llama3-8b", strategy)
    return int(result.stage_numbers(result.stages[0])["M_stage_weights"])


def test_stored_weights_have_blocks_of_64_with_scales() -> None:
    whole = weights("tuner_type=lora")
    of = {q: whole - weights(f"tuner_type=lora,quantize_base={q}") for q in ("nf4", "nf4_double", "nf4_torchao", "int8")}
    blocks, superblocks = LINEAR // 64, LINEAR // 64 // 256
    rows = LAYERS * sum(b for _, b in A_AND_B.values())
    packed = {"nf4": LINEAR // 2 + 4 * blocks, "int8": LINEAR + 4 * rows}
    packed |= {"nf4_double": LINEAR // 2 + blocks + 4 * superblocks, "nf4_torchao": LINEAR // 2 + blocks + 2 * superblocks}
    assert of == {q: 2 * LINEAR - n for q, n in packed.items()}


def test_what_is_trained_is_not_stored_in_few_bits() -> None:
    """A module trained whole keeps its 16 bits."""
    both = [weights(f"tuner_type=lora,modules_to_save=down_proj,quantize_base={q},fusion=eager") for q in ("none", "nf4")]
    down = LAYERS * 4096 * 14336
    assert both[0] - both[1] == (LINEAR - down) * 23 // 16


def test_shards_of_stored_weights_are_gathered_as_they_are() -> None:
    """bitsandbytes' scales are whole on every rank, torchao's are sharded and gathered with what they belong to."""
    lora = "zero=3,dp=8,tuner_type=lora"
    for name, each, scales in (("nf4", 0, 4 / 64), ("nf4_torchao", 1 / 64 + 2 / 64 / 256, 0)):
        result = derived("llama3-8b", f"{lora},quantize_base={name}")
        gathered = {m.phase: often * back for m, often, _, back in sent(result) if m.op == "all_gather" and m.dtype == name}
        assert gathered == {"forward": LINEAR, "backward": LINEAR}
        assert weights(lora) - weights(f"{lora},quantize_base={name}") == LINEAR * ((2 - 0.5 - each) / 8 - scales)


def test_stored_weights_are_made_anew_forward_and_backward() -> None:
    """Bytes of HBM: what is stored is read and 16 bits written, once each way, and once more where forward runs again."""
    for recompute, times in (("none", 2), ("full", 3)):
        plain, stored = (derived("llama3-8b", f"tuner_type=lora,recompute={recompute},quantize_base={q}", "h100-sxm") for q in ("none", "nf4"))
        bandwidth = 3.35e12 * 0.8
        more = float(stored.value("time.step") - plain.value("time.step"))
        assert more == pytest.approx(times * LINEAR * (0.5 + 4 / 64 + 2) / bandwidth, rel=0.25)
    per_layer = {q: derived("llama3-8b", f"tuner_type=lora,quantize_base={q}") for q in ("none", "nf4")}
    moved = {q: [r.value(f"{n}_dense") for n in ("Q", "U")] for q, r in per_layer.items()}
    assert [a - b for a, b in zip(moved["nf4"], moved["none"])] == [LINEAR // LAYERS * (9 / 16 + 2)] * 2


def test_products_of_integers_keep_their_input() -> None:
    """Inputs of qkv, fc1 and fc2, whose adapters keep what dropout leaves of them; that of proj attention keeps in any case."""
    results = {q: derived("llama3-8b", f"tuner_type=lora,lora_dropout=0.1,quantize_base={q}") for q in ("nf4", "int8")}
    saved = {q: {s.name for s in r.lowered.blocks["dense"].saved} for q, r in results.items()}
    assert len(saved["int8"] - saved["nf4"]) == 3 and saved["nf4"] < saved["int8"]


def test_stored_experts_are_asked_for() -> None:
    sizes = [
        derived("mixtral-8x7b", f"ep=8,dp=8,tuner_type=lora,target_modules=linear_qkv,quantize_base={q},quantize_experts={e}")
        for q, e in (("nf4", "false"), ("nf4", "true"))
    ]
    held = [r.stage_numbers(r.stages[0])["M_stage_weights"] for r in sizes]
    assert held[0] - held[1] == 32 * 3 * 4096 * 14336 * 23 // 16


def test_heads_take_the_vocabularys_place() -> None:
    """Parameters, products and the last stage's memory of a score of few columns; embeddings have none."""
    whole, (h, v) = derived("llama3-8b", ""), (4096, 128256)
    of = {task: derived("llama3-8b", f"task_type={task},num_labels=3") for task in ("seq_cls", "embedding")}
    assert whole.value("params.total") - of["seq_cls"].value("params.total") == h * v - 3 * h
    assert whole.value("params.total") - of["embedding"].value("params.total") == h * v
    assert whole.value("flops.forward") - of["seq_cls"].value("flops.forward") == 2 * S * h * (v - 3)
    split = derived("llama3-8b", "task_type=seq_cls,tp=4,sp=true,pp=2,num_microbatches=2")
    last = split.stage_numbers(split.stages[1])
    assert last["P_stage"] == split.stage_numbers(split.stages[0])["P_stage"] - h * v // 4 + h + 2 * h
    # gradients of what saw a share of the tokens: norms of 16 layers, the last one, and the scores
    assert [n for m, _, n, _ in sent(split, 1) if m.phase == "step" and m.axis == "tp"] == [(2 * 16 + 1 + 2) * h]


def test_a_new_head_is_trained_beside_adapters() -> None:
    both = [derived("llama3-8b", f"tuner_type=lora,task_type={task}").value("params.trained") for task in ("seq_cls", "embedding")]
    assert both[0] - both[1] == 2 * 4096


@pytest.mark.parametrize("fusion", ["te", "eager"])
def test_dropout_of_what_adapters_make_keeps_masks_of_it(fusion: str) -> None:
    """F.dropout keeps a byte a number: of what adapters make those of their outputs. Of inputs lora_A keeps what is left, of each adapter its own."""
    model = load_model("llama3-8b").architecture
    kept = {}
    for position in ("none", "pre", "post"):
        dropped = {} if position == "none" else {"lora_dropout": 0.1, "lora_dropout_position": position}
        result = derive(model, Strategy(tuner_type="lora", fusion=fusion, **dropped))
        kept[position] = result.numbers["A_dense"]
    maps = {
        "q": (4096, 4096),
        "k": (4096, 1024),
        "v": (4096, 1024),
        "o": (4096, 4096),
        "gate": (4096, 14336),
        "up": (4096, 14336),
        "down": (14336, 4096),
    }
    if fusion == "te":  # the joint products have one adapter each
        maps = {"qkv": (4096, 6144), "o": (4096, 4096), "fc1": (4096, 28672), "fc2": (14336, 4096)}
    assert kept["post"] - kept["none"] == 4096 * sum(out for _, out in maps.values())
    # what lora_A reads is no longer shared, nor kept as it came but for attention's result
    apart = {into: sum(1 for i, _ in maps.values() if i == into) for into, _ in maps.values()}
    shared = 2 * 4096 + 14336
    assert kept["pre"] - kept["none"] == 4096 * (3 * sum(into * n for into, n in apart.items()) - 2 * shared)


@pytest.mark.parametrize(("loss", "width"), [("torch", 2), ("torch_fp32", 4), ("unfused", 4)])
def test_pytorchs_loss_beside_kernels_of_transformer_engine(loss: str, width: int) -> None:
    """log_softmax keeps its result in the type of the logits, and moves a few bytes a logit where Megatron-Core's moves 38."""
    result = derive(load_model("llama3-8b").architecture, Strategy(cross_entropy_fusion=loss))
    saved = {s.tensor: s.bytes.evaluate(result.values) for s in result.lowered.blocks["head"].saved}
    assert max(saved.values()) == 4096 * 128256 * width
    placed = result.lowered.blocks["head"].placed
    (at,) = (k for k, op in enumerate(placed.block.ops) if op.kind == "cross_entropy")
    moved = forward_bytes(placed, at, result.lowered.profile).expr.evaluate(result.values) / (4096 * 128256)
    assert moved == pytest.approx(38 if loss == "unfused" else 2 * width, rel=1e-3)


def test_fp32_logits_in_chunks() -> None:
    """Copies in fp32 are there for an eighth of the tokens: of the backward's peak, two of them less."""
    at = "fusion=eager,tuner_type=lora,cross_entropy_fusion="
    peaks = {how: derived("llama3-8b", at + how) for how in ("unfused", "output_chunks", "output_chunks,cross_entropy_chunks=16")}
    peak = [int(r.value("memory.peak")) for r in peaks.values()]
    logits = S * 128256
    assert peak[0] - peak[1] > 4 * logits and 0 <= peak[1] - peak[2] <= 4 * logits // 8
    kept = [int(r.stage_numbers(r.stages[0])["A_stage"]) for r in peaks.values()]
    assert kept[0] == kept[1] == kept[2]


def test_fused_kernels_keep_what_they_read() -> None:
    """A norm keeps its input and a row's statistic, a gated activation its two inputs; PyTorch's operations more."""
    plain, fused = (derived("llama3-8b", f"fusion=eager{more}") for more in ("", ",fused_kernels=norm+activation"))
    kept = [int(r.stage_numbers(r.stages[0])["A_stage"]) for r in (plain, fused)]
    # of a layer's two norms an fp32 copy and the normalised input less, of the activation one more product
    assert kept[0] - kept[1] > LAYERS * S * (2 * 4 * 4096 + 2 * 14336)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("tuner_type=lora,target_modules=q_proj", "one product here, which has one adapter: give attention.qkv"),
        ("tuner_type=lora,target_modules=qproj", "no linear map is called so: did you mean 'q_proj'"),
        ("tuner_type=lora,target_modules=layers.30-40.linear_qkv", "target_modules=layers.30-40.linear_qkv: llama3-8b has layers 0 to 31"),
        ("tuner_type=lora,target_modules=layers.0-3.linear_qkw", "no linear map is called so: did you mean 'linear_qkv'"),
        ("tuner_type=lora,target_modules=layers", "target_modules=layers: no linear map is called so"),
        ("tuner_type=lora,exclude_modules=o_porj", "exclude_modules=o_porj: no linear map is called so: did you mean 'o_proj'"),
        ("tuner_type=lora,exclude_modules=k_proj", "exclude_modules=k_proj: .* one product here"),
        ("exclude_modules=o_proj", "give tuner_type=lora or oft"),
        ("tuner_type=lora,target_modules=lm_head", "modules_to_save=lm_head trains it whole"),
        ("fusion=eager,tuner_type=lora,target_modules=up_proj,exclude_modules=up_proj", "nothing is trained: exclude_modules leaves no adapter"),
        ("fusion=eager,tuner_type=lora,exclude_modules=attention+gate_proj+up_proj+down_proj", "nothing is trained"),
        ("tuner_type=lora,exclude_modules=all_linear", "leaves no linear map with an adapter"),
        ("tuner_type=lora,rank_pattern=linear_qkv", "rank_pattern=linear_qkv is not NAME=RANK, such as q_proj=16"),
        ("tuner_type=lora,rank_pattern=linear_qkv=0", "rank_pattern=linear_qkv=0 is not NAME=RANK"),
        ("tuner_type=lora,rank_pattern=linear_qvk=4", "rank_pattern=linear_qvk: no linear map is called so: did you mean 'linear_qkv'"),
        ("tuner_type=lora,rank_pattern=q_proj=4", "rank_pattern=q_proj: .* one product here"),
        ("tuner_type=lora,rank_pattern=layers.40.linear_qkv=4", "rank_pattern=layers.40.linear_qkv=4: llama3-8b has layers 0 to 31"),
        ("tuner_type=lora,target_modules=linear_fc1,rank_pattern=linear_qkv=4", "rank_pattern=linear_qkv=4: it is the rank of no adapter"),
        ("tuner_type=lora,rank_pattern=layers.0-15=16+layers.3=4", "rank_pattern=layers.3=4: .* an entry before says its rank"),
        ("freeze_parameters=embeding", "did you mean 'embedding'"),
        ("freeze_parameters=layers.0-99", "has layers 0 to 31"),
        ("freeze_parameters=layers.9-3", "has layers 0 to 31"),
        ("freeze_parameters=embedding+layers+lm_head+norm", "nothing is trained"),
        ("modules_to_save=norm", "tuner_type=lora"),
        ("tuner_type=loar", "lora"),
        ("tuner_type=lora,lora_dropout=1", "lora_dropout"),
        ("quantize_base=nf4", "give tuner_type=lora"),
        ("use_dora=true", "use_dora=true is of adapters beside frozen weights"),
        ("tuner_type=lora,quantize_base=nf4,tp=2", "give tp=1 and zero=3"),
        ("tuner_type=lora,use_dora=true,tp=2", "use_dora=true with tp above 1"),
        ("tuner_type=lora,quantize_base=int8,zero=3,dp=2", "shards weights of 4 bits alone"),
        ("tuner_type=lora,quantize_base=nf4,fp8=mxfp8", "give one of them"),
        ("tuner_type=lora,quantize_experts=true", "give quantize_base"),
        ("tuner_type=lora,quantize_base=nf5", "nf4"),
        ("task_type=seq_cls,cross_entropy_fusion=cut", "multiplies by the vocabulary, which task_type=seq_cls has not"),
        ("task_type=reward", "seq_cls"),
        ("cross_entropy_fusion=output_chunks", "give fusion=eager"),
        ("fused_kernels=norm", "fused_kernels=norm stand in place of PyTorch's modules"),
        ("cross_entropy_chunks=4", "output_chunks or liger or chunked"),
    ],
)
def test_what_cannot_be_trained_is_refused(strategy: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        derived("llama3-8b", strategy)


@pytest.mark.parametrize(("model", "task"), [("bert-base", "seq_cls"), ("distilbert-base", "seq_cls"), ("xlm-roberta-base", "seq_cls")])
def test_heads_of_classes_that_project_are_refused(model: str, task: str) -> None:
    """BertForSequenceClassification's pooler has h^2 + h parameters, and its scores a bias; BertForTokenClassification has neither pooler."""
    with pytest.raises(InputError, match=f"task_type={task}: a head of classes of .* has a projection before its scores"):
        derived(model, f"task_type={task}")
    assert derived(model, "task_type=token_cls,num_labels=3").value("N_lm_head") == 3 * 768 + 3


def test_rotations_in_layers_of_several_widths() -> None:
    """31/2 numbers an input: 2816 inputs of queries, keys, values (none in full layers), gate, up and router, 2112 of down, 4096 or 8192."""
    local, full = 6 * 2816 + 2112 + 4096, 5 * 2816 + 2112 + 8192
    assert derived("gemma-4-26b-a4b", "fusion=eager,tuner_type=oft").value("params.trained") == (25 * local + 5 * full) * 31 // 2
    # kinds of layers whose names are of several words
    with pytest.raises(InputError, match="does not divide the 2560 inputs of"):
        derived("gemma-4-e4b", "fusion=eager,tuner_type=oft,oft_block_size=48")


def test_an_update_in_backward_says_which_sharding_it_has() -> None:
    with pytest.raises(InputError, match="give zero=3, or zero=0 with dp=1"):
        derived("llama3-8b", "fusion=eager,optimizer_in_bwd=true,clip_grad=0")


def test_kinds_of_two_words_are_tuned() -> None:
    assert derived("llama4-maverick", "tuner_type=lora").model.kind_names()[0] == "chunked__dense__lowest"


def test_a_compiled_adapter_is_scaled_as_it_is_added() -> None:
    """One kernel reads both and writes their sum; backward reads a gradient and writes the adapter's alone."""
    made = {fusion: derived("llama3-8b", f"tuner_type=lora,target_modules=o_proj,fusion={fusion}", "h100-sxm") for fusion in ("eager", "compile")}
    blocks = {fusion: r.lowered.blocks["dense"].placed.block for fusion, r in made.items()}
    ops = {fusion: [op.name.rsplit(".", 1)[-1] for op in block.ops if "lora" in op.name] for fusion, block in blocks.items()}
    assert ops == {"eager": ["lora_A", "lora_B", "lora_scale", "lora_add"], "compile": ["lora_A", "lora_B", "lora_add"]}
    kernels = [k for k in block_kernels(made["compile"], "dense") if k.operation.endswith("lora_add")]
    assert [(k.phase, k.bytes) for k in kernels] == [("forward", 3 * 2 * S * H), ("backward", 2 * 2 * S * H)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("tuner_type=oft", "rotates each module's inputs by itself, which fusion=te does not have; give fusion=eager"),
        ("tuner_type=oft,fusion=eager,tp=2", "a block of inputs may lie on two ranks; give tp=1 and zero=3"),
        ("tuner_type=oft,fusion=eager,oft_block_size=48", "oft_block_size=48 does not divide the 4096 inputs of attention.qkv; valid: 1, 2, 4, 8"),
        ("tuner_type=oft,fusion=eager,use_dora=true", "use_dora=true is of adapters beside frozen weights; give tuner_type=lora"),
        ("tuner_type=oft,fusion=eager,autocast=true,zero=0", "give autocast=false"),
    ],
)
def test_rotations_that_no_framework_has(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        derived("llama3-8b", given)


def test_rotations_before_weights_in_few_bits_take_a_step() -> None:
    plain, packed = (derived("llama3-8b", f"tuner_type=oft,fusion=eager,recompute=full{more}", "h100-sxm") for more in ("", ",quantize_base=nf4"))
    assert plain.value("params.trained") == packed.value("params.trained") == LAYERS * (6 * H + F) * 31 // 2
    stages = [result.stage_numbers(result.stages[0])["M_stage_weights"] for result in (plain, packed)]
    assert stages[1] < stages[0] / 2
    assert packed.value("time.step") > plain.value("time.step") > 0


def test_adapters_of_experts_have_a_rank_of_their_own() -> None:
    """Parameters of A and B a linear map, of every expert (gate and up are one map in te): r_e (h + 2 f) + r_e (f + h); all others keep r."""
    model = load_model("mixtral-8x7b").architecture
    assert model.moe is not None
    h, f = model.hidden_size, model.moe.moe_ffn_hidden_size
    each = model.num_layers * model.moe.num_moe_experts * (h + 2 * f + f + h)

    def trained(rank: int | None, target: str = "all_linear") -> int:
        strategy = Strategy(tuner_type="lora", lora_rank=16, lora_expert_rank=rank, target_modules=(target,))
        return int(derive(model, strategy).value("params.trained"))

    assert trained(None) - trained(16) == 0
    assert trained(None) - trained(4) == 12 * each
    assert trained(4, "attention") == trained(None, "attention")


def test_a_rank_of_experts_is_the_pattern_s_before_their_own() -> None:
    """Every expert's two maps: r (h + 2 f) + r (f + h) parameters; on a mesh messages and shares follow as of any other rank."""
    model = load_model("mixtral-8x7b").architecture
    assert model.moe is not None
    h, f = model.hidden_size, model.moe.moe_ffn_hidden_size
    each = model.num_layers * model.moe.num_moe_experts * (h + 2 * f + f + h)
    given = {"tuner_type": "lora", "lora_rank": 16, "lora_expert_rank": 4, "ep": 4, "dp": 8}
    own, both = (derive(model, Strategy(**given, rank_pattern=ranks)) for ranks in (None, ("experts=2",)))
    assert own.value("params.trained") - both.value("params.trained") == (4 - 2) * each
    wide = derived("llama3-8b", "tuner_type=lora,lora_rank=16,tp=2,sp=true")
    one = derived("llama3-8b", "tuner_type=lora,lora_rank=8,rank_pattern=layers.0-31=16,tp=2,sp=true")
    assert [values for _, *values in sent(one)] == [values for _, *values in sent(wide)]
    assert one.value("params.trained") == wide.value("params.trained")


IBERT = {"model_type": "ibert", "vocab_size": 30, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 24}


@pytest.mark.parametrize(
    ("options", "trained"),
    [("tuner_type=lora", 4 * (36 + 36)), ("tuner_type=lora,use_dora=true", 4 * (36 + 36) + 36), ("tuner_type=oft,oft_block_size=4", 9 * 6)],
)
def test_modules_of_their_own_have_no_adapters(options: str, trained: int) -> None:
    """I-BERT's layers are of no torch.nn.Linear, and its head's transformation is one, as peft 0.21 counts what it trains."""
    model = read_config(IBERT, "ibert", "config.json")[0]
    result = derive(model, load_strategy(f"fusion=eager,lora_rank=4,{options}"))
    assert int(result.value("params.trained")) == trained
    plain = derive(model, load_strategy(f"fusion=te,lora_rank=4,{options}")) if "lora" in options else None
    assert plain is None or int(plain.value("params.trained")) > trained
    with pytest.raises(InputError, match="target_modules=q_proj: ibert has modules of its own for it, beside which peft puts no adapters"):
        derive(model, load_strategy(f"fusion=eager,target_modules=q_proj,{options}"))


def test_modules_of_their_own_are_not_stored_in_few_bits() -> None:
    """bitsandbytes takes the place of torch.nn.Linear alone: of I-BERT that of the head's transformation."""
    found = derive(read_config(IBERT, "ibert", "config.json")[0], load_strategy("fusion=eager,tuner_type=lora,quantize_base=nf4")).lowered.blocks
    made = {op.name for block in found.values() for op in block.placed.block.ops if op.kind == "dequantise"}
    assert made == {"head_transform.dense.dequantise"}


def test_a_frozen_decoder_behind_a_trained_projector_has_pytorchs_backward() -> None:
    """Of the oracle's Llama and Mixtral, all frozen, with a gradient asked of what their embeddings make: FLOPs and kept bytes as
    `tests/oracle/tuning.py` counts them (PyTorch 2.13.0, transformers 5.24.0)."""
    for name, kept, backward in (("llama", 660_228, 22_020_096), ("mixtral", 898_884, 31_588_352)):
        model, _ = read_config(ORACLE["configs"][name], name, name)
        frozen = {"freeze_parameters": ("embedding", "layers", "final_norm", "lm_head"), "trained_before": True}
        at = {"fusion": "eager", "micro_batch_size": ORACLE["batch"], "seq_length": ORACLE["length"], "main_params_dtype": "bf16", **frozen}
        result = derive(model, Strategy(**at), {"attention_kernel": "eager"})
        numbers = result.stage_numbers(result.stages[0])
        assert (int(numbers["A_stage"]), int(result.value("flops.backward")), int(result.value("params.trained"))) == (kept, backward, 0)
        assert (numbers["M_stage_gradients"], numbers["M_stage_optimizer"]) == (0, 0)


def test_the_rule_of_rotations_reads_no_size_of_the_batch() -> None:
    """A page asks a rule at every combination of what it reads: of sizes, degrees and counts together there are tens of thousands."""
    strategy = load_strategy("dp=4,zero=3,tuner_type=oft,fusion=eager")
    watched = Watched({name: getattr(strategy, name) for name in type(strategy).model_fields})
    tuning(load_model("llama3-8b").architecture, watched)
    assert watched.read.isdisjoint({"micro_batch_size", "seq_length", "num_microbatches", "global_batch_size", "pp", "vpp", "cp"})
