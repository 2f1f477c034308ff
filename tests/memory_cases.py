"""The cases of ../shared/oracle/memory.json (PyTorch's memory trackers on transformers' modules) as symsim derivations.

`static(case)` and `peaks(case)` give (expected, computed) by name. Peaks count live bytes without the allocator's rounding
(ref_peak); a phase's peak is the largest moment of that phase.
"""

from __future__ import annotations

from typing import Any

from hf_cases import KERNELS, model
from shared import oracle

from symsim.algebra.expr import Number
from symsim.api.result import Result, derive
from symsim.cost.count import counted_parameters
from symsim.inputs.architecture import Architecture
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.lowering.differentiate import elements

FILE = "memory.json"
TYPES = {"torch.bfloat16": "bf16", "torch.float32": "fp32", "None": None}
OPTIMIZERS = {
    "adamw": ("adam", "for_loop"),
    "adamw_foreach": ("adam", "foreach"),
    "adamw_fused": ("adam", "fused"),
    "sgd": ("sgd", "fused"),
    "sgdm": ("sgd_momentum", "fused"),
}
MODELS = {"llama-3.2-1b": "llama3.2-1b"}
RECOMPUTE = {None: "none", "full": "full", "selective": "sac_mm_attn"}


def architecture(case: dict[str, Any]) -> Architecture:
    """The oracle's model with the case's number of layers; its DeepSeek-V3 has one dense layer before the others."""
    if "config" in case:
        return read_config(case["config"], case["config"]["model_type"], "a config")[0]
    over = {"first_k_dense_replace": 1} if case["model"] == "deepseek-v3" else {}
    if not over:
        whole = load_model(MODELS[case["model"]]).architecture if case["model"] in MODELS else model(case["model"])
        (segment,) = whole.layers
        return whole.model_copy(update={"layers": (segment.model_copy(update={"repeat": case["layers"]}),)})
    written = oracle("params.json")["models"][case["model"]]
    config = {"model_type": written["model_type"], **written["config_written"], **over, "num_hidden_layers": case["layers"]}
    return read_config(config, case["model"], case["model"])[0]


def derived(case: dict[str, Any], microbatches: int = 1, tp: int = 1) -> Result:
    fsdp = case["kind"] == "fsdp"
    optimizer, how = OPTIMIZERS[case["optimizer"]]
    stored = TYPES[case["param_dtype"]]
    compute = "bf16" if fsdp else stored
    mesh = case.get("mesh", [1])
    reduced = TYPES[str(case["reduce_dtype"])] or compute if fsdp else stored
    degree = 1
    for n in mesh:
        degree *= n
    strategy = Strategy(
        tp=tp,
        dp=degree,
        zero=3 if fsdp else 0,
        num_distributed_optimizer_instances=mesh[0] if len(mesh) > 1 else 1,
        reshard_after_forward=case.get("reshard_after_forward", True),
        micro_batch_size=case["b"],
        seq_length=case["s"],
        num_microbatches=microbatches,
        fusion="eager",
        precision=compute,  # type: ignore[arg-type]
        grad_reduce_in_fp32=stored == "fp32" and reduced == "fp32",
        main_params_dtype=stored,  # type: ignore[arg-type]
        optimizer=optimizer,  # type: ignore[arg-type]
        recompute=RECOMPUTE[case["checkpoint"]],  # type: ignore[arg-type]
    )
    kernel = KERNELS[case.get("attn", "oracle_fa2")]
    return derive(
        architecture(case),
        strategy,
        {"attention_kernel": kernel, "fsdp_parameters": "main", "optimizer_implementation": how, "loss_parallel": "true"},
    )


def numbers(case: dict[str, Any], microbatches: int = 1) -> dict[str, Number]:
    """Numbers of the only stage. The oracle parallelises the decoder layers alone: under TP the embedding and the head are
    those of a derivation without it."""
    tp = case.get("tp", 1)
    found = derived(case, microbatches, tp)
    (stage,) = found.stages
    if tp == 1:
        return found.stage_numbers(stage)
    whole = derived(case, microbatches).stage_numbers(stage)
    known = {**found.values, **found.stage_values(stage)}
    for definition in found.derivation.definitions.values():
        name = definition.symbol
        kept = name in whole and (definition.key.section in ("embedding", "head") or name in ("P_output", "P_stage_largest", "P_stage_looped"))
        if definition.key.scope != "step":
            known[name] = whole[name] if kept else definition.expr.evaluate(known)
    return known


