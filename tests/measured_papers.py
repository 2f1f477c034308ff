"""The papers' rows of ../shared/measured/published.yaml: what was run, and the step that each one's own convention gives.

Where a source gives TFLOP/s or a utilisation instead of a time, the step is its own FLOP count over them; the counts are
below, each with its equation.
"""

from __future__ import annotations

from typing import Any

from measured_row import Case, Rows, Uncovered, architecture, data_parallel, note, strategy
from measured_row import row as covered

from symsim.inputs.architecture import Architecture

# published.yaml, mfu_conventions.peaks; the folding paper states 989.5 for itself
A100_BF16 = 312e12
H100_BF16_FOLDING = 989.5e12

# micro-batch and virtual stages of Narayanan et al. table 1 by hidden size: Megatron-LM, examples/sc21/run_table_1.sh
# (layers per virtual stage there, divided out here)
TABLE_1 = {
    2304: (16, 1), 3072: (16, 1), 4096: (16, 1), 6144: (8, 1), 8192: (4, 1),
    10240: (2, 3), 12288: (2, 2), 16384: (1, 2), 20480: (1, 3), 25600: (1, 1),
}  # fmt: skip
# the two models of Narayanan et al. table 2 by parameters: hidden size, layers, heads
TABLE_2 = {174.6: (12288, 96, 96), 529.6: (20480, 105, 128)}


def rows(data: dict[str, Any]) -> Rows:
    """Every row of the papers' sections, in the file's order; a section without a reader is one uncovered row."""
    found: Rows = []
    for section, content in data.items():
        if section in READERS:
            found += READERS[section](section, content)
        elif section in UNREAD:
            found.append(Uncovered(section, section, UNREAD[section]))
        elif section not in ("mfu_conventions", "megatron_bridge_performance"):
            found.append(Uncovered(section, section, "no reader knows this section"))
    return found


def model_flops(h: int, layers: int, s: int, vocabulary: int, batch: int) -> float:
    """FLOPs of a step without recomputation: 72 B L s h^2 (1 + s/(6h) + V/(12hL)); Korthikanti et al. 2022 eq. 7, full attention."""
    return 72 * batch * layers * s * h**2 * (1 + s / (6 * h) + vocabulary / (12 * h * layers))


def hardware_flops(h: int, layers: int, s: int, vocabulary: int, batch: int) -> float:
    """FLOPs of a step with full recomputation: 96 B s L h^2 (1 + s/(6h) + V/(16Lh)); Narayanan et al. 2021 eq. 3."""
    return 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))


def megatron_flops(model: Architecture, s: int, batch: int) -> float:
    """FLOPs of a step as Megatron-LM counts them since 6 March 2025 (8873b55d6a, training.py, num_floating_point_operations).

    3 x the forward GEMMs, attention over half of the s keys (all of them before that day), activated and shared experts, logits; no router.
    """
    h, heads, gated = model.hidden_size, model.attention.num_attention_heads * model.head_dim, 1.5 if (model.moe or model.mlp).gated else 1  # type: ignore[union-attr]
    width = model.moe.moe_router_topk * model.moe.moe_ffn_hidden_size if model.moe else model.mlp.ffn_hidden_size  # type: ignore[union-attr]
    shared = (model.moe.moe_shared_expert_intermediate_size or 0) if model.moe else 0
    attention = heads * (h + h * model.query_groups / model.attention.num_attention_heads + s / 2)
    return 12 * batch * s * (model.num_layers * (attention + h * (width + shared) * gated) + model.vocab_size * h / 2)


def gpt(name: str, row: dict[str, Any], s: int) -> Architecture:
    """Megatron-LM's GPT of a paper's table: learned positions, biases, 4h feed-forward, dropout 0.1."""
    h = row["hidden"]
    return architecture(
        "megatron-22b",
        {
            "name": name,
            "source": "",
            "hidden_size": h,
            "layers": row["layers"],
            "attention": {"num_attention_heads": row["heads"]},
            "mlp": {"ffn_hidden_size": 4 * h},
            "vocab_size": row["vocab"],
            "position_embedding_rows": s,
        },
    )


