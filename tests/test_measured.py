"""Every measured row of ../shared/measured is an input of symsim's: it derives, and its numbers are the source's own."""

from __future__ import annotations

import json
from functools import cache
from pathlib import PurePath
from typing import Any

import measured_axolotl
import measured_bridge
import measured_papers
import measured_simumax
import measured_torchtune
import pytest
from measured_cases import SOURCES, Case, apart, cases, uncovered
from shared import SHARED

from symsim.api.result import Result, derive
from symsim.inputs.reading import read_yaml
from symsim.inputs.systems import load_system

ALL = [case for source in SOURCES for case in cases(source)]
REASON = "../shared/measured is not on this machine"
SIMUMAX_KEYS = (
    "tp_size", "pp_size", "ep_size", "interleaving_size", "micro_batch_size", "micro_batch_num", "seq_len", "world_size", "zero_state", "etp_size",
)  # fmt: skip


@cache
def document(name: str) -> dict[str, Any]:
    return read_yaml(str(SHARED / "measured" / f"{name}.yaml")).data


@cache
def identifiers(name: str) -> list[str]:
    """Of SimuMax's rows, or of Megatron-Bridge's, in the order of the file."""
    return [row.id for row in {"simumax": measured_simumax, "published": measured_bridge}[name].rows(document(name))]


@cache
def derived(identifier: str, causal: str = "full") -> Result:
    case = next(c for c in ALL if c.id == identifier)
    return derive(case.architecture, case.strategy, {**case.assumptions, "causal": causal})


def each(found: list[Case]) -> Any:
    """Parametrise over cases; one None when the shared files are absent, so that the test can say so."""
    return pytest.mark.parametrize("case", found or [None], ids=[c.id for c in found] or ["absent"])


def of(source: str) -> list[Case]:
    return [c for c in ALL if c.source == source]


def needed(case: Case | None) -> Case:
    if case is None:
        pytest.skip(REASON)
    return case


@each(ALL)
def test_a_case_derives(case: Case | None) -> None:
    case = needed(case)
    # what has a measured step, test_step_time.py derives
    assert case.step_seconds or derived(case.id).value("N") > 0
    assert case.step_seconds is None or case.step_seconds > 0
    assert case.memory_bytes is None or case.memory_bytes > 0
    assert case.step_seconds or case.memory_bytes


@pytest.mark.skipif(not ALL, reason=REASON)
def test_every_row_is_a_case_or_has_a_reason() -> None:
    names = [row.id for source in SOURCES for row in (*cases(source), *apart(source), *uncovered(source))]
    assert len(names) == len(set(names))
    assert all(row.reason for source in SOURCES for row in uncovered(source))
    simumax = document("simumax")
    assert len(cases("simumax")) == sum(len(simumax[s]) for s in ("b200_release_v1_2", "b200_vpp_preview", "a100_pcie"))
    printed = document("published")["megatron_bridge_performance"]["rows"]
    doubled = sum("(" in str(row["tokens_per_s_per_gpu"]) for row in printed)
    rows = [r for r in (*cases("published"), *apart("published"), *uncovered("published")) if r.source == measured_bridge.SECTION]
    assert len(rows) == len(printed) + doubled


# SimuMax's own presets and runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", measured_simumax.MODELS)
def test_a_preset_is_simumax_own(preset: str) -> None:
    path = SHARED / "peers" / "simumax" / "configs" / "models" / f"{preset}.json"
    if not path.exists():
        pytest.skip(f"../shared/peers/simumax has no {preset}")
    theirs = json.loads(path.read_text())
    base, facts, dense = measured_simumax.MODELS[preset]
    model = measured_simumax.architecture(base, facts)
    assert (model.hidden_size, model.vocab_size, model.num_layers) == (theirs["hidden_size"], theirs["vocab_size"], theirs["layer_num"])
    assert model.attention.num_attention_heads == theirs["head_num"]
    assert theirs.get("dense_layers", 0) == dense
    if model.mlp is not None:
        assert model.mlp.ffn_hidden_size == theirs["intermediate_size"]
    if model.attention.kind == "gqa":
        assert (model.query_groups, model.head_dim) == (theirs["kv_head_num"], theirs["head_size"])
    else:
        for ours in ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"):
            assert getattr(model.attention, ours) == theirs[ours]
    if model.moe is not None:
        assert (model.moe.num_moe_experts, model.moe.moe_router_topk) == (theirs["expert_num"], theirs["topk"])
        assert model.moe.moe_ffn_hidden_size == theirs.get("moe_ffn_hidden_size", theirs["intermediate_size"])
        assert model.moe.moe_shared_expert_intermediate_size == theirs.get("moe_shared_expert_intermediate_size")


