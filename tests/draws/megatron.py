"""Megatron-Core drawn at random: its options, run by Megatron-Core itself, against what symsim derives, as integers.

    python tests/draws/megatron.py --count 200 --seed 1 --tree CHECKOUT

runs drawn models through ../shared/oracle/scripts/megatron_oracle.py (torch on CPU, fake process groups, no GPU) with the
Megatron-LM checkout given, or the installed megatron-core without --tree. A case that the script cannot run is drawn
again; one that symsim refuses is counted with the sentence it gives; any other difference is printed. Exit code 1 when
there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import megatron_cases as cases
from shared import SHARED

from symsim.errors import InputError

Case = dict[str, Any]
SCRIPT = SHARED / "oracle" / "scripts" / "megatron_oracle.py"
BATCH = 20
PATIENCE = 100  # seconds for one case
SECTIONS: dict[str, tuple[tuple[str, Callable[[Case], tuple[Any, Any]]], ...]] = {
    "params": (("parameters of every rank", cases.parameters),),
    "ddp": (("gradient buffers and buckets", cases.buffers),),
    "trace": (("collectives", cases.collectives), ("FLOPs", cases.flops), ("saved bytes", cases.saved)),
}


# --- drawing -------------------------------------------------------------------------------------------------------


def drawn(seed: int, number: int, again: int) -> tuple[str, Case]:
    """The case of this number (of its `again`th drawing): its section, and the case as the oracle script takes it."""
    rng = random.Random(f"{seed}:{number}:{again}")
    section = rng.choices(list(SECTIONS), (3, 3, 6))[0]
    moe = rng.random() < 0.6
    par = _parallel(rng, section, moe)
    model = _model(rng, section, par, moe)
    strategy = _strategy(rng, section, model, par)
    case: Case = {"name": f"drawn_{seed}_{number}", "model": model, "par": par, "strategy": strategy}
    if model.get("multi_latent_attention"):
        case["te_mla"] = True
    if section == "ddp":
        case["ddp"] = {
            "use_distributed_optimizer": par.get("n_distopt", 1) > 1 or rng.random() < 0.75,
            "grad_reduce_in_fp32": rng.random() < 0.7,
        }
        case["ddp"]["pad_buckets_for_high_nccl_busbw"] = case["ddp"]["use_distributed_optimizer"] and rng.random() < 0.25
    if section == "trace":
        case |= {"s": rng.choice((8, 16, 32)), "b": rng.choice((1, 2, 3))}
        if _fusable(model) and rng.random() < 0.75:
            case["fused"] = True
            strategy["bias_activation_fusion"] = True
            _comparable(model, strategy)
    elif model.get("softmax_type") or par["cp"] > 1 or rng.random() < 0.5:
        case["stub_attention"] = True
    return section, case


def _parallel(rng: random.Random, section: str, moe: bool) -> Case:
    small = section == "trace"
    par: Case = {
        "tp": rng.choice((1, 1, 2, 2, 4, 8)),
        "pp": 1 if small else rng.choice((1, 1, 2, 4)),
        "cp": 1 if small else rng.choice((1, 1, 1, 2)),
        "ep": rng.choice((1, 1, 2, 4)) if moe else 1,
        "etp": rng.choice((None, 1, 1, 2)) if moe else None,
    }
    if not moe and rng.random() < 0.35:  # with experts Megatron-Core trains under sequence parallelism only
        par["sp"] = False
    if section == "params" and par["pp"] > 1 and rng.random() < 0.4:
        par["vpp"] = rng.choice((2, 3))
    if not small:
        etp = par["etp"] or par["tp"]
        fewest = math.lcm(par["tp"] * par["cp"], etp * par["ep"]) // (par["tp"] * par["cp"])
        room = 64 // (par["tp"] * par["cp"] * par["pp"] * fewest)  # groups of larger worlds take the script long to make
        par["dp"] = fewest * rng.choice([n for n in (1, 2, 3, 4, 6, 16, 48) if n <= max(1, room)])
        if section == "ddp" and par["dp"] % 2 == 0 and rng.random() < 0.3:
            par["n_distopt"] = 2
    return par


def _model(rng: random.Random, section: str, par: Case, moe: bool) -> Case:
    small = section == "trace"
    unit = 1 if small else rng.choice((1, 16, 48))
    tp = par["tp"]
    heads = tp * rng.choice((1, 2, 3, 4)) if rng.random() < 0.8 else rng.choice((8, 12, 16))
    h = unit * rng.choice((32, 64, 96))
    layers = rng.choice((2, 3)) if small else rng.choice((1, 2, 4, 6, 8))
    if not small and par["pp"] > 1:
        layers = par["pp"] * (par.get("vpp") or 1) * rng.choice((1, 2, 3))
    gated, gelu = rng.random() < 0.65, rng.random() < 0.35
    m: Case = {
        "num_layers": layers,
        "hidden_size": h,
        "num_attention_heads": heads,
        "ffn_hidden_size": unit * tp * rng.choice((8, 12, 20, 48)),
        "vocab_size": tp * rng.choice((32, 40)) * (1 if small else rng.choice((1, 400, 1500))),
        "max_seq": 64,
        "normalization": rng.choice(("RMSNorm", "LayerNorm")),
        "gated_linear_unit": gated,
        "add_bias_linear": rng.random() < 0.35,
        "tied": rng.random() < 0.4,
        "qk_layernorm": rng.random() < 0.45,
    }
    if gelu:
        m["act"] = "gelu"
    if rng.random() < 0.15:
        m["pos"] = rng.choice(("learned_absolute", "none"))
    if rng.random() < 0.2:
        m["mtp_num_layers"] = rng.choice((1, 1, 2)) if layers > 1 else 1
        if m["mtp_num_layers"] > 1 and rng.random() < 0.5:
            m["mtp_use_repeated_layer"] = True
    if rng.random() < 0.3:
        m |= {
            "multi_latent_attention": True,
            "q_lora_rank": rng.choice((None, 12 * unit, 16 * unit)),
            "kv_lora_rank": unit * rng.choice((8, 20)),
            "qk_head_dim": rng.choice((4, 8)),
            "qk_pos_emb_head_dim": rng.choice((2, 4)),
            "v_head_dim": rng.choice((4, 6, 8)),
            "rope_type": "rope",
            "qk_layernorm": rng.random() < 0.85,
        }
        m.pop("pos", None)
        if m["q_lora_rank"] is None and m["qk_layernorm"]:
            m["normalization"] = "RMSNorm"  # the script's stand-in for that fused norm has no bias
    else:
        m["num_query_groups"] = rng.choice([g for g in range(1, heads + 1) if heads % g == 0 and (g % tp == 0 or tp % g == 0)] or [heads])
        m["kv_channels"] = rng.choice((4, 8, 16))
        m["add_qkv_bias"] = rng.random() < 0.25
        if rng.random() < 0.2:
            m["attention_output_gate"] = True
        if not small and par["cp"] == 1 and rng.random() < 0.1:
            m["softmax_type"] = "learnable"
    if moe:
        m |= _experts(rng, unit, par)
        if m.get("moe_shared_expert_intermediate_size") or (par["etp"] or par["tp"]) > 1:
            m["add_bias_linear"] = False  # Megatron-Core has no biases there
        if m.get("moe_latent_size") and par["tp"] > 1:
            m["add_bias_linear"] = False  # the script's stand-in for a duplicated linear does not mark its bias
        m["moe_layer_freq"] = rng.choice((1, 1, 2, [1, *(rng.choice((0, 1)) for _ in range(layers - 1))]))
    return m


def _experts(rng: random.Random, unit: int, par: Case) -> Case:
    experts, etp = par["ep"] * rng.choice((1, 2, 4)) * 2, par["etp"] or par["tp"]
    m: Case = {
        "num_moe_experts": experts,
        "moe_router_topk": rng.choice([k for k in (1, 2, 2, 4) if k <= experts]),
        "moe_ffn_hidden_size": unit * etp * rng.choice((8, 12, 24)),
        "moe_router_score_function": rng.choice(("softmax", "softmax", "sigmoid")),
    }
    if m["moe_router_score_function"] == "softmax":
        m["moe_router_pre_softmax"] = rng.random() < 0.4 or m["moe_router_topk"] == 1
    else:
        m["moe_router_enable_expert_bias"] = rng.random() < 0.5
    if rng.random() < 0.45:
        m["moe_shared_expert_intermediate_size"] = unit * par["tp"] * rng.choice((8, 16))
        m["moe_shared_expert_gate"] = rng.random() < 0.4
    if rng.random() < 0.25:
        m["moe_latent_size"] = unit * rng.choice((8, 16))
    if experts % 4 == 0 and rng.random() < 0.3:
        m |= {"moe_router_num_groups": 2 if rng.random() < 0.5 else 4, "moe_router_group_topk": rng.choice((1, 2))}
    if rng.random() < 0.25:
        m["moe_router_dtype"] = "fp32"
    if rng.random() < 0.45:
        m |= {"moe_router_load_balancing_type": rng.choice(("aux_loss", "seq_aux_loss", "global_aux_loss")), "moe_aux_loss_coeff": 0.01}
    if rng.random() < 0.15:
        m["moe_z_loss_coeff"] = 0.001
    return m


def _strategy(rng: random.Random, section: str, m: Case, par: Case) -> Case:
    found: Case = {}
    if section == "trace":
        found |= _recompute(rng, m, par)
        if rng.random() < 0.2:
            found["fp32_residual_connection"] = True
        if rng.random() < 0.3:
            found |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}
        if rng.random() < 0.2 and not (m.get("num_moe_experts") and found.get("recompute_granularity")):
            found["hidden_dropout"] = 0.1  # the script restores no random state, so experts would get other rows the second time
        if m.get("num_moe_experts"):
            # where only some layers run again, the rows of each would have to be known, and a trace shows those of all
            if rng.random() < 0.3 and found.get("recompute_method") != "block":
                found["moe_token_dispatcher_type"] = "allgather"
            elif rng.random() < 0.3:
                found |= {"moe_expert_capacity_factor": rng.choice((0.5, 1.0, 1.5)), "moe_pad_expert_input_to_capacity": True}
        if m["gated_linear_unit"] and not m.get("act") and rng.random() < 0.15:
            found["activation_func_fp8_input_store"] = True
    if par["pp"] > 1:
        found |= _split(rng, m, par)
    return found


def _recompute(rng: random.Random, m: Case, par: Case) -> Case:
    kind = rng.random()
    if kind < 0.5:
        return {}
    if kind < 0.65:
        method = rng.choice(("uniform", "block"))
        full = {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": rng.choice((1, 1, 2))}
        if par.get("sp") is False and par["tp"] > 1 and rng.random() < 0.5:
            full["distribute_saved_activations"] = True
        return full
    modules = ["core_attn", "layernorm"]
    if not m.get("num_moe_experts") or m["moe_layer_freq"] not in (1, [1] * m["num_layers"]):
        modules += ["mlp"]
    if m.get("num_moe_experts"):
        modules += ["moe"] + (["shared_experts"] if m.get("moe_shared_expert_intermediate_size") else [])
    if m.get("multi_latent_attention"):
        modules += ["mla_up_proj"]
    chosen = rng.sample(modules, min(len(modules), rng.choice((1, 1, 2, 3))))
    return {"recompute_granularity": "selective", "recompute_modules": chosen}


def _split(rng: random.Random, m: Case, par: Case) -> Case:
    """How the layers are cut into stages: evenly, with longer or shorter ends, or by a layout."""
    pp, vpp, layers = par["pp"], par.get("vpp") or 1, m["num_layers"]
    kind = rng.random()
    if kind < 0.25 and pp > 2:
        ends = rng.choice(("first", "last", "both"))
        middle = (pp - (2 if ends == "both" else 1)) * vpp
        end = vpp * rng.choice((1, 2))
        m["num_layers"] = middle * rng.choice((1, 2)) + end * (2 if ends == "both" else 1)
        found = {}
        if ends != "last":
            found["num_layers_in_first_pipeline_stage"] = end
        if ends != "first":
            found["num_layers_in_last_pipeline_stage"] = end
    elif kind < 0.4 and layers > pp * vpp:
        account = rng.choice((("embedding",), ("loss",), ("embedding", "loss")))
        m["num_layers"] = layers - len(account)
        found = {f"account_for_{what}_in_pipeline_split": True for what in account}
    elif kind < 0.65:
        cuts = sorted(rng.randint(0, layers) for _ in range(pp * vpp - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, layers])]
        parts = ["t" * n for n in sizes]
        parts[0], parts[-1] = "E" + parts[0], parts[-1] + "m" * (m.get("mtp_num_layers") or 0) + "L"
        return {"pipeline_model_parallel_layout": "|".join(parts)}
    else:
        found = {}
    if isinstance(m.get("moe_layer_freq"), list):
        m["moe_layer_freq"] = [rng.choice((0, 1)) for _ in range(m["num_layers"] - 1)] + [1]
    return found


def _fusable(m: Case) -> bool:
    """The script runs this network with fused kernels: gated SiLU, and GELU with a bias outside experts; no norm of the latent
    queries that are none."""
    if m["qk_layernorm"] and m.get("q_lora_rank", 0) is None:
        return False
    if m.get("act") == "gelu":
        return not m.get("num_moe_experts") and m["add_bias_linear"]
    return m["gated_linear_unit"] and not (m.get("num_moe_experts") and m["add_bias_linear"])


def _comparable(m: Case, strategy: Case) -> None:
    """Leave out what the script keeps otherwise than a GPU does: on the CPU a dropout mask is in bf16, its norm casts an fp32
    stream, and it holds on to what routing in groups and auxiliary losses made and freed again."""
    for name in ("fp32_residual_connection", "hidden_dropout"):
        strategy.pop(name, None)
    for name in ("moe_router_num_groups", "moe_router_group_topk", "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff"):
        m.pop(name, None)


# --- comparing -----------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of the comparisons of one kind."""

    drawn: int = 0
    equal: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    different: list[tuple[Case, Any, Any]] = field(default_factory=list)


