"""The rows of Megatron-Bridge's performance summary in ../shared/measured/published.yaml.

A row gives model, machine, layout, batch and tokens/s/GPU. What it does not say is in the recipe of its container
(measured_bridge_recipes.json), which is of the same layout for most rows; of the others it is that of the nearest
recipe, and the case's `guessed` says so.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from measured_row import Case, Rows, Uncovered, architecture, data_parallel, note, row, strategy

SECTION = "megatron_bridge_performance"
MODELS = {
    "LLAMA3_8B": "llama3-8b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA3.1_405B": "llama3.1-405b",
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 20B": "gpt-oss-20b",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Qwen3_Next_80B_a3B": "qwen3-next-80b-a3b",
    "Kimi_K2": "kimi-k2",
}
SYSTEMS = {"DGX-GB300": "gb300-nvl72", "DGX-GB200": "gb200-nvl72", "DGX-B300": "b300-sxm", "DGX-B200": "b200-sxm", "DGX-H100": "h100-sxm"}
PRECISIONS = {
    "BF16": "none",
    "FP8": "tensorwise",
    "FP8-CS": "tensorwise",
    "FP8-DS": "delayed",
    "FP8-SC": "blockwise",
    "FP8-MX": "mxfp8",
    "MXFP8": "mxfp8",
}
_RECIPES = {"none": "bf16", "delayed": "fp8_ds", "tensorwise": "fp8_cs", "blockwise": "fp8_sc", "mxfp8": "fp8_mx"}
PRECISION_NAMES = {name: _RECIPES[fp8] for name, fp8 in PRECISIONS.items()}
TOKENDROP = "(tokendrop)"
# oldest first
CONTAINERS = ("25.09", "25.11", "26.02", "26.02.01", "26.04", "26.04.01", "26.06", "26.06.01", "26.08")
GATHERED_IN_STEP = "overlap_param_gather_with_optimizer_step"
READ_ABOVE = (
    "recompute_granularity",
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "mtp_num_layers",
    "cp_comm_type",
    "optimizer",
    "overlap_grad_reduce",
    "overlap_param_gather",
    GATHERED_IN_STEP,
    "tp_comm_overlap",
    "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity",
    "moe_hybridep_num_sms",
)


@dataclass(frozen=True)
class Recipe:
    """What a recipe sets, and the printed fields in which a row differs from it."""

    name: str
    settings: dict[str, Any]
    differs: tuple[str, ...]


@cache
def _recipes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(__file__).with_name("measured_bridge_recipes.json").read_text())["recipes"]
    return found


def _version(container: str) -> tuple[int, ...]:
    return tuple(int(n) for n in container.split("."))


def recipe(at: dict[str, Any], model: str, chip: str, precision: str) -> Recipe:
    """Of the recipes for this model, chip and task the one nearest to what the row prints: of its precision where there is one, with the
    fewest fields of the layout that differ, and of those the one of the nearest container, with the row's batch where two are alike (the
    variants v1 and v2 of scripts/performance). Tokens are dropped by the alltoall dispatcher alone (training/utils/moe_token_drop.py)."""
    task = "sft" if at["task"].startswith("SFT") else "pretrain"
    own = sum(_version(c) < _version(at["container"].split()[0]) for c in CONTAINERS)
    ranked = []
    for place, one in enumerate(_recipes()):
        exchanged = one["settings"].get("moe_token_dispatcher_type") == "flex" and at["model"].endswith(TOKENDROP)
        if (one["model"], one["chip"], one["task"]) != (model, chip, task) or exchanged:
            continue
        differs = tuple(name for name, value in one["layout"].items() if (at.get(name) or 1) != value)
        for container, of in (name.split() for name in one["of"]):
            away = abs(CONTAINERS.index(container) - own)
            other = (of != PRECISION_NAMES[precision], len(differs), away, at["gbs"] != one.get("batch", at["gbs"]), place)
            ranked.append((other, container, one["settings"], (*("precision",) * other[0], *("container",) * (away > 1), *differs)))
    if not ranked:
        return Recipe("of no recipe", {}, ("all settings",))
    _, container, settings, differs = min(ranked, key=lambda r: r[0])
    return Recipe(f"of Megatron-Bridge for {container}", settings, differs)


# What a row prints that cannot have run, and what the recipe of its container's release says instead. 282 GiB of activations alone
# against 279; the rows of 26.02, 26.04 and 26.04.01 print the recipe's layout (scripts/performance at v0.3.1). And a batch of 512 in 2 rounds
# of 4 sequences on 64 / 4 replicas, as the row of B200 above it has on 64; the row of 26.02 prints the recipe's 1. And experts over 8 ranks,
# where the recipe says 64: the page's 8359 tokens/s/GPU of B300 with ep=64 (26.02) are 2 per cent from this row's 8213, its 13722 of B200
# with ep=8 (26.02.01) 67
MISPRINTED = {
    ("25.11 NeMo Container", "GPT OSS 120B", "DGX-B200", "BF16"): {"ep": 64, "inferred": ("ep",)},
    ("26.02.01 NeMo Container", "LLAMA3_70B", "DGX-GB300", "MXFP8"): {"mbs": 1, "vp": 5},
    ("25.11 NeMo Container", "GPT OSS 120B", "DGX-H100", "BF16"): {"mbs": 1},
}


# Tokens of a sample of SQuAD (a paragraph of about 120 words and a question of 12), which fine-tuning recipes pack (recipes/utils/finetune_utils.py
# default_squad_config); between 100 and 400 it moves their steps by less than 1 per cent
SQUAD = 180
# Rows whose page names a regression, cured in the next container: the backward of the fused grouped product, ten times as long as in the
# release before (docs/performance-summary-archive.md, footnote; NVIDIA/cudnn-frontend issue 256)
REGRESSED = ("26.06.01", "gpt-oss-120b")


def rows(data: dict[str, Any]) -> Rows:
    """Every row; one that prints a second figure in parentheses is two rows."""
    found: Rows = []
    seen: dict[str, int] = {}
    for printed in (data.get(SECTION) or {}).get("rows", []):
        key = tuple(printed.get(k) for k in ("container", "model", "system", "precision"))
        for one in _apart({**printed, **MISPRINTED.get(key, {})}):
            version = one["container"].split()[0]
            name = f"bridge/{version}-{one['model']}-{one['system'].removeprefix('DGX-')}x{one['gpus']}-{one['precision']}-gbs{one['gbs']}"
            name = name.replace(" ", "_") + ("" if one["task"].startswith("Pre") else f"-{one['task'].split()[0]}")
            seen[name] = seen.get(name, 0) + 1
            found.append(row(name if seen[name] == 1 else f"{name}-{seen[name]}", SECTION, _row, one))
    return found


def _apart(printed: dict[str, Any]) -> list[dict[str, Any]]:
    """`64 (0)` in any field is two values: the row's own, and that of another quantisation granularity."""
    first, second = {}, {}
    for key, value in printed.items():
        match = re.fullmatch(r"([\w.+-]+) \(([\w.+-]+)\)", value) if isinstance(value, str) and key != "model" else None
        first[key], second[key] = (_number(match[1]), _number(match[2])) if match else (value, value)
    if "precision" not in printed:
        # 25.09 printed FP8 and named only the granularity of the second figure: 32x32 blocks, on H100 128x128 (DeepSeek-V3's)
        first["precision"], second["precision"] = "FP8-CS?", "FP8-SC?" if printed["system"] == "DGX-H100" else "FP8-MX?"
    if "ga" in second and second["ga"] != first["ga"]:  # printed for the first figure alone
        second["mbs"] = second["gbs"] // second["ga"] // data_parallel(second["gpus"], second["tp"], second["pp"], second["cp"])
    return [first] if first["tokens_per_s_per_gpu"] is second["tokens_per_s_per_gpu"] else [first, second]


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _adapters(chip: str) -> dict[str, Any]:
    """What Megatron-Bridge's recipes of adapters set (perf_recipes/llama/*/llama3.py llama3_70b_peft_8gpu_*, recipes/llama/h100/llama3.py)."""
    graphs = {} if chip == "h100" else {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["mlp"]}
    return {
        **{"tuner_type": "lora", "lora_rank": 16, "target_modules": ["linear_qkv"], "recompute_granularity": None},
        **{"tp_comm_overlap": chip == "h100", **graphs},
    }