# Megatron-LM of 2021 and 2022 in fp16: gradients accumulated and reduced in fp16, no sharded optimizer, unfused attention
OF_ITS_TIME = {"zero": 0, "precision": "fp16", "grad_reduce_in_fp32": False}
UNFUSED = {"pipeline_scatter_gather": "true", "attention_kernel": "math", "te_dummy_wgrad": "false"}
# Weight gradients were written and then added until gradient accumulation fusion of 16 February 2022 (Megatron-LM 83b1e42f30)
ADDED = {"gradient_accumulation_fusion": False}
# Korthikanti et al. gather the saved input beside the products of backward (section 4.2.2); the code that came with the
# paper reduces the input's gradient beside the weight's too (Megatron-LM megatron/mpu/layers.py of April 2022,
# LinearWithGradAccumulationAndAsyncCommunication; the all-reduce without sequence parallelism since September 2021)
BESIDE = {"tp_async_backward": "true"}

# DeepSpeed's defaults of early 2021 (runtime/zero/constants.py): parameters are gathered module by module within these limits, and gradients
# reduced from one buffer. Without stage3_max_live_parameters, 10^9: what lies between two products that hold more (softmax, dropout, norms)
# holds less, and a gather begins beside it (stage3.py prefetch_next_sub_modules)
LIMITS_2021 = {
    "prefetch_bucket_size": 5 * 10**7,
    "max_reuse_distance": 10**9,
    "param_persistence_threshold": 10**5,
    "ddp_bucket_size": 5 * 10**8,
}


def korthikanti(section: str, data: dict[str, Any]) -> Rows:
    """Table 5's steps, and section 6's 530B model on 2240 GPUs."""
    found: Rows = []
    for row in data["table3_5"]:
        for variant, seconds in row["iter_time_s"].items():
            found.append(_korthikanti(f"korthikanti/{row['model']}-{variant}", section, row, variant, row["dp"], seconds, ""))
    large = data.get("sec6", {}).get("dp8_530B")
    row = next((r for r in data["table3_5"] if r["model"] == "530B"), None)
    if large and row:
        dp = large["gpus"] // row["gpus"]
        scaled = "batch: table 5's for every replica, which the printed MFU confirms"
        found.append(_korthikanti(f"korthikanti/530B-dp{dp}", section, row, "selective_plus_sp", dp, large["iter_time_s"], scaled))
        percent = data["sec6"].get("full_recompute_mfu_530B_2240gpus_pct")
        if percent:
            batch = row["global_batch"] * dp
            seconds = model_flops(row["hidden"], row["layers"], row["seq"], row["vocab"], batch) / (large["gpus"] * A100_BF16 * percent / 100)
            said = f"{scaled}; step from MFU {percent} % by eq. 7"
            found.append(_korthikanti(f"korthikanti/530B-dp{dp}-full_recompute_no_sp", section, row, "full_recompute_no_sp", dp, seconds, said))
    if "table4_22B_layer_ms" in data:
        found.append(Uncovered("korthikanti/table4", section, "times of one layer, not of a step"))
    if "appendixC" in data:
        found.append(Uncovered("korthikanti/appendixC", section, "recomputation that varies from micro-batch to micro-batch has no strategy"))
    return found


def _korthikanti(name: str, section: str, row: dict[str, Any], variant: str, dp: int, seconds: float, said: str) -> Case:
    full = variant == "full_recompute_no_sp"
    plan, unnamed = strategy(
        {
            **OF_ITS_TIME,
            "tp": row["tp"],
            "pp": row["pp"],
            "vpp": row["vpp"],
            "dp": dp,
            "sp": not full,
            "micro_batch_size": row["micro_batch"],
            "global_batch_size": row["global_batch"] * dp,
            "seq_length": row["seq"],
            "recompute": "full" if full else "selective",
        }
    )
    model = gpt(f"megatron-{row['model'].lower()}", row, row["seq"])
    said = note(said, unnamed, "16-bit type and gradient type not stated")
    return Case(name, section, model, plan, {**UNFUSED, **BESIDE}, "a100-sxm-80", seconds, None, said)


