"""SimuMax's files as a job: what each key becomes, and what SimuMax itself computes for the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shared import SHARED

import symsim
from symsim.errors import InputError
from symsim.importers.job import write_job
from symsim.inputs.reading import read_yaml

IMPORTED = Path(__file__).parent / "imported" / "simumax"
PEER = SHARED / "peers" / "simumax"
STRATEGY = json.loads((IMPORTED / "dense" / "strategy.json").read_text())
# StrategyConfig of SimuMax v1.2 (simumax/core/config.py), and a key that its guide of v1.1 misspells
FIELDS = """
    seq_len micro_batch_size micro_batch_num global_batch_size dtype fp8 world_size tp_size cp_size pp_size ep_size etp_size cp_comm_type
    cp_a2a_mode order_of_paralielism moe_dispatcher_policy enable_sequence_parallel num_layers_in_first_pipeline_stage
    num_layers_in_last_pipeline_stage account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split interleaving_size
    microbatch_group_size_per_vp_stage pp_comm_async enable_straggler_model zero_state overlap_grad_reduce grad_reduce_in_bf16
    use_fp32_accum_grad use_accm_weight use_fused_grad_accumulation cache_groupgemm_col_fp8_inputs offload_groupgemm_col_inputs
    enable_recompute recompute_granularity recompute_layer_num attn_recompute mla_rms_recompute mlp_recompute mlp_rms_recompute
    recompute_variance megatron_recompute megatron_recompute_modules use_flash_sdp use_math_sdp attention_sparse_ratio attention_sparse_rati
    use_fused_norm use_fused_swiglu enable_dropout cross_entropy_loss_fusion te_version te_dummy_wgrad_min_version
    te_grouped_linear_dummy_wgrad_min_version te_cp_a2a_save_pre_posta2a_min_version tp_net cp_net pp_net dp_net ep_net etp_net edp_net
    dispatch_probs mem_factor""".split()


def job(tmp_path: Path, strategy: dict[str, Any] | None = None, model: dict[str, Any] | None = None, lenient: bool = False) -> symsim.Job:
    """The job of the dense example with some keys changed."""
    files = []
    for name, changes in (("strategy", strategy), ("model", model)):
        data = json.loads((IMPORTED / "dense" / f"{name}.json").read_text())
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps({**data, **(changes or {})}))
    return symsim.load_job("simumax", *map(str, files), lenient=lenient)


def fates(made: symsim.Job) -> dict[str, str]:
    return {row.key: row.fate for row in made.rows}


def test_a_job_of_three_files(tmp_path: Path) -> None:
    made = symsim.load_job("simumax", *map(str, sorted((IMPORTED / "dense").iterdir())))
    assert made.strategy == {
        "tp": 4, "cp": 1, "pp": 2, "ep": 1, "etp": 1, "dp": 2, "seq_length": 4096, "micro_batch_size": 1, "num_microbatches": 16, "sp": True,
        "rank_order": "tp-cp-ep-dp-pp", "vpp": 2, "zero": 1, "grad_reduce_in_fp32": True, "precision": "bf16", "cross_entropy_fusion": "te",
        "recompute": "full", "recompute_method": "block", "recompute_num_layers": 3,
    }  # fmt: skip
    assert made.architecture is not None and made.architecture.vocab_size == 128512 and made.assumptions["te_dummy_wgrad"] == "true"
    write_job(made, tmp_path)
    system = symsim.load_system(tmp_path / "system.yaml")
    chip, tier, outer = system.accelerator, system.network[0], system.network[1]
    assert float(chip.memory_bandwidth.value) == 3120 * 2**30 and chip.multiprocessors.value == 132
    # of all collectives that say so, a hop and a call; a node's links are shared by its eight ranks
    assert (float(tier.latency.value), float(tier.launch.value if tier.launch else 0)) == pytest.approx((5e-6, 11e-6))
    assert float(tier.efficiency["all_reduce"].value) == 0.75 and float(outer.bandwidth.value) == 370 / 8 * 2**30
    # halved: theirs counts the whole square of a causal kernel's scores
    assert float(system.kernels.attention.forward.value) == 0.55
    # six points of products are enough to fit their curve
    assert system.kernels.gemm.efficiency.source == "calibrated"
    assert symsim.derive(tmp_path).value("time.step") > 0


def test_the_share_of_reserved_memory_in_use(tmp_path: Path) -> None:
    """mem_factor divides a peak of reserved memory, and is what the allocator keeps free beside a peak of bytes in use."""
    made = job(tmp_path, {"mem_factor": 0.8})
    assert (made.strategy or {})["allocator_in_use"] == 0.8 and fates(made)["mem_factor"] == "mapped"
    peaks, spare = [], []
    for share in (1.0, 0.8):
        strategy = {"tp": 2, "allocator_in_use": share}
        in_use = symsim.derive("llama3-8b", strategy)
        spare.append(in_use.value("memory.reserve") / in_use.value("memory.peak"))
        peaks.append(symsim.derive("llama3-8b", strategy, overrides={"assume.memory": "reserved"}).value("memory.peak"))
    assert spare[1] - spare[0] == pytest.approx(0.25) and peaks[1] == pytest.approx(peaks[0] / 0.8)
    with pytest.raises(InputError, match="mem_factor is 1.2; it should be a share above 0 and up to 1"):
        job(tmp_path, {"mem_factor": 1.2})


def test_a_share_below_zero_is_a_sentence(tmp_path: Path) -> None:
    text = (IMPORTED / "dense" / "system.json").read_text()
    (tmp_path / "system.json").write_text(text.replace('"permute_bwd": {"efficient_factor": 0.5', '"permute_bwd": {"efficient_factor": -0.4'))
    files = [str(tmp_path / "system.json"), *(str(IMPORTED / "dense" / name) for name in ("strategy.json", "model.json"))]
    with pytest.raises(InputError, match=r"permute_bwd.efficient_factor is -0.4; it should be a share above 0"):
        symsim.load_job("simumax", *files)


def test_every_key_of_the_strategy_has_a_row(tmp_path: Path) -> None:
    made = job(tmp_path, dict.fromkeys(FIELDS))
    assert set(FIELDS) <= fates(made).keys()
    if (SHARED / "vocabulary.yaml").exists():
        said = read_yaml(SHARED / "vocabulary.yaml").data
        theirs = {alias["key"].strip() for at in said["canonical"].values() for alias in at.get("aliases", {}).get("simumax", [])}
        assert not {key for key in theirs if key.isidentifier()} - set(FIELDS)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"fp8": True}, {"fp8": "tensorwise"}),
        ({"grad_reduce_in_bf16": True}, {"grad_reduce_in_fp32": False}),
        ({"cp_size": 2, "world_size": 32}, {"cp": 2, "cp_comm_type": "a2a"}),
        ({"recompute_granularity": "sdp_only"}, {"recompute": "selective", "recompute_modules": ["core_attn"]}),
        (
            {"recompute_granularity": None, "megatron_recompute": True, "megatron_recompute_modules": ["layernorm"]},
            {"recompute": "selective", "recompute_modules": ["layernorm"]},
        ),
        ({"enable_recompute": False}, {"recompute": None}),
        ({"recompute_layer_num": 99}, {"recompute_num_layers": 7}),
        ({"pp_comm_async": True}, {"overlap_p2p_comm": True}),
        ({"zero_state": 0}, {"zero": 0}),
        ({"micro_batch_num": None, "global_batch_size": 64}, {"num_microbatches": 32}),
    ],
)
def test_what_a_key_becomes(changes: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    made = job(tmp_path, changes)
    assert made.strategy is not None and {name: made.strategy.get(name) for name in expected} == expected


def test_assumptions_that_a_strategy_settles(tmp_path: Path) -> None:
    made = job(tmp_path, {"use_flash_sdp": False, "te_version": None, "dispatch_probs": True, "recompute_variance": True})
    assert made.assumptions == {
        "attention_kernel": "math", "te_dummy_wgrad": "false", "moe_probabilities": "experts", "recompute_early_stop": "true", "stragglers": "nodes",
    }  # fmt: skip


def test_experts_that_run_again_from_fp8(tmp_path: Path) -> None:
    """Where they run again, and in FP8: SimuMax itself then saves half of what they start from (tests/draws/simumax.py)."""
    mixture = {"expert_num": 8, "topk": 2, "moe_ffn_hidden_size": 4096}
    again = {"enable_recompute": True, "recompute_granularity": "selective_recompute", "mlp_recompute": True, "fp8": True}
    on = {"cache_groupgemm_col_fp8_inputs": True}
    kept = dict(job(tmp_path, {**again, **on}, mixture).strategy or {})
    assert kept["recompute_from_fp8"] == ["moe.experts.fc1"]
    for other in ({"fp8": False}, {"mlp_recompute": False}):
        found = job(tmp_path, {**again, **on, **other}, mixture)
        assert "recompute_from_fp8" not in (found.strategy or {}) and fates(found)["cache_groupgemm_col_fp8_inputs"] == "no_cost_effect"


@pytest.mark.parametrize(("version", "kept"), [("2.8.0", "attention"), ("2.11.0", "attention"), ("2.7", "projection"), (None, "projection")])
def test_which_output_of_attention_waits(tmp_path: Path, version: str | None, kept: str) -> None:
    spread = {"cp_size": 2, "cp_comm_type": "a2a", "world_size": 16, "te_version": version}
    assert dict(job(tmp_path, spread).strategy or {}).get("cp_saved_output", "attention") == kept
    assert "cp_saved_output" not in (job(tmp_path, {"te_version": "2.0"}).strategy or {})


@pytest.mark.parametrize(
    ("strategy", "model", "sentence"),
    [
        ({"tp_sise": 2}, {}, "strategy.json:1: SimuMax's strategy has no key 'tp_sise': did you mean 'etp_size'"),
        ({"tp_size": 3}, {}, "strategy.json:1: world_size is 16; it should be a multiple of tp_size cp_size pp_size = 6"),
        ({"tp_size": "4x"}, {}, "strategy.json:1: tp_size is 4x; it should be a number"),
        ({"recompute_granularity": "full"}, {}, "recompute_granularity is full; it should be one of full_block"),
        ({"te_version": "new"}, {}, "te_version is new; it should be a version such as 2.11.0"),
        ({}, {"head_num": None}, "model.json:1: head_num is missing"),
        ({}, {"head_num": 25}, "model.json: attention: num_attention_heads 25 is not a multiple of num_query_groups 8"),
        ({"pp_size": 3, "world_size": 24}, {"layer_num": 1}, "layers"),
    ],
)
def test_what_cannot_be_is_one_sentence(strategy: dict[str, Any], model: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        job(tmp_path, strategy, model)
    assert sentence in str(raised.value)


def test_lenient_goes_on(tmp_path: Path) -> None:
    assert fates(job(tmp_path, {"tp_sise": 2}, lenient=True))["tp_sise"] == "refused"


def test_full_recomputation_of_no_layers(tmp_path: Path) -> None:
    made = job(tmp_path, {"enable_recompute": True, "recompute_granularity": "full_block", "recompute_layer_num": 0})
    assert fates(made)["recompute_granularity"] == "no_cost_effect" and "recompute" not in (made.strategy or {})


def test_a_file_of_nothing_known(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match="no file of SimuMax: a system has 'accelerator'"):
        symsim.load_job("simumax", str(tmp_path / "a.json"))


def test_links_of_a_socket_that_ranks_share(tmp_path: Path) -> None:
    """PCIe tiers by size of group; what a pair of ranks reaches beside others is a rank's share, one ring of all has the whole."""
    system = json.loads((IMPORTED / "dense" / "system.json").read_text())
    inner = system["networks"].pop("high_intra_node")
    wide = json.loads(json.dumps(inner))
    wide["op"]["all_gather"]["dp_fixed_bw"] = {"2": 4, "4": 7.65}
    wide["op"]["all_gather"]["efficient_factor"] = 0.5
    system["networks"] |= {"intra_with_pcie": True, "intra_node_pcie_4x": inner, "intra_node_pcie_8x": wide}
    (tmp_path / "s.json").write_text(json.dumps(system))
    made = symsim.load_job("simumax", str(tmp_path / "s.json"))
    write_job(made, tmp_path)
    tiers = symsim.load_system(tmp_path / "system.yaml").network
    assert [tier.ranks for tier in tiers] == [4, 8, "all"]
    assert float(tiers[1].bandwidth.value) == 4 * 2**30 and tiers[1].ring is not None and float(tiers[1].ring.value) == 200 * 2**30


