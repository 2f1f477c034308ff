"""Writes simumax.json beside this file: some runs of ../shared/peers/simumax, SimuMax v1.2 (git 4dcaae5) itself.

    python tests/oracle/reduce_simumax.py

Of each run its files as they were read, totals of every stage and the step; of a system's tables the shapes that the runs look up.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEER = Path(os.environ.get("SYMSIM_SHARED") or HERE.parents[2] / "shared") / "peers" / "simumax"
RUNS = (
    "a100_llama3_8b_tp2_mbc4",
    "a100_fp8_llama3_8b_tp2",
    "a100_deepseekv2_l4_ep4_pp2_selective_recompute_variance",
    "b200_deepseekv3_l4_ep8_megatron_recompute",
    "b200_deepseekv3_full_ep64_pp16_ws2048",
    "b200_llama3_405b_l4_tp2_cp4_pp1_dp1_seq32768_mbc4_cef",
    "b200_mixtral_8x7b_tp2_ep2_etp2",
    "b200_llama3_70b_l8_tp1_pp4_vp2_sync",
)
STAGES = ("first_stage_chunk", "middle_stage_chunk", "last_stage_chunk")


def given(run: dict[str, Any], what: str, folder: str) -> dict[str, Any]:
    """The contents of a file of a run with what the run changed in it."""
    asked = run["config"]
    data: dict[str, Any] = json.loads((PEER / "configs" / folder / f"{asked[f'{what}_file']}.json").read_text())
    return {**data, **(asked.get(f"{what}_overrides") or {})}


def theirs(run: dict[str, Any]) -> dict[str, Any]:
    """What SimuMax says: of each kind of stage bytes of weights, gradients, states, saved, FLOPs by phase; milliseconds of a step."""
    stages = {}
    for name in STAGES:
        if name in run["chunks"]:
            total, activation = run["chunks"][name]["total"], run["chunks"][name]["activation"]
            held, flops = total["model_bytes"], total["flops"]
            stages[name] = {
                **{here: held[f"dense_{there}"] + held[f"moe_{there}"] for here, there in BYTES},
                "saved bytes": activation["cache_per_microbatch"],
                "forward FLOPs": flops["fwd"],
                "backward FLOPs": flops["bwd_act"] + flops["bwd_w"],
                "recomputed FLOPs": flops["recompute"],
            }
    return {"stages": stages, "step_ms": run["step_time_ms"]}


BYTES = (("weights", "weight"), ("gradients", "grad"), ("optimizer states", "state"))


def reduced() -> dict[str, Any]:
    runs = {name: json.loads((PEER / f"{name}.json").read_text()) for name in RUNS}
    systems: dict[str, Any] = {}
    made = {}
    for name, run in runs.items():
        system = run["config"]["system_file"]
        systems[system] = given(run, "system", "system")
        made[name] = {"system": system, "strategy": given(run, "strategy", "strategy"), "model": given(run, "model", "models"), **theirs(run)}
    for system, data in systems.items():
        text = "".join(json.dumps(run) for name, run in runs.items() if made[name]["system"] == system)
        for op in data["accelerator"]["op"].values():
            if op.get("accurate_efficient_factor"):
                op["accurate_efficient_factor"] = {key: share for key, share in op["accurate_efficient_factor"].items() if key in text}
    return {"source": "SimuMax v1.2 (git 4dcaae5), run as it is", "systems": systems, "runs": made}


if __name__ == "__main__":
    (HERE / "simumax.json").write_text(json.dumps(reduced(), indent=None, separators=(",", ":")) + "\n")