def narayanan(section: str, data: dict[str, Any]) -> Rows:
    """Tables 1 and 2; the step is eq. 3's FLOPs over the printed TFLOP/s, rounded to a unit there (0.3 % to 1 % of the step)."""
    found: Rows = []
    said = "step: eq. 3 (recomputation counted) over the printed TFLOP/s"
    for row in data["table1"]["rows"]:
        micro, chunks = TABLE_1.get(row["hidden"], (1, 1))
        guessed = () if row["hidden"] in TABLE_1 else ("micro_batch_size", "vpp")
        name = f"narayanan/table1-{row['params_B']}B"
        found.append(_narayanan(name, section, row, row["tp"], row["pp"], chunks, micro, row["dp"], {}, note(said), guessed))
    for row in data["table2"]["rows"]:
        name = f"narayanan/table2-{row['scheme']}-{row['params_B']}B-{row['gpus']}"
        if row["params_B"] not in TABLE_2:
            found.append(Uncovered(name, section, "table 2 does not give the model's shape"))
            continue
        hidden, layers, heads = TABLE_2[row["params_B"]]
        shape = {**row, "hidden": hidden, "layers": layers, "heads": heads, "seq": 2048, "vocab": 51200}
        if row["scheme"] == "ZeRO-3":
            zero = "DeepSpeed's ZeRO-3 without model parallelism"
            guessed = ("overlap of gathers", "rings", "limits of gathers")
            sharded = {"zero": 3, **LIMITS_2021}
            found.append(_narayanan(name, section, shape, 1, 1, 1, row["micro_batch"], row["gpus"], sharded, note(said, zero), guessed))
        else:
            tp, pp = 8, row["model_parallel"] // 8
            dp = data_parallel(row["gpus"], tp, pp)
            split = "8-way tensor parallelism; one virtual stage (the three TFLOP/s follow 1/(1 + (p-1)/m) within 1.5 %)"
            found.append(_narayanan(name, section, shape, tp, pp, 1, row["micro_batch"], dp, {}, note(said, split), ("tp", "vpp")))
    return found


def _narayanan(
    name: str, section: str, row: dict, tp: int, pp: int, vpp: int, micro: int, dp: int, more: dict[str, Any], said: str, guessed: tuple[str, ...]
) -> Case:
    flops = hardware_flops(row["hidden"], row["layers"], row["seq"], row["vocab"], row["batch"])
    plan, unnamed = strategy(
        {
            **OF_ITS_TIME,
            **ADDED,
            "tp": tp,
            "pp": pp,
            "vpp": vpp,
            "dp": dp,
            "micro_batch_size": micro,
            "global_batch_size": row["batch"],
            "seq_length": row["seq"],
            "recompute": "full",
            **more,
        }
    )
    model = gpt(f"megatron-{row['params_B']:g}b", row, row["seq"])
    seconds = flops / (row["gpus"] * row["tflops_per_gpu"] * 1e12)
    # DeepSpeed of early 2021: gathers ran ahead, gradients did not leave beside backward unless asked to, and what they reached is one link's
    deepspeed = {"fsdp_rings": "one", "fsdp_prefetch": "gathers", "fsdp_unit": "module", "reduction_buffers": "one"}
    sharded = deepspeed if plan.zero == 3 else {}
    return Case(name, section, model, plan, {**UNFUSED, **sharded}, "a100-sxm-80", seconds, None, note(said, unnamed), guessed)


def readme_example(section: str, row: dict[str, Any]) -> Rows:
    """Megatron-LM's README: GPT-3 on 1024 A100, by examples/pretrain_gpt3_175B.sh of the commit that printed the step (152aab304d, 11 January 2021).

    Stages of that code send each other whole tensors: chunks, gathered on arrival, came on 9 February (27fc468964), with the interleaved schedule.
    """
    gpus = int(str(row["gpus"]).split()[0])
    tp, pp = 8, 16
    plan, unnamed = strategy(
        {
            **OF_ITS_TIME,
            **ADDED,
            "tp": tp,
            "pp": pp,
            "dp": data_parallel(gpus, tp, pp),
            "micro_batch_size": 1,
            "global_batch_size": row["batch"],
            "seq_length": 2048,
            "recompute": "full",
        }
    )
    model = architecture("gpt3-175b", {})
    said = "settings: the script of the same commit; the printed TFLOP/s are eq. 3's for the printed step"
    assumptions = {**UNFUSED, "pipeline_scatter_gather": "false"}
    return [Case("megatron-readme/gpt3-175b", section, model, plan, assumptions, "a100-sxm-80", row["iter_time_s"], None, note(said, unnamed))]