def test_rates_of_data_parallel_groups_are_read_of_pcie_alone(tmp_path: Path) -> None:
    system = json.loads((IMPORTED / "dense" / "system.json").read_text())
    before, rates = json.dumps(system), "networks.inter_node.op.all_gather.dp_fixed_bw"
    system["networks"]["inter_node"]["op"]["all_gather"]["dp_fixed_bw"] = {"2": 4}
    made = {}
    for name, text in (("plain", before), ("rated", json.dumps(system))):
        (tmp_path / "s.json").write_text(text)
        made[name] = symsim.load_job("simumax", str(tmp_path / "s.json"))
    assert fates(made["rated"])[rates] == "no_cost_effect" and made["rated"].system == made["plain"].system


def test_narrow_copies_of_experts_that_are_none(tmp_path: Path) -> None:
    strategy = json.loads((IMPORTED / "dense" / "strategy.json").read_text())
    strategy |= {"fp8": True, "enable_recompute": True, "recompute_granularity": "full_block", "recompute_layer_num": 1}
    (tmp_path / "strategy.json").write_text(json.dumps({**strategy, "cache_groupgemm_col_fp8_inputs": True}))
    made = symsim.load_job("simumax", str(tmp_path / "strategy.json"), str(IMPORTED / "dense" / "model.json"))
    assert fates(made)["cache_groupgemm_col_fp8_inputs"] == "no_cost_effect" and made.placed().recompute == "full"