def run(found: list[tuple[str, Case]], tree: str | None) -> list[Case]:
    """What the oracle script finds for these cases: each with its result or the error that it ended in."""
    answers: list[Case] = []
    while len(answers) < len(found):
        answers += _run(found[len(answers) :], tree)
        if len(answers) < len(found):  # some combinations of recomputation never end in Megatron-Core
            answers.append({"result": None, "error": f"no end within {PATIENCE} s"})
    return answers


def _run(found: list[tuple[str, Case]], tree: str | None) -> list[Case]:
    """The answers up to a case that does not end."""
    with tempfile.TemporaryDirectory() as folder:
        source, target, complaints = (Path(folder, name) for name in ("cases.json", "results.jsonl", "stderr"))
        source.write_text(json.dumps([{"section": section, "case": case} for section, case in found]))
        command = [sys.executable, "-P", str(Path(__file__).with_name("megatron_run.py")), str(SCRIPT), tree or "-", str(source), str(target)]
        with open(complaints, "w") as errors, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as process:
            size, since = -1, time.monotonic()
            while process.poll() is None and time.monotonic() - since < PATIENCE:
                time.sleep(0.1)
                now = target.stat().st_size if target.exists() else 0
                if now != size:
                    size, since = now, time.monotonic()
            process.kill()
        if process.returncode > 0:
            raise SystemExit(f"the oracle script ended with code {process.returncode}:\n{complaints.read_text()[-2000:]}")
        return [json.loads(line) for line in target.read_text().splitlines() if line.endswith("}")] if target.exists() else []