def tensors(case: dict[str, Any]) -> list[int]:
    """Elements of every parameter tensor of one rank, as PyTorch counts them: whole tensors, then shards."""
    result = derived(case)
    shard = result.strategy.dp // result.strategy.num_distributed_optimizer_instances if case["kind"] == "fsdp" else 1
    times = {"embedding": 1, "head": 1, **{k: int(result.values[f"L_{k}"]) for k in result.model.kind_names()}}
    found = []
    for name, block in result.lowered.blocks.items():
        for tensor in counted_parameters(block.placed):
            found += [int(elements(block.placed, tensor.name).evaluate(result.values)) // shard] * times[name]
    return found


def static(case: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Bytes of parameters, gradients and optimizer states, (expected, computed).

    On a CUDA device the tracker rounds every tensor up to the allocator's 512 bytes. Adam's step counters, 4 bytes a
    tensor, lie on the host, and are of no device unless the device is the host.
    """
    phases = {p["phase"]: p["current"] for p in case["phases"]}
    last = f"step2.mb{case.get('microbatches', 1)}.bwd"
    ours = numbers(case)
    device = "cuda:0" if "cuda:0" in phases["init"] else "cpu"

    def held(phase: str, *kinds: str) -> int:
        return sum(n for kind, n in phases[phase][device].items() if kind in kinds)

    def rounding(width: int) -> int:
        return sum(-n * width % 512 for n in tensors(case)) if device == "cuda:0" else 0

    width = WIDTHS[str(TYPES[case["param_dtype"]])]
    states = int(ours["M_stage_optimizer"])
    copies = states // int(ours["M_stage_gradients"])
    counters = 4 * len(tensors(case)) if device == "cpu" and OPTIMIZERS[case["optimizer"]][0] == "adam" else 0
    return {
        "parameters": (held("init", "Parameter", "Sharded Param"), int(ours["M_stage_weights"]) + rounding(width)),
        "gradients": (held(last, "Gradient", "Sharded Grad"), int(ours["M_stage_gradients"]) + rounding(width)),
        "optimizer": (held("step2.opt", "Optstate", "OptState"), states + copies * rounding(width) + counters),
    }


def peaks(case: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Peak bytes of each phase, (expected, computed)."""
    found: dict[str, tuple[int, float]] = {}
    alone, more = numbers(case), numbers(case, 2)
    for phase in case["phases"]:
        step, _, what = phase["phase"].partition(".")
        micro, _, direction = what.partition(".")
        value: Number
        if direction in ("fwd", "bwd"):
            ours = more if micro != "mb1" else alone
            names = ("M_at_forward", "M_at_first_gather") if direction == "fwd" else ("M_at_backward", "M_at_second", "M_at_first_layers")
            value = max(v for n, v in ours.items() if n.startswith(names))
            # the first step has no optimizer states yet
            value -= ours["M_stage_optimizer"] if step == "step1" else 0
        elif what == "opt":
            value = alone["M_at_optimizer"]
        elif what == "zero_grad":
            value = sum(alone[f"M_stage_{part}"] for part in ("weights", "gradients", "optimizer"))
        else:
            value = alone["M_stage_weights"]
        found[phase["phase"]] = (phase["ref_peak"], float(value))
    return found


def propagated(case: dict[str, Any]) -> float:
    """Peak of the first optimizer step of a sharded model where PyTorch has not yet cached how its operations shard: it
    works that out on tensors of the whole parameter's size, three of them beside one shard, which a real run never allocates.
    """
    ours = numbers(case)
    largest = float(ours["P_stage_largest"]) * WIDTHS[str(TYPES[case["param_dtype"]])]
    shard = case["mesh"][-1]
    steady = sum(float(ours[f"M_stage_{part}"]) for part in ("weights", "gradients", "optimizer"))
    return steady + largest * (3 * shard + 1)