# runs of SimuMax itself: several models, degrees and machines
RUNS = (
    "a100_llama3_70b_l12_tp2_mbc8",
    "a100_llama3_8b_tp1pp2_mbc4",
    "a100_llama3_70b_l12_tp2_full_recompute",
    "a100_mixtral_8x7b_ep8_pp1",
    "a100_deepseekv2_l4_ep4_pp2_mbc8",
    "b200_deepseekv3_l4_tp1_ep8_pp1_dp8_mbc4_cef",
    "b200_llama3_405b_l4_tp2_cp4_pp1_dp1_seq32768_mbc4_cef",
)


@pytest.mark.parametrize("name", RUNS)
def test_states_and_flops_are_those_of_simumax(name: str, tmp_path: Path) -> None:
    if not (PEER / f"{name}.json").exists():
        pytest.skip("../shared/peers/simumax is not on this machine")
    run = json.loads((PEER / f"{name}.json").read_text())
    asked = run["config"]
    files = []
    for what, folder in (("strategy", "strategy"), ("model", "models")):
        data = json.loads((PEER / "configs" / folder / f"{asked[f'{what}_file']}.json").read_text())
        files.append(tmp_path / f"{what}.json")
        files[-1].write_text(json.dumps({**data, **(asked.get(f"{what}_overrides") or {})}))
    made = symsim.load_job("simumax", *map(str, files))
    result = symsim.derive(made.architecture, made.strategy, made.assumptions).to_json()
    for chunk, stage in (("first_stage_chunk", 0), ("last_stage_chunk", -1)):
        if chunk in run["chunks"]:
            theirs, ours = run["chunks"][chunk]["total"]["model_bytes"], result["memory"]["stages"][stage]
            for here, there in (("weights", "weight"), ("gradients", "grad"), ("optimizer", "state")):
                assert ours[here] == theirs[f"dense_{there}"] + theirs[f"moe_{there}"]
    if len(run["chunks"]) == 1:
        ranks = made.strategy["tp"] * made.strategy["cp"] if made.strategy else 1
        assert result["flops"]["forward"] == run["chunks"]["first_stage_chunk"]["total"]["flops"]["fwd"] * ranks