def compare(count: int, seed: int, tree: str | None, only: "set[int] | None" = None) -> tuple[dict[str, Tally], Counter[str]]:
    """Draw `count` cases, and draw again what the script cannot run: the comparisons by kind, and the script's errors."""
    tallies = {kind: Tally() for kinds in SECTIONS.values() for kind, _ in kinds}
    errors: Counter[str] = Counter()
    waiting = [(number, 0) for number in range(count) if only is None or number in only]
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        found = [drawn(seed, *place) for place in batch]
        for (number, again), (section, case), answer in zip(batch, found, run(found, tree)):
            if answer["error"]:
                errors[answer["error"]] += 1
                waiting.append((number, again + 1))
                continue
            full = {"name": case["name"], "config": case, "result": answer["result"]}
            for kind, comparison in SECTIONS[section]:
                if kind != "saved bytes" or case.get("fused"):
                    _compare(tallies[kind], full, comparison)
    return tallies, errors


def _compare(tally: Tally, case: Case, comparison: Callable[[Case], tuple[Any, Any]]) -> None:
    tally.drawn += 1
    try:
        expected, computed = comparison(case)
    except InputError as error:
        tally.refused[str(error)] += 1
        return
    except Exception as error:
        expected, computed = "a comparison", f"{type(error).__name__}: {error}"
    if expected == computed:
        tally.equal += 1
    else:
        tally.different.append((case, expected, computed))


