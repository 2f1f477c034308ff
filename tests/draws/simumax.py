"""Random jobs of SimuMax, run by itself and by symsim under `--compat simumax`: bytes and FLOPs equal, the step within 1 per cent.

    python tests/draws/simumax.py CHECKOUT --count 100 --seed 1 [--keep tests/oracle/simumax_drawn.json]

CHECKOUT: a checkout of SimuMax v1.2 (git 4dcaae5), with what it imports installed. Machines are those of tests/oracle/simumax.json. Not drawn is
where SimuMax contradicts itself: dense layers beyond the first stage (it has lost them) or in interleaved ones, recomputation of interleaved
stages (a stage as a whole and its chunks recompute other layers), experts over tensor ranks without sequence parallelism, head groups that ranks
would share, sparse or repeated keys of written-out attention under context parallelism. Ends with 1 where something differs; --keep writes the
jobs of which a row of differences moves a number that moved none before, and what SimuMax said.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracle.reduce_simumax import STAGES
from test_compat_simumax import ORACLE, held, question

from symsim.compat.compare import evaluate, measured
from symsim.compat.difference import applied
from symsim.compat.registry import differences
from symsim.errors import InputError

# of a model file what SimuMax reads from attributes alone
PADDING = ("padded_vocab_size", "make_vocab_size_divisible_by", "moe_pad_expert_input_to_capacity", "capacity")
BASE = {"dtype": "bf16", "moe_dispatcher_policy": "all2all", "mem_factor": 0.94, "enable_dropout": False, "zero_state": 1}


def drawn(draw: random.Random, models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A job: names of a model and a system, keys of the model that are changed, and a strategy."""
    name = draw.choice(sorted(models))
    model = models[name]
    latent = model.get("attention_type") == "mla"
    pp, tp, cp = draw.choice((1, 1, 2, 4)), 1 if latent else draw.choice((1, 1, 2, 4, 8)), draw.choice((1, 1, 1, 2, 4))
    dense = model.get("dense_layers", 0)
    chunks = draw.choice((1, 1, 1, 2)) if pp > 1 and not dense else 1
    layers = pp * chunks * draw.choice([n for n in (1, 2, 3, 4, 5) if n * chunks >= dense][:3])
    experts = model.get("expert_num", 1) if layers > dense else 1
    while (model["head_num"] % (tp * cp) or model.get("kv_head_num", tp * cp) % (tp * cp)) and not latent:
        tp, cp = max(1, tp // 2) if cp == 1 else tp, max(1, cp // 2)
    ep = draw.choice([e for e in (1, 2, 4, 8) if experts % e == 0]) if experts > 1 else 1
    etp = draw.choice((1, tp)) if experts > 1 else 1
    sp = tp > 1
    strategy: dict[str, Any] = {
        **BASE,
        "te_version": draw.choice(("1.0", "2.8.0", "2.11.0")),
        **{"tp_size": tp, "cp_size": cp, "pp_size": pp, "ep_size": ep, "etp_size": etp, "enable_sequence_parallel": sp},
        "world_size": math.lcm(tp * cp * pp * draw.choice((1, 2, 4)), ep * etp * pp),
        "seq_len": draw.choice((1024, 2048, 4096, 8192)),
        "micro_batch_size": draw.choice((1, 1, 2, 4)),
        "micro_batch_num": pp * draw.choice((1, 2, 4)),
        "interleaving_size": chunks,
        "fp8": draw.random() < 0.15,
        "grad_reduce_in_bf16": draw.random() < 0.2,
        "enable_dropout": draw.random() < 0.2,
        "cross_entropy_loss_fusion": draw.random() < 0.3,
        "use_fused_swiglu": draw.random() < 0.7,
        "use_fused_norm": draw.random() < 0.7,
        "use_fused_grad_accumulation": draw.random() < 0.8,
        "overlap_grad_reduce": draw.random() < 0.5,
        "pp_comm_async": chunks == 1 and draw.random() < 0.5,
        "zero_state": draw.choice((0, 1, 1)),
        "dispatch_probs": draw.random() < 0.5,
        **_attention(draw, model, cp),
        **_recomputed(draw, layers if chunks == 1 else 0, latent, experts > 1),
    }
    changed: dict[str, Any] = {"layer_num": layers}
    if draw.random() < 0.7:
        changed |= {"padded_vocab_size": True, "make_vocab_size_divisible_by": 128}
    if experts > 1 and draw.random() < 0.3:
        changed |= {"moe_pad_expert_input_to_capacity": True, "capacity": 1}
    system = draw.choice(sorted(ORACLE["systems"]))
    if strategy["fp8"] and draw.random() < 0.5:
        strategy["cache_groupgemm_col_fp8_inputs"] = True
    return {"model": name, "changed": changed, "system": system, "strategy": strategy}


def _attention(draw: random.Random, model: dict[str, Any], cp: int) -> dict[str, Any]:
    repeated = model.get("kv_head_num", model["head_num"]) != model["head_num"]
    if draw.random() < 0.2 and not (repeated and cp > 1):
        return {"use_flash_sdp": False, "use_math_sdp": True}
    return {"use_flash_sdp": True, "use_math_sdp": False, "attention_sparse_ratio": draw.choice((0.0, 0.0, 0.5))}


def _recomputed(draw: random.Random, layers: int, latent: bool, moe: bool) -> dict[str, Any]:
    how = draw.choice(("", "full_block", "selective_recompute", "megatron")) if layers else ""
    if not how:
        return {"enable_recompute": False}
    found: dict[str, Any] = {"enable_recompute": True, "recompute_granularity": how, "recompute_layer_num": draw.choice((1, layers))}
    if how == "megatron":
        modules = ["layernorm", *(["mla_up_proj"] if latent else []), *(["moe_act", "moe"] if moe else ["mlp"])]
        return {
            **found,
            "recompute_granularity": "selective_recompute",
            "megatron_recompute": True,
            "megatron_recompute_modules": sorted(draw.sample(modules, draw.randint(1, len(modules)))),
        }
    found["recompute_variance"] = draw.random() < 0.3
    if how == "selective_recompute":
        attention, network = draw.random() < 0.6, draw.random() < 0.6
        found |= {"attn_recompute": attention, "mla_rms_recompute": attention and draw.random() < 0.5}
        found |= {"mlp_recompute": network, "mlp_rms_recompute": network and draw.random() < 0.5}
    return found


def run(files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What SimuMax says of a job, as `reduce_simumax.theirs` has it."""
    from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig  # type: ignore[import-not-found]
    from simumax.core.perf_llm import PerfLLM  # type: ignore[import-not-found]

    padding = {key: files["model"][key] for key in PADDING if key in files["model"]}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        paths = {what: str(Path(folder) / f"{what}.json") for what in files}
        for what, data in files.items():
            Path(paths[what]).write_text(json.dumps({key: v for key, v in data.items() if what != "model" or key not in padding}))
        peer = PerfLLM()
        peer.configure(
            strategy_config=StrategyConfig.init_from_config_file(paths["strategy"]),
            model_config=ModelConfig.init_from_config_file(paths["model"]),
            system_config=SystemConfig.init_from_config_file(paths["system"]),
        )
        for key, value in padding.items():
            setattr(peer.model_config, key, value)
        peer.run_estimate()
        number, unit = peer.analysis_cost().get("duration_time_per_iter").split()
    stages = {}
    for name in STAGES:
        if name in peer.model_chunk_dict:
            chunk = peer.model_chunk_dict[name]
            sizes, work = chunk.get_model_info(), chunk.get_compute_info()
            stages[name] = {
                "weights": sizes.all_weight_bytes,
                "gradients": sizes.all_grad_bytes,
                "optimizer states": sizes.all_state_bytes,
                "saved bytes": peer._get_peak_point_for_model(name).activation_mem_cache,
                "forward FLOPs": work.fwd_flops,
                "backward FLOPs": work.bwd_flops,
                "recomputed FLOPs": work.recompute_flops,
            }
    return {"stages": stages, "step_ms": float(number) * {"us": 1e-3, "ms": 1, "s": 1e3, "min": 6e4}[unit]}


def compact(kept: list[dict[str, Any]], models: dict[str, Any]) -> dict[str, Any]:
    """Jobs with what most have alike once."""
    common = {key: value for key, value in kept[0]["strategy"].items() if sum(one["strategy"].get(key) == value for one in kept) > len(kept) / 2}
    runs = {}
    for number, one in enumerate(kept):
        absent = dict.fromkeys(common.keys() - one["strategy"].keys())
        own = {key: value for key, value in one["strategy"].items() if key not in common or common[key] != value}
        runs[f"drawn_{number}"] = {**one, "strategy": own | absent}
    used = {one["model"]: models[one["model"]] for one in kept}
    return {"source": "SimuMax v1.2 (git 4dcaae5)", "models": used, "strategy": common, "runs": runs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    sys.path.insert(0, str(given.checkout))
    models = {path.stem: json.loads(path.read_text()) for path in (given.checkout / "configs" / "models").glob("*.json")}
    draw, done, differ, refused = random.Random(given.seed), 0, 0, 0
    kept: list[dict[str, Any]] = []
    moved: set[str] = set()
    while done < given.count:
        job = drawn(draw, models)
        files = {"system": ORACLE["systems"][job["system"]], "strategy": job["strategy"], "model": {**models[job["model"]], **job["changed"]}}
        try:
            said = run(files)
        except Exception as error:  # what SimuMax does not run is not compared, whatever it ends with
            refused += 1
            print(f"SimuMax does not run it: {type(error).__name__}: {str(error)[:100]}")
            continue
        done += 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                asked = question(files, Path(folder))
            rows = differences("simumax", asked)
            at = evaluate(applied(asked, rows))
            wrong = held(at, said)
            new = [row for row in rows if given.keep and row.name not in moved]
            move = {row.name for row in new if measured(evaluate(applied(asked, [r for r in rows if r is not row]))) != measured(at)}
        except InputError as error:
            wrong, move = [str(error)], set()
        differ += bool(wrong)
        if wrong:
            print(f"{done - 1}: {json.dumps(job)}\n    " + "\n    ".join(wrong), flush=True)
        elif move:
            moved |= move
            kept.append({**job, **said})
    print(f"{given.count} jobs of seed {given.seed}: {differ} differ; SimuMax did not run {refused} more")
    if given.keep:
        given.keep.write_text(json.dumps(compact(kept, models), separators=(",", ":")) + "\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