@each(cases("simumax"))
def test_a_rank_holds_the_parameters_that_simumax_counts(case: Case | None) -> None:
    case = needed(case)
    path = _simumax_output(case)
    if not path.exists():
        pytest.skip("../shared/peers/simumax has no run of this row")
    chunks = json.loads(path.read_text())["chunks"]
    # bf16: two bytes a parameter; a pipeline with virtual stages also lists its parts, which are left out
    theirs = {
        name: (chunk["total"]["model_bytes"]["dense_weight"] + chunk["total"]["model_bytes"]["moe_weight"]) / 2
        for name, chunk in chunks.items()
        if not name[-1].isdigit()
    }
    ours = [stage["total"] for stage in derived(case.id).to_json()["params"]["per_rank"]]
    assert ours[0] == theirs["first_stage_chunk"]
    assert ours[-1] == theirs.get("last_stage_chunk", theirs["first_stage_chunk"])
    assert set(ours[1:-1]) <= {theirs.get("middle_stage_chunk")}


def _simumax_row(case: Case) -> dict[str, Any]:
    """The case's row of simumax.yaml."""
    data = document("simumax")
    printed = [row for section in ("b200_release_v1_2", "b200_vpp_preview", "a100_pcie") for row in data[section]]
    return printed[identifiers("simumax").index(case.id)]


def _simumax_output(case: Case) -> Any:
    """SimuMax's own run of the row, where ../shared keeps one."""
    row, directory = _simumax_row(case), SHARED / "peers" / "simumax"
    if case.source == "a100_pcie":
        model = {"llama3 8b": "llama3_8b", "llama3 70b": "llama3_70b_l12", "ds 236b": "deepseekv2_l4"}.get(row["model"])
        parallel = {"ep8": "ep8_pp1", "ep4pp2": "ep4_pp2"}.get(row["parallel"], row["parallel"])
        return directory / f"a100_{model}_{parallel}_mbc{row['mbc']}.json"
    named = row["simumax_rerun_v1_2"].get("output_json")
    return directory / (PurePath(named).name if named else f"b200_{row['case'].split('_dp')[0]}_sync.json")


@each(cases("simumax"))
def test_the_degrees_are_those_of_simumax_strategy_file(case: Case | None) -> None:
    case = needed(case)
    row = _simumax_row(case)
    path = SHARED / "peers" / "simumax" / row["files"]["strategy"]
    if not path.exists():
        pytest.skip(f"../shared/peers/simumax has no {row['files']['strategy']}")
    theirs = {**json.loads(path.read_text()), **row.get("strategy_overrides", {})}
    s = case.strategy
    ours = (s.tp, s.pp, s.ep, s.vpp, s.micro_batch_size, s.microbatches, s.seq_length, s.world_size, s.zero, s.expert_tp if s.ep > 1 else 1)
    assert ours == tuple(theirs[key] for key in SIMUMAX_KEYS)
    assert s.cp == theirs.get("cp_size", 1)
    assert s.recompute == "none" and not theirs.get("recompute_layer_num")


# ms-swift -----------------------------------------------------------------------------------------------------------------


@each(cases("swift"))
def test_a_swift_model_has_the_parameters_that_the_source_derives(case: Case | None) -> None:
    case = needed(case)
    table = document("swift")["seed_tables"][case.source]
    assert derived(case.id).value("N") == table["derived"]["params_total"]
    tokens = case.strategy.microbatches * case.strategy.micro_batch_size * case.strategy.dp * case.strategy.seq_length
    assert tokens == table["derived"]["tokens_per_iteration"]


# the papers ---------------------------------------------------------------------------------------------------------------


