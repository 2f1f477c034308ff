"""Writes calculon.json beside this file: Calculon (git caa4b11) itself, on some runs of ../shared/peers/calculon and on jobs of our own.

    python tests/oracle/reduce_calculon.py CALCULON      CALCULON: its tree; it imports pandas and psutil

Of each run its files and what it says of a block and of the step. Without CALCULON the jobs of our own stay as they are in the file.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEER = Path(os.environ.get("SYMSIM_SHARED") or HERE.parents[2] / "shared") / "peers" / "calculon"
RUNS = ("cov_530B_uneven_pp", "cov_h100_fp8", "cov_multiquery", "cov_p2p_rs_ag")
SIDES = ("base", "edge")
PHASES = ("fw", "re", "agrad", "wgrad")
SAID = (
    *(f"block_{phase}_{what}" for phase in PHASES for what in ("flops", "flops_time", "mem_time", "time")),
    *(f"block_{phase}_mem_accessed" for phase in PHASES if phase != "re"),
    *(f"{side}block_{phase}_tp_{what}" for side in SIDES for phase in ("fw", "agrad") for what in ("time", "time_exposed")),
    *(f"{side}block_{what}" for side in SIDES for what in ("fw_tp_size", "bw_tp_size", "recomm_size", "recomm_time", "recomm_time_exposed")),
    *(f"block_{what}" for what in ("weight_space", "act_working_space", "act_storage_space", "act_checkpoint_size", "act_grad_space")),
    *("block_optimizer_space", "block_optim_time", "block_dp_size"),
    *("weight_space", "weight_grad_space", "optimizer_space", "bubble_time", "dp_comm_exposed_time", "proc_mem_tier1_cap_req", "total_time"),
)
_GPT = {"hidden": 4096, "feedforward": 16384, "seq_size": 2048, "attn_heads": 32, "attn_size": 128, "num_blocks": 24}
_JOB: dict[str, Any] = {
    "tensor_par": 4, "pipeline_par": 2, "data_par": 2, "tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 1, "batch_size": 16,
    "microbatch_size": 1, "datatype": "float16", "fused_activation": False, "attention_type": "multihead", "activation_recompute": "none",
    "pipeline_interleaving": 1, "optimizer_sharding": False, "tensor_par_comm_type": "ar", "tensor_par_overlap": "none",
    "seq_par_ag_redo": False, "data_par_overlap": False, "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
    "training": True,
}  # fmt: skip
_RS: dict[str, Any] = {"tensor_par_comm_type": "rs_ag"}
_ALL: dict[str, Any] = {"weight_offload": True, "activations_offload": True, "optimizer_offload": True}
_MQA: dict[str, Any] = {"attention_type": "multiquery"}
_SHARD: dict[str, Any] = {"optimizer_sharding": True}
# what differs from the job above; of `model` and `system` likewise
OWN: dict[str, dict[str, Any]] = {
    "plain": {},
    "one rank": {"tensor_par": 1, "pipeline_par": 1, "data_par": 1, "batch_size": 4},
    "core again": {"activation_recompute": "attn_only"},
    "full": {"activation_recompute": "full", "microbatch_size": 2},
    "shares": _RS,
    "shares, gathers redone": {**_RS, "seq_par_ag_redo": True},
    "shares, core again": {**_RS, "activation_recompute": "attn_only"},
    "shares, core again, gathers redone": {**_RS, "activation_recompute": "attn_only", "seq_par_ag_redo": True, "pipeline_interleaving": 3},
    "shares, full": {**_RS, "activation_recompute": "full", "pipeline_interleaving": 2},
    "boundary in shares": {"tensor_par_comm_type": "p2p_rs_ag", "pipeline_interleaving": 4, "activation_recompute": "attn_only"},
    "boundary in shares, full": {"tensor_par_comm_type": "p2p_rs_ag", "activation_recompute": "full", **_SHARD},
    "ring": {**_RS, "tensor_par_overlap": "ring", "seq_par_ag_redo": True, "activation_recompute": "attn_only"},
    "pipe": {**_RS, "tensor_par_overlap": "pipe", "activation_recompute": "full"},
    "all-reduces in pieces": {"tensor_par_overlap": "pipe", "activation_recompute": "attn_only"},
    "all-reduces in a ring": {"tensor_par_comm_type": "p2p_rs_ag", "tensor_par_overlap": "ring", "pipeline_interleaving": 2},
    "one group": {**_MQA, **_RS, "seq_par_ag_redo": True},
    "one group, core again": {**_MQA, "activation_recompute": "attn_only", **_SHARD},
    "one group in a ring": {**_MQA, **_RS, "tensor_par_overlap": "ring"},
    "optimizer sharded": {**_SHARD, "data_par": 4, "batch_size": 32},
    "beside backward": {"data_par_overlap": True, "pipeline_interleaving": 3},
    "sharded beside backward": {**_SHARD, "data_par_overlap": True, "pipeline_interleaving": 4, "activation_recompute": "attn_only"},
    "beside backward on one tier": {"data_par_overlap": True, "data_par_net": 0, "pipeline_par_net": 0, "pipeline_interleaving": 2},
    "all offloaded": {**_ALL, **_SHARD, "microbatch_size": 2},
    "checkpoints offloaded": {"activations_offload": True, "activation_recompute": "full"},
    "uneven": {"model": {"num_blocks": 23}, "pipeline_interleaving": 2},
    "micro-batches left over": {"pipeline_par": 4, "batch_size": 12, "pipeline_interleaving": 2},
    "one byte": {**_RS, **_SHARD, "datatype": "float8", "activation_recompute": "attn_only"},
    "activation inside": {"fused_activation": True, "system": {"processing_mode": "roofline"}},
}  # fmt: skip
# of a system nobody sells: steps, latencies and scalars unlike the peers'
SYSTEM: dict[str, Any] = {
    **{
        engine: {kind: {"tflops": rate * times, "gflops_efficiency": steps} for kind, times in (("float16", 1), ("float8", 2))}
        for engine, rate, steps in (("matrix", 400, [[200, 0.85], [20, 0.7], [0, 0.15]]), ("vector", 60, [[10, 0.8], [0, 0.25]]))
    },
    "mem1": {"GiB": 10**6, "GBps": 2500, "MB_efficiency": [[80, 0.88], [8, 0.6], [0, 0.25]]},
    "mem2": {"GiB": 10**6, "GBps": 50, "MB_efficiency": [[50, 0.9], [0, 0.4]]},
    "processing_mode": "no_overlap",
    "networks": [
        {"bandwidth": rate, "efficiency": share, "size": 65536, "latency": latency, "must_be_filled": False, "processor_usage": usage,
         "ops": {"p2p": [1.0, None], "reduce_scatter": [scalar, -1], "all_gather": [scalar, -1], "all_reduce": [2.0, offset]}}
        for rate, share, latency, usage, scalar, offset in ((400, 0.7, 8e-6, 0.1, 1.2, -1), (50, 0.85, 15e-6, 0.03, 1.0, 0))
    ],
}  # fmt: skip


def of_own(name: str) -> dict[str, Any]:
    """The files of a job of our own."""
    changes = dict(OWN[name])
    model, system = {**_GPT, **changes.pop("model", {})}, {**SYSTEM, **changes.pop("system", {})}
    execution = {**_JOB, **changes}
    execution["num_procs"] = execution["tensor_par"] * execution["pipeline_par"] * execution["data_par"]
    return {"application": model, "execution": execution, "system": system}


def of_peer(run: dict[str, Any]) -> dict[str, Any]:
    return {"application": run["model"], "execution": run["execution"], "system": run["system"]}


def computed(tree: str, files: dict[str, Any]) -> dict[str, Any]:
    """What Calculon says of a job."""
    if tree not in sys.path:
        sys.path.insert(0, tree)
    from calculon.llm.llm import Llm
    from calculon.system import System

    logging.disable(logging.CRITICAL)
    model, system = Llm(Llm.Application(files["application"]), logging.getLogger("calculon")), System(files["system"])
    model.compile(system, Llm.Execution.from_json(files["execution"]))
    model.run(system)
    stats: dict[str, Any] = model.get_stats_json(False)
    return stats


def said(stats: dict[str, Any]) -> list[Any]:
    return [stats[name] for name in SAID]


def kept() -> dict[str, Any]:
    """What the file holds: `files` and `said` of the peers' runs, and what is said of jobs of our own, each number with its name."""
    data: dict[str, Any] = json.loads((HERE / "calculon.json").read_text())
    peers = {name: {**run, "said": dict(zip(data["said"], run["said"]))} for name, run in data["peers"].items()}
    return {"peers": peers, "own": {name: dict(zip(data["said"], row)) for name, row in data["own"].items()}}


def reduced(tree: str | None) -> dict[str, Any]:
    before = kept()["own"] if tree is None else {}
    runs = {name: json.loads((PEER / f"{name}.json").read_text()) for name in RUNS}
    return {
        "source": "Calculon, git caa4b11, run as it is",
        "said": SAID,
        "peers": {name: {"files": of_peer(run), "said": said(run["stats"])} for name, run in runs.items()},
        "own": {name: said(before[name] if before else computed(tree or "", of_own(name))) for name in OWN},
    }


if __name__ == "__main__":
    (HERE / "calculon.json").write_text(json.dumps(reduced(sys.argv[1] if len(sys.argv) > 1 else None), separators=(",", ":")) + "\n")