def test_a_remark_in_a_file_without_comments_is_no_option(tmp_path: Path) -> None:
    path = tmp_path / "strategy.json"
    for key, why in (("_comment", "a remark: the name begins with an underscore"), ("_tp", None)):
        path.write_text(json.dumps({**STRATEGY, key: "for 8 ranks" if why else 2}))
        files = [str(IMPORTED / "dense" / "system.json"), str(path), str(IMPORTED / "dense" / "model.json")]
        if why is None:
            with pytest.raises(InputError, match=f"SimuMax's strategy has no key '{key}'"):
                symsim.load_job("simumax", *files)
        else:
            assert [row.why for row in symsim.load_job("simumax", *files).rows if row.key == key] == [why]


@pytest.mark.parametrize(("fused", "used", "unused"), [(True, "ce_fusion", "ce"), (False, "ce", "ce_fusion")])
def test_a_fused_loss_has_a_share_of_its_own(tmp_path: Path, fused: bool, used: str, unused: str) -> None:
    files = []
    for name in ("strategy", "model", "system"):
        data = json.loads((IMPORTED / "dense" / f"{name}.json").read_text())
        if name == "strategy":
            data["cross_entropy_loss_fusion"] = fused
        if name == "system":
            whole = data["accelerator"]["bandwidth"]["default"]
            data["accelerator"]["bandwidth"] |= {"ce": {**whole, "efficient_factor": 0.5}, "ce_fusion": {**whole, "efficient_factor": 0.25}}
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(data))
    made = symsim.load_job("simumax", *map(str, files))
    assert made.system is not None and float(made.system["kernels"]["memory"]["cross_entropy"][0]) == (0.25 if fused else 0.5)
    ledger = {row.key: row.fate for row in made.rows if "bandwidth.ce" in row.key}
    assert (ledger[f"accelerator.bandwidth.{used}.efficient_factor"], ledger[f"accelerator.bandwidth.{unused}.efficient_factor"]) == (
        "mapped",
        "no_cost_effect",
    )