@each([c for c in of("narayanan2021") if "table1" in c.id])
def test_table_1_has_the_printed_parameters_and_the_implied_step(case: Case | None) -> None:
    case = needed(case)
    rows = document("published")["narayanan2021"]["table1"]["rows"]
    row = next(r for r in rows if case.id.endswith(f"-{r['params_B']}B"))
    assert round(float(derived(case.id).value("N")) / 1e9, 1) == pytest.approx(row["params_B"], abs=0.1001)
    assert case.step_seconds == pytest.approx(row["checks"]["implied_iter_time_s"], abs=5.1e-4)
    assert case.strategy.world_size == row["gpus"]


@each([c for c in of("korthikanti2022") if "-dp" not in c.id])
def test_table_5_has_the_steps_own_utilisation(case: Case | None) -> None:
    case = needed(case)
    row = next(r for r in document("published")["korthikanti2022"]["table3_5"] if case.id.startswith(f"korthikanti/{r['model']}-"))
    assert case.strategy.world_size == row["gpus"]
    flops = measured_papers.model_flops(row["hidden"], row["layers"], row["seq"], row["vocab"], row["global_batch"])
    assert case.step_seconds is not None
    mfu = 100 * flops / (case.step_seconds * row["gpus"] * measured_papers.A100_BF16)
    printed = row["checks"]["mfu_full_recompute_run" if "full" in case.id else "mfu_from_eq7_and_time"]
    assert mfu == pytest.approx(printed, abs=0.0051)


@each(of("megatron_core_h100"))
def test_the_h100_table_has_the_implied_step(case: Case | None) -> None:
    case = needed(case)
    row = next(r for r in document("published")["megatron_core_h100"]["rows"] if case.id.endswith(f"/{r['model']}"))
    assert case.step_seconds == pytest.approx(row["checks"]["implied_iter_time_s"], abs=5.1e-4)
    assert float(derived(case.id).value("N")) == pytest.approx(float(row["model"][:-1]) * 1e9, rel=0.03)
    assert case.strategy.world_size == row["gpus"]


@each(of("moe_parallel_folding_2025"))
def test_megatrons_count_is_the_gemms_of_the_derivation(case: Case | None) -> None:
    case = needed(case)
    batch = case.strategy.global_batch_size
    assert batch is not None
    forward = derived(case.id, "half").flops_by_module()
    tokens = case.strategy.micro_batch_size * case.strategy.seq_length
    ours = 3 * sum(v["forward"] for module, v in forward.items() if module != "router") / tokens
    theirs = measured_papers.megatron_flops(case.architecture, case.strategy.seq_length, batch) / (batch * case.strategy.seq_length)
    # the shared experts' gate of Qwen2-57B, one column, is in no convention
    assert ours == pytest.approx(theirs, rel=2e-5)


# Megatron-Bridge ------------------------------------------------------------------------------------------------------------


def newer(case: Case) -> bool:
    """gpt-oss before container 26.06 was counted otherwise: 27.2 GFLOP a token at s=4096, not the 32.6 printed since."""
    version = case.id.removeprefix("bridge/").split("-")[0]
    return not case.architecture.name.startswith("gpt-oss") or tuple(int(n) for n in version.split(".")) >= (26, 6)


def adapted(case: Case) -> bool:
    return case.strategy.tuner_type == "lora"


@each([c for c in of(measured_bridge.SECTION) if adapted(c)])
def test_the_printed_rates_of_adapters_are_of_weights_alone(case: Case | None) -> None:
    """Of LoRA, TFLOP/s over tokens/s are 4 a parameter that is multiplied: no weight gradients, and no attention."""
    case = needed(case)
    tokens, rate = _printed(case)
    model = case.architecture
    weights = derived(case.id).value("params.total") - derived(case.id).value("params.trained") - model.vocab_size * model.hidden_size
    assert rate * 1e12 / tokens == pytest.approx(4 * float(weights), rel=0.01)