def differs(expected: Any, computed: Any) -> str:
    """Where two results differ; of counted calls those that only one side has."""
    if isinstance(expected, Counter) and isinstance(computed, Counter):
        return f"only Megatron-Core: {dict(expected - computed)}; only symsim: {dict(computed - expected)}"
    if isinstance(expected, tuple | list) and isinstance(computed, tuple | list) and len(expected) == len(computed):
        return "; ".join(differs(e, c) for e, c in zip(expected, computed) if e != c)
    return f"Megatron-Core {expected}, symsim {computed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", help="a Megatron-LM checkout; default: the installed megatron-core")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the cases to run")
    parser.add_argument("--show", type=int, default=20, help="differences to print")
    given = parser.parse_args()
    if not SCRIPT.exists():
        raise SystemExit(f"{SCRIPT} is not on this machine")
    tallies, errors = compare(given.count, given.seed, given.tree, set(given.only) if given.only else None)
    shown = 0
    for kind, tally in tallies.items():
        for case, expected, computed in tally.different:
            if shown < given.show:
                print(f"\n{kind}: {case['name']}\n  {json.dumps(case['config'])}\n  {differs(expected, computed)}")
            shown += 1
    refusals: Counter[str] = Counter()
    print(f"\n{'comparison':30} {'drawn':>6} {'equal':>6} {'refused':>8} {'different':>10}")
    for kind, tally in tallies.items():
        print(f"{kind:30} {tally.drawn:6} {tally.equal:6} {sum(tally.refused.values()):8} {len(tally.different):10}")
        refusals += tally.refused
    for reason, times in refusals.most_common():
        print(f"refused {times} times: {reason}")
    print(f"drawn again, as the script could not run them: {sum(errors.values())}")
    for reason, times in errors.most_common(12):
        print(f"  {times} times: {reason[:150]}")
    return 1 if shown else 0


if __name__ == "__main__":
    sys.exit(main())