def megatron_h100(section: str, data: dict[str, Any]) -> Rows:
    """Megatron-Core r0.8.0 on H100: the step is eq. 7's FLOPs over the printed TFLOP/s."""
    found: Rows = []
    s, vocabulary = 4096, 131072
    for row in data["rows"]:
        tp, pp, dp = row["tp"], row["pp"], row["dp"]
        plan, unnamed = strategy(
            {
                "tp": tp,
                "sp": tp > 1,
                "pp": pp,
                "dp": dp,
                "global_batch_size": row["batch"],
                "seq_length": s,
                "overlap_grad_reduce": True,
                "overlap_param_gather": True,
                "tp_comm_overlap": tp > 1,
            }
        )
        # the printed sizes are those of untied embeddings and a 4h feed-forward
        model = gpt(f"megatron-core-{row['model'].lower()}", {**row, "vocab": vocabulary}, s)
        model = model.model_copy(update={"tie_word_embeddings": False, "position_embedding": "rope", "position_embedding_rows": None})
        model = model.model_copy(update={"hidden_dropout": 0.0, "attention_dropout": 0.0})
        seconds = model_flops(row["hidden"], row["layers"], s, vocabulary, row["batch"]) / (row["gpus"] * row["tflops_per_gpu"] * 1e12)
        said = note("step: eq. 7 over the printed TFLOP/s; micro-batch, virtual stages and recomputation are not published: 1, 1, none", unnamed)
        guessed = ("micro_batch_size", "vpp", "recompute")
        found.append(Case(f"megatron-h100/{row['model']}", section, model, plan, {}, "h100-sxm", seconds, None, said, guessed))
    if "strong_scaling_177B" in data:
        found.append(Uncovered("megatron-h100/strong_scaling_177B", section, "the layout is not given, and the TFLOP/s are read off a plot to 3 %"))
    return found