# memory is active bytes, of weights in 4 bits too; only the modules run as they are written are slower than that
@each(of(measured_torchtune.SECTION))
def test_a_published_table_of_techniques(case: Case | None) -> None:
    case = needed(case)
    result = derive(case.architecture, case.strategy, case.assumptions, None, load_system(case.system))
    assert case.memory_bytes and case.step_seconds
    assert float(result.value("memory.peak")) == pytest.approx(case.memory_bytes, rel=0.026)
    assert float(result.value("time.step")) == pytest.approx(case.step_seconds, rel=0.1 if case.strategy.fusion == "compile" else 0.14)


# beyond 5.2 % (docs/accuracy_adapters.py)
BEYOND = {"torchtune/llama3.1-70b LoRA": 0.1}
# Olmo 3's file asks for a loss without logits, and its number is that of one with them
OTHERWISE = {"axolotl/olmo3": {"cross_entropy_fusion": None}}


@each([*of(measured_torchtune.SPEED), *of(measured_axolotl.SECTION)])
def test_published_memory_of_adapters(case: Case | None) -> None:
    case = needed(case)
    strategy = case.strategy.model_copy(update=OTHERWISE.get(case.id, {}))
    result = derive(case.architecture, strategy, case.assumptions, None, load_system(case.system))
    assert case.memory_bytes and case.step_seconds is None
    assert float(result.value("memory.peak")) == pytest.approx(case.memory_bytes, rel=BEYOND.get(case.id, 0.052))


# of packed rows the rates are printed as of whole ones
@each([c for c in of(measured_bridge.SECTION) if newer(c) and not adapted(c) and "packed_document_length" not in c.guessed])
def test_the_printed_rates_agree_with_the_models_flops(case: Case | None) -> None:
    """TFLOP/s over tokens/s is 3 x the forward FLOPs of a token with causal attention; tokens/s are printed to 1.3 % at worst."""
    case = needed(case)
    ours = 3 * sum(v["forward"] for v in derived(case.id, "exact").flops_by_module().values())
    ours /= case.strategy.micro_batch_size * case.strategy.seq_length
    tokens, rate = _printed(case)
    assert ours == pytest.approx(rate * 1e12 / tokens, rel=0.014)


@each([c for c in of(measured_bridge.SECTION) if measured_bridge.TOKENDROP in c.id])
def test_tokens_are_dropped_by_an_alltoall_dispatcher(case: Case | None) -> None:
    """Whatever recipe is nearest: apply_moe_token_drop takes no other (training/utils/moe_token_drop.py)."""
    plan = needed(case).strategy
    assert (plan.moe_token_dispatcher_type, plan.moe_expert_capacity_factor) == ("alltoall", 1)


@each([c for c in of(measured_bridge.SECTION) if c.strategy.cuda_graph_impl == "full_iteration" and c.architecture.moe is not None])
def test_rows_of_full_iteration_graphs_are_of_a_fixed_number(case: Case | None) -> None:
    """Megatron-Bridge v0.5.1 scripts/performance/configs: set_full_iter_cg_configs, and cutedsl_fused_grouped_mlp of its workloads; fp8_output_proj
    of DeepSeek-V3 and GPT-OSS."""
    case = needed(case)
    plan = case.strategy
    assert (plan.moe_paged_stash, plan.moe_expert_rank_capacity_factor, plan.use_transformer_engine_op_fuser) == (True, 1.5, True)
    assert plan.fp8_output_proj == (case.architecture.name in ("deepseek-v3", "gpt-oss-120b"))


@each([c for c in of(measured_bridge.SECTION) if c.id.endswith("GPT_OSS_120B-GB200x64-BF16-gbs1280") and c.id.startswith("bridge/26.04")])
def test_the_batch_says_which_variant_of_a_recipe_ran(case: Case | None) -> None:
    """Both variants print the same layout; that of 1280 rows overlaps exchanges (scripts/performance/configs/gpt_oss at v0.4.0)."""
    assert needed(case).strategy.overlap_moe_expert_parallel_comm


def _printed(case: Case) -> tuple[float, float]:
    """(tokens/s/GPU, model TFLOP/s/GPU) of the case's row."""
    rows = [one for printed in document("published")["megatron_bridge_performance"]["rows"] for one in measured_bridge._apart(printed)]
    row = rows[identifiers("published").index(case.id)]
    return row["tokens_per_s_per_gpu"], row["model_tflops_per_gpu"]
