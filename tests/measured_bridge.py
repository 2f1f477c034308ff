"""The rows of Megatron-Bridge's performance summary in ../shared/measured/published.yaml.

A row gives model, machine, layout, batch and tokens/s/GPU. What it does not say is taken from the performance recipes at
067f987df (src/megatron/bridge/perf_recipes) and listed in every case's `guessed`: they belong to the newest container.
"""

from __future__ import annotations

import re
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
SYSTEMS = {"DGX-GB300": "gb300-nvl72", "DGX-GB200": "gb200-nvl72", "DGX-B200": "b200-sxm", "DGX-H100": "h100-sxm"}
PRECISIONS = {
    "BF16": "none",
    "FP8": "tensorwise",
    "FP8-CS": "tensorwise",
    "FP8-DS": "tensorwise",
    "FP8-SC": "blockwise",
    "FP8-MX": "mxfp8",
    "MXFP8": "mxfp8",
}
# the recipes of these two count the embedding and the loss as layers of the split
COUNTS_ENDS = ("llama3.1-405b", "qwen3-235b-a22b")
# stages' contents by pp*vpp (recipes/deepseek, recipes/kimi), with the MTP depth where one is trained
LAYOUTS = {4: "Et*16|t*16|t*16|t*13mL", 8: "Et*8|(t*8|)*6t*5mL", 16: "Et*4|(t*4|)*14tmL", 32: "Et|(tt|)*30mL"}


def rows(data: dict[str, Any]) -> Rows:
    """Every row; one that prints a second figure in parentheses is two rows."""
    found: Rows = []
    seen: dict[str, int] = {}
    for printed in (data.get(SECTION) or {}).get("rows", []):
        for one in _apart(printed):
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
    return [first] if first["tokens_per_s_per_gpu"] is second["tokens_per_s_per_gpu"] else [first, second]


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


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
    if at["task"].startswith("LoRA"):
        return Uncovered(name, section, "adapters (LoRA) have no strategy")

    base, chip = MODELS[label], at["system"].removeprefix("DGX-").lower()
    tp, pp, cp, vpp = at["tp"], at["pp"], at["cp"], at["vp"] or 1
    gpus, ep = at["gpus"], at["ep"] or 1
    dp = data_parallel(gpus, tp, pp, cp, ep)
    mtp = 1 if base == "deepseek-v3" and variant != "w/o MTP)" else 0
    model = architecture(base, {}, 128 * tp)
    moe = model.moe is not None
    dropped = variant == "tokendrop)"
    newest = tuple(int(n) for n in at["container"].split()[0].split(".")) >= (26, 6)
    # full-iteration graphs with all-to-alls hidden behind other micro-batches came with 26.06, for MXFP8; on H100 Qwen3-235B had them before
    hidden = moe and ep > 1 and ((newest and PRECISIONS[precision] == "mxfp8") or (chip == "h100" and base == "qwen3-235b-a22b" and vpp > 1))
    chunks = pp * vpp
    layout = LAYOUTS.get(chunks) if base in ("deepseek-v3", "kimi-k2") and chunks > 1 else None
    ends = base in COUNTS_ENDS and pp > 1 and model.num_layers % chunks and not (model.num_layers + 2) % chunks
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
            "grad_reduce_in_fp32": base == "kimi-k2",
            "fp8": PRECISIONS[precision],
            "cross_entropy_fusion": "te",
            "account_for_embedding_in_pipeline_split": True if ends else None,
            "account_for_loss_in_pipeline_split": True if ends else None,
            "pipeline_model_parallel_layout": layout if layout is None or mtp else layout.replace("m", ""),
            "mtp_num_layers": mtp or None,
            "moe_expert_capacity_factor": 1 if dropped else None,
            "moe_pad_expert_input_to_capacity": True if dropped else None,
            "overlap_grad_reduce": dp > 1,
            "overlap_param_gather": dp > 1,
            "tp_comm_overlap": tp > 1 and not (moe and chip == "h100"),
            "overlap_p2p_comm": vpp > 1,
            "overlap_moe_expert_parallel_comm": hidden,
            "delay_wgrad_compute": hidden,
            "optimizer": "muon" if base == "kimi-k2" else None,
            **_recomputed(base, chip, PRECISIONS[precision], newest),
        }
    )
    seconds = at["gbs"] * at["seq"] / (at["tokens_per_s_per_gpu"] * gpus)
    kernels = "HybridEP or DeepEP dispatch and CUDA graphs where the recipe has them; routing forced to balance" if moe else ""
    offload = "the recipe offloads activations of some layers to the host" if at.get("fsdp") and base == "llama3-70b" else ""
    tuned = "fine-tuning on packed documents of unknown length" if at["task"].startswith("SFT") else ""
    guessed = ("recompute", "overlap", *(("precision",) if "?" in at["precision"] else ()), *(("pipeline layout",) if layout or ends else ()))
    said = note(f"step: batch tokens over {at['tokens_per_s_per_gpu']} tokens/s/GPU", unnamed, kernels, offload, tuned)
    # HybridEP and DeepEP are in the recipes of Blackwell machines
    exchange = "per_expert" if chip == "h100" else "once_per_node"
    assumptions = {"moe_permute_fusion": "true", "moe_exchange": exchange} if moe else {}
    return Case(name, section, model, plan, assumptions, SYSTEMS[at["system"]], seconds, None, said, guessed)


def _recomputed(model: str, chip: str, fp8: str, newest: bool) -> dict[str, Any]:
    """What the recipe of the model on the machine runs again in backward."""
    modules: tuple[str, ...] = ()
    if model == "deepseek-v3":
        modules = {
            ("gb300", "none"): ("moe_act",),
            ("gb300", "tensorwise"): ("mla_up_proj",),
            ("gb300", "mxfp8"): () if newest else ("mla_up_proj",),
            ("gb200", "tensorwise"): ("mlp",),
            ("b200", "mxfp8"): ("mla_up_proj", "mlp"),
            ("h100", "none"): ("mla_up_proj", "mlp"),
            ("h100", "tensorwise"): ("mla_up_proj", "mlp"),
            ("h100", "blockwise"): ("mla_up_proj", "mlp"),
        }.get((chip, fp8), ("mla_up_proj",))
    elif model == "kimi-k2":
        modules = ("mla_up_proj", "mlp") if chip == "h100" else ("mla_up_proj",)
    elif model == "gpt-oss-120b" and chip != "gb300" and not (chip == "gb200" and fp8 == "mxfp8" and newest):
        modules = ("layernorm", "moe_act")
    elif model == "llama3-8b" and chip == "h100" and fp8 == "tensorwise":
        return {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 5}
    return {"recompute": "selective", "recompute_modules": modules} if modules else {}