# models of the folding paper: of models/, and what the paper changes in them (section 4.1)
FOLDING: dict[str, tuple[str, dict[str, Any]]] = {
    "Mixtral-8x22B": ("mixtral-8x22b", {}),
    "Qwen2-57B-A14B": ("qwen2-57b-a14b", {}),
    "Mixtral-8x22B-G8T8": ("mixtral-8x22b", {"moe": {"num_moe_experts": 64, "moe_router_topk": 8, "moe_ffn_hidden_size": 2048}}),
    "Llama3-8x70B": (
        "llama3-70b",
        {
            "layers": "80 * moe",
            "layer_kinds": {"moe": {"ffn": "moe"}},
            "moe": {"num_moe_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 28672},
            "mlp": {"ffn_hidden_size": 28672},
        },
    ),
}


def folding(section: str, data: dict[str, Any]) -> Rows:
    """Tables 1 to 5 of MoE parallel folding: MFU of dropping training (capacity factor 1) on H100."""
    found: Rows = []
    layouts: dict[tuple[str, str], dict[str, Any]] = {}
    for row in data["table1_3"]:
        layouts[row["model"], row["method"]] = row
        found.append(covered(f"folding/{row['model']}-{row['method']}", section, _folding, row, 256, 4096, row["mfu_pct"]))
    for column, tflops in (data.get("table2_fp8_mixtral8x22B_128gpus_tflops") or {}).items():
        method, precision = column.rsplit("_", 1)
        name, method = f"folding/table2-{column}", method.replace("_", "+")
        if precision == "BF16":
            found.append(Uncovered(name, section, "table 1's row again"))
        else:
            row = layouts["Mixtral-8x22B", method]
            found.append(covered(name, section, _folding, row, 256, 4096, 100 * tflops * 1e12 / H100_BF16_FOLDING, ("fp8",), {"fp8": "tensorwise"}))
    for model, table in (data.get("table4_scaling_mfu") or {}).items():
        full = model.replace(" ", "-")
        for method, percents in table.items():
            for gpus, percent in zip(table["gpus"], percents) if method != "gpus" else ():
                row = {**layouts[full, method], "gpus": gpus}
                found.append(covered(f"folding/table4-{full}-{method}-{gpus}", section, _folding, row, 1024, 4096, percent, ("layout",)))
    for row in data.get("table5_context_mixtral8x22B") or []:
        name = f"folding/table5-{row['method']}-{row['seq']}"
        found.append(covered(name, section, _folding, {**row, "model": "Mixtral-8x22B"}, row["gbs"], row["seq"], row["mfu_pct"]))
    return found


def _folding(
    name: str,
    section: str,
    row: dict[str, Any],
    batch: int,
    s: int,
    percent: float | str,
    guessed: tuple[str, ...] = (),
    more: dict[str, Any] | None = None,
) -> Case | Uncovered:
    if row["model"] not in FOLDING:
        return Uncovered(name, section, f"no model here answers to {row['model']}")
    base, changes = FOLDING[row["model"]]
    model = architecture(base, {"name": row["model"].lower(), **changes}, 128 * row["tp"])
    tp, cp, pp, ep, gpus = row["tp"], row["cp"], row["pp"] or 1, row["ep"] or 1, row["gpus"]
    # before folding, the experts' tensor parallelism is the attention's; the folding rows say 1 where they say anything
    etp = row["etp"] or (1 if "Folding" in row["method"] else tp)
    if "Folding" in row["method"] and row["etp"] is None:
        guessed = (*guessed, "etp")
    dp = data_parallel(gpus, tp, pp, cp, etp * ep)
    # a chunk a layer, as NVIDIA's recipes of that spring have Mixtral 8x7B and 8x22B (NeMo 2.4, collections/llm/recipes: vpp 8 of 32 layers
    # over 4 stages, 14 of 56); the interleaved order asks for micro-batches that the stages divide
    chunks = model.num_layers // pp if pp > 1 and not model.num_layers % pp and not batch // dp % pp else None
    plan, unnamed = strategy(
        {
            "tp": tp,
            "sp": tp > 1,
            "cp": cp,
            "pp": pp,
            "vpp": chunks,
            "overlap_p2p_comm": chunks is not None,
            "ep": ep,
            "etp": etp,
            "dp": dp,
            "zero": 3 if row["method"].startswith("FSDP") else 1,
            "global_batch_size": batch,
            "seq_length": s,
            "moe_expert_capacity_factor": 1,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            **(more or {}),
        }
    )
    if batch % dp:
        return Uncovered(name, section, f"a batch of {batch} does not divide over {dp} replicas")
    # of the rows with zero=3 only the one that ran out could not hold its model whole, as it is before it is cut: 108 GiB, and 10 to 53
    made = {"fsdp_initialization": "device"} if plan.zero == 3 else {}
    if isinstance(percent, str):
        out = Case(name, section, model, plan, made, "h100-sxm", None, None, note(unnamed), (*guessed, "initialization"))
        return Uncovered(name, section, f"the table prints {percent}", out if percent == "OOM" else None)
    seconds = megatron_flops(model, s, batch) / (gpus * H100_BF16_FOLDING * percent / 100)
    # arXiv:2504.14960 is of 21 April 2025, after that day. Were all keys counted, the MFU of table 5 would rise with the length of its rows, of
    # which attention then has the larger share; it falls a little
    counted = "step: Megatron-LM's FLOPs of April 2025 (half of the keys) over MFU x 989.5 TFLOP/s"
    said = f"{counted}; micro-batch, virtual stages, recomputation not published"
    guessed = (*guessed, "micro_batch_size", "vpp", "recompute", "overlap", "flops convention")
    return Case(name, section, model, plan, made, "h100-sxm", seconds, None, note(said, unnamed), (*guessed, *(("initialization",) if made else ())))


READERS = {
    "korthikanti2022": korthikanti,
    "narayanan2021": narayanan,
    "megatron_readme_gpt3_example": readme_example,
    "megatron_core_h100": megatron_h100,
    "moe_parallel_folding_2025": folding,
}
UNREAD = {
    "megatron_core_moe_readme": "TFLOP/s without layout, batch or GPU count",
    "vtrain_nccl_allreduce": "collectives, not training steps",
    "recalled_only": "recalled from memory, not seen",
}