def _row(name: str, section: str, at: dict[str, Any]) -> Case | Uncovered:
    label, _, variant = at["model"].partition(" (")
    precision = at["precision"].rstrip("?")
    if label not in MODELS:
        hybrid = "state-space layers have no model here" if label.startswith("Nemotron") else "no model here answers to it"
        return Uncovered(name, section, f"{label}: {hybrid}")
    if at["system"] not in SYSTEMS:
        return Uncovered(name, section, f"no system for {at['system']}")
    if precision not in PRECISIONS:
        return Uncovered(name, section, f"no precision recipe for {precision}")

    base, chip = MODELS[label], at["system"].removeprefix("DGX-").lower()
    tp, pp, cp, vpp = at["tp"], at["pp"], at["cp"], at["vp"] or 1
    gpus, ep = at["gpus"], at["ep"] or 1
    dp = data_parallel(gpus, tp, pp, cp, ep)
    mtp = 1 if base == "deepseek-v3" and variant != "w/o MTP)" else 0
    model = architecture(base, {}, 128 * tp)
    moe = model.moe is not None
    dropped = at["model"].endswith(TOKENDROP)
    found = recipe(at, base, chip, precision)
    lora, tuned = at["task"].startswith("LoRA"), at["task"].startswith(("SFT", "LoRA"))
    as_set = {**found.settings, **_adapters(chip)} if lora else found.settings
    chunks = pp * vpp
    layout = as_set.get("pipeline_model_parallel_layout") if chunks > 1 and not {"pp", "vp"} & {*found.differs} else None
    ends = pp > 1 and bool(model.num_layers % chunks) and not (model.num_layers + 2) % chunks
    gathered = dp > 1 and as_set.get("overlap_grad_reduce", True) and as_set.get("overlap_param_gather", True)
    plan, unnamed = strategy(
        {
            "tp": tp,
            "sp": tp > 1,
            "cp": cp,
            "pp": pp,
            "vpp": vpp,
            "ep": ep,
            "etp": 1 if moe else None,
            "dp": dp,
            "zero": 3 if at.get("fsdp") else 1,
            "micro_batch_size": at["mbs"],
            "global_batch_size": at["gbs"],
            "seq_length": at["seq"],
            "grad_reduce_in_fp32": False,
            "fp8": PRECISIONS[precision],
            # every recipe but that of 128-wide blocks (training/mixed_precision.py)
            "fp8_param_gather": PRECISIONS[precision] not in ("none", "blockwise"),
            "keep_fp8_transpose_cache": bool(at.get("fsdp")) and base == "llama3-8b",
            "cross_entropy_fusion": "te",
            "bias_dropout_fusion": not base.startswith("gpt-oss"),  # models/gpt_oss/gpt_oss_provider.py
            "account_for_embedding_in_pipeline_split": True if ends else None,
            "account_for_loss_in_pipeline_split": True if ends else None,
            "pipeline_model_parallel_layout": layout if layout is None or mtp else layout.replace("m", ""),
            "mtp_num_layers": mtp or None,
            "moe_expert_capacity_factor": 1 if dropped else None,
            "moe_pad_expert_input_to_capacity": True if dropped else None,
            "overlap_grad_reduce": dp > 1 and as_set.get("overlap_grad_reduce", True),
            "overlap_param_gather": gathered,
            GATHERED_IN_STEP: gathered and vpp > 1 and not at.get("fsdp") and as_set.get(GATHERED_IN_STEP, False),
            "tp_comm_overlap": tp > 1 and as_set.get("tp_comm_overlap", False),
            "overlap_p2p_comm": vpp > 1,
            "recompute": as_set.get("recompute_granularity"),
            "optimizer": "muon" if "muon" in as_set.get("optimizer", "") else None,
            "cp_comm_type": as_set.get("cp_comm_type") if cp > 1 else None,
            "packed_document_length": SQUAD if tuned else None,
            "moe_flex_dispatcher_num_sms": as_set.get("moe_hybridep_num_sms") if as_set.get("moe_token_dispatcher_type") == "flex" else None,
            **{n: tuple(v) if isinstance(v, list) else v for n, v in as_set.items() if n not in READ_ABOVE},
        }
    )
    seconds = at["gbs"] * at["seq"] / (at["tokens_per_s_per_gpu"] * gpus)
    differs = found.differs and not lora
    guessed = (*at.get("inferred", ()), *(("precision",) if "?" in at["precision"] else ()))
    guessed = (*guessed, *(("settings of a recipe with another layout",) if differs else ()))
    if REGRESSED == (at["container"].split()[0], base):
        guessed = (*guessed, "a kernel ten times as long")
    guessed = (*guessed, *(("packed_document_length",) if tuned else ()))
    said = note(f"step: batch tokens over {at['tokens_per_s_per_gpu']} tokens/s/GPU; settings {found.name}", unnamed)
    exchange = "once_per_node" if as_set.get("moe_token_dispatcher_type") == "flex" else "per_expert"
    assumptions = {"apply_rope_fusion": "true"}  # scripts/performance/utils/overrides.py
    if moe:
        assumptions |= {"moe_permute_fusion": "true", "moe_exchange": exchange}
    if chip != "h100" and PRECISIONS[precision] != "none":
        assumptions["fp8_layouts"] = "any"
    return Case(name, section, model, plan, assumptions, SYSTEMS[at["system"]], seconds, None, said, guessed)
