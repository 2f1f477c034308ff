"""NeMo's and Primus's configurations as Megatron-LM's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job

NEMO = (Path(__file__).parent / "imported" / "megatron" / "nemo" / "llama_pretraining.yaml").read_text()
PRIMUS = """
work_group: ${TEAM:ours}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3_8B.yaml
    overrides:
      train_iters: ${ITERATIONS:50}
      micro_batch_size: ${BATCH:2}
      global_batch_size: 16
      seq_length: 8192
      tensor_model_parallel_size: 2
      overlap_grad_reduce: true
      overlap_param_gather: true
      stderr_sink_level: DEBUG
      enable_primus_turbo: true
      use_turbo_attention: false
"""


def job(tmp_path: Path, text: str, **options: Any) -> Job:
    path = tmp_path / "train.yaml"
    path.write_text(text)
    return load_job("megatron", str(path), **options)


def test_a_configuration_of_nemo(tmp_path: Path) -> None:
    made = job(tmp_path, NEMO)
    assert made.strategy is not None and made.architecture is not None
    wanted = {
        "tp": 4, "sp": True, "pp": 2, "dp": 4, "micro_batch_size": 2, "global_batch_size": 64, "seq_length": 4096, "zero": 1, "clip_grad": 0.5,
        "precision": "bf16", "fp8": "delayed", "tp_comm_overlap": True, "overlap_grad_reduce": True, "recompute": "full",
        "recompute_method": "block", "recompute_num_layers": 3,
    }  # fmt: skip
    assert {name: made.strategy.get(name) for name in wanted} == wanted and "cpu_offloading_num_layers" not in made.strategy
    assert made.architecture.query_groups == 8 and made.architecture.vocab_size == 128512 and not made.architecture.tie_word_embeddings
    rows = {row.key: row for row in made.rows}
    assert rows["model.activation"].value == "fast-swiglu" and rows["model.optim.name"].value == "distributed_fused_adam"
    assert rows["exp_manager"].fate == rows["model.data.data_prefix"].fate == rows["model.megatron_amp_O2"].fate == "no_cost_effect"
    assert not [row for row in made.rows if row.fate == "refused"]


@pytest.mark.parametrize(
    ("tokenizer", "rows"),
    [
        # 50,257, 30,522 and 32,000 entries up to a multiple of 128 x 4
        ("library: megatron\n    type: GPT2BPETokenizer", 50688),
        ("library: megatron\n    type: BertWordPieceLowerCase", 30720),
        ("library: sentencepiece\n    model: ${data_dir}/llama/llama_tokenizer.model", 32256),
    ],
)
def test_the_library_of_a_tokenizer_says_what_names_it(tmp_path: Path, tokenizer: str, rows: int) -> None:
    made = job(tmp_path, NEMO.replace("library: huggingface\n    type: meta-llama/Meta-Llama-3-8B", tokenizer))
    assert made.architecture is not None and made.architecture.vocab_size == rows


def test_sections_of_models(tmp_path: Path) -> None:
    """Those of NeMo-Aligner are another workload beside the update, and others are no key that there is."""
    aligned = job(tmp_path, NEMO.replace("  optim:", "  dpo:\n    ref_policy_kl_penalty: 0.2\n  optim:"))
    assert {row.key: row.fate for row in aligned.rows}["model.dpo"] == "not_modelled"
    towers = NEMO.replace("  optim:", "  mm_cfg:\n    llm: {}\n  optim:")
    assert {row.key: row.fate for row in job(tmp_path, towers).rows}["model.mm_cfg"] == "not_modelled"
    for on in (True, False):
        held = job(tmp_path, towers.replace("llm: {}", f"llm: {{freeze: {str(on).lower()}}}")).strategy or {}
        assert held.get("trained_before", False) is on and ("freeze_parameters" in held) is on
    others = towers.replace("mm_cfg", "mm_cgf")
    with pytest.raises(InputError, match=r"train.yaml:\d+: Megatron-LM has no key 'mm_cgf': .*; --lenient goes on without it"):
        job(tmp_path, others)
    assert {row.key: row.fate for row in job(tmp_path, others, lenient=True).rows}["model.mm_cgf"] == "refused"


def test_rows_of_fine_tuning_are_as_long_as_its_data_says(tmp_path: Path) -> None:
    """encoder_seq_length is what the model was trained with."""
    tuned = NEMO.replace("  data:\n", "  data:\n    train_ds:\n      max_seq_length: 3072\n")
    made = job(tmp_path, tuned)
    assert made.placed().seq_length == 3072
    told = {row.key: row.fate for row in made.rows}
    assert (told["model.data.train_ds.max_seq_length"], told["model.encoder_seq_length"]) == ("mapped", "no_cost_effect")


def test_positions_in_either_case(tmp_path: Path) -> None:
    """The launcher's file of Baichuan 2 has ALiBi."""
    made = job(tmp_path, NEMO.replace("position_embedding_type: rope", "position_embedding_type: ALiBi"))
    assert made.architecture is not None and made.architecture.position_embedding == "alibi"


def test_an_interpolation_below_the_group_of_the_launcher(tmp_path: Path) -> None:
    made = job(
        tmp_path,
        NEMO.replace("${.encoder_seq_length}", "${training.model.encoder_seq_length}").replace(
            "num_layers: 32", "num_layers: ${training.model.hidden_size}"
        ),
    )
    assert made.architecture is not None and made.architecture.num_layers == 4096


@pytest.mark.parametrize(
    ("changed", "key", "fate"),
    [
        (("sync_batch_comm: false", "sync_batch_comm: true"), "model.sync_batch_comm", "not_modelled"),
        (("mcore_gpt: true", "headscale: true"), "model.headscale", "not_modelled"),
        (("  optim:", "  peft:\n    peft_scheme: ia3\n  optim:"), "model.peft.peft_scheme", "not_modelled"),
    ],
)
def test_what_nemo_does_besides(tmp_path: Path, changed: tuple[str, str], key: str, fate: str) -> None:
    assert {row.key: row.fate for row in job(tmp_path, NEMO.replace(*changed)).rows}[key] == fate


def test_numbers_that_nemos_launcher_counts(tmp_path: Path) -> None:
    counted = NEMO.replace("ffn_hidden_size: 14336", "ffn_hidden_size: ${multiply:4, ${.hidden_size}}")
    counted = counted.replace("num_nodes: 4", "num_nodes: ${divide_ceil:7,2}")
    made = job(tmp_path, counted.replace("ub_tp_comm_overlap: true", "ub_tp_comm_overlap: true\n  ub_tp_comm_overlap_cfg: {qkv_fprop: {num_sm: 4}}"))
    assert made.architecture is not None and made.architecture.mlp is not None and made.architecture.mlp.ffn_hidden_size == 16384
    assert made.strategy is not None and made.strategy["dp"] == 4
    with pytest.raises(InputError, match="is an expansion that is not followed here"):
        job(tmp_path, NEMO.replace("ffn_hidden_size: 14336", "ffn_hidden_size: ${multiply:4,${.none}}"))


def test_adapters_of_nemo_and_of_what_is_built_on_it(tmp_path: Path) -> None:
    tuning = "{target_modules: [attention, mlp_fc2], adapter_dim: 16, adapter_dropout: 0.0, column_init_method: xavier}"
    plain = NEMO.replace("  fp8: true\n", "") if "  fp8: true\n" in NEMO else NEMO
    made = job(tmp_path, plain.replace("  optim:", f"  peft:\n    peft_scheme: lora\n    lora_tuning: {tuning}\n  optim:"))
    found = made.strategy or {}
    assert (found["tuner_type"], found["lora_rank"], found["target_modules"]) == ("lora", 16, ["linear_qkv", "linear_proj", "linear_fc2"])
    rows = {row.key: row.fate for row in made.rows}
    assert rows["model.peft.lora_tuning.target_modules"] == rows["model.peft.lora_tuning.adapter_dim"] == "mapped"
    assert rows["model.peft.lora_tuning.column_init_method"] == "no_cost_effect"
    bridge = load_job(
        "megatron", "peft.dim=8", "peft.target_modules=[linear_qkv]", "peft.alpha=16", "model.tensor_model_parallel_size=2", model="llama3-8b"
    )
    assert bridge.placed().lora_rank == 8 and bridge.placed().target_modules == ("linear_qkv",)
    none = job(tmp_path, NEMO.replace("  optim:", "  peft:\n    peft_scheme: null\n  optim:"))
    assert "tuner_type" not in (none.strategy or {})


def test_keys_that_nemo_does_not_have_and_fsdp(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no key 'kv_chanels': did you mean 'kv_channels'"):
        job(tmp_path, NEMO.replace("  num_query_groups", "  kv_chanels: 3\n  num_query_groups"))
    text = NEMO.replace("mcore_gpt: true", "fsdp: true").replace("distributed_fused_adam", "fused_adam")
    assert (job(tmp_path, text.replace("pipeline_model_parallel_size: 2", "pipeline_model_parallel_size: 1")).strategy or {})["zero"] == 3


def test_lengths_of_fine_tuning(tmp_path: Path) -> None:
    text = NEMO.replace("  encoder_seq_length: 4096\n  max_position_embeddings: ${.encoder_seq_length}\n", "")
    text = text.replace("    seq_length: ${model.encoder_seq_length}\n", "    train_ds:\n      max_seq_length: 2048\n")
    assert (job(tmp_path, text).strategy or {})["seq_length"] == 2048


def test_a_module_of_primus(tmp_path: Path) -> None:
    made = job(tmp_path, PRIMUS, model="llama3-8b")
    wanted = {
        "tp": 2,
        "micro_batch_size": 2,
        "global_batch_size": 16,
        "seq_length": 8192,
        "precision": "bf16",
        "zero": 1,
        "overlap_grad_reduce": True,
    }
    assert {name: (made.strategy or {}).get(name) for name in wanted} == wanted
    rows = {row.key: row.fate for row in made.rows}
    assert rows["overrides.enable_primus_turbo"] == "no_cost_effect" and rows["overrides.use_turbo_attention"] == "no_cost_effect"
    assert rows["overrides.stderr_sink_level"] == rows["work_group"] == "no_cost_effect"
    assert (job(tmp_path, PRIMUS, model="llama3-8b", variables={"BATCH": "4"}).strategy or {})["micro_batch_size"] == 4


def test_newer_names_of_primus(tmp_path: Path) -> None:
    names = {"pp_warmup": "no_cost_effect", "use_fla_short_conv": "no_cost_effect", "attn_sink": "no_cost_effect", "odc_phase": "not_modelled"}
    more = "".join(f"      {name}: true\n" for name in names)
    found = job(tmp_path, PRIMUS.replace("      enable_primus_turbo: true\n", f"      enable_primus_turbo: true\n{more}"), model="llama3-8b")
    told = {row.key: row.fate for row in found.rows}
    assert {name: told[f"overrides.{name}"] for name in names} == names


def test_primus_turbos_exchange_is_deepeps(tmp_path: Path) -> None:
    """use_turbo_deepep, or a stage without synchronisation that has it, stands in for the dispatcher that is named."""
    said_too = ("sequence_parallel: true", "moe_token_dispatcher_type: alltoall", "expert_model_parallel_size: 4", "turbo_deepep_num_cu: 64")
    experts = "".join(f"      {one}\n" for one in said_too)
    for said in ("use_turbo_deepep: true", "turbo_sync_free_moe_stage: 2"):
        text = PRIMUS.replace("      enable_primus_turbo: true\n", f"      enable_primus_turbo: true\n{experts}      {said}\n")
        made = job(tmp_path, text, model="mixtral-8x7b")
        strategy = dict(made.strategy or {})
        assert (strategy["moe_token_dispatcher_type"], strategy["moe_flex_dispatcher_num_sms"]) == ("flex", 64)
        assert {row.fate for row in made.rows if "deepep" in row.key or "sync_free" in row.key} == {"mapped"}
    off = job(tmp_path, text.replace("enable_primus_turbo: true", "enable_primus_turbo: false"), model="mixtral-8x7b")
    assert dict(off.strategy or {})["moe_token_dispatcher_type"] == "alltoall"


def test_a_module_of_primus_for_another_framework_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("modules:\n  pre_trainer:\n    framework: torchtitan\n    config: a.yaml\n    overrides:\n      metrics: {log_freq: 1}\n")
    with pytest.raises(InputError, match=r"other.yaml:3: framework is torchtitan; 'symsim import torchtitan' reads it"):
        load_job("megatron", str(path))


@pytest.mark.parametrize("on", [True, False])
def test_adapters_in_a_section_of_primus(tmp_path: Path, on: bool) -> None:
    """LoRA's own section counts where it is enabled; numbers for true and false; whose kernels run changes no FLOPs."""
    file = tmp_path / "p.yaml"
    section = f"{{enabled: {str(on).lower()}, dim: 16, alpha: 32, target_modules: [linear_qkv, linear_proj]}}"
    more = "create_attention_mask_in_dataloader: 0, fused_padded_mla_attention: true"
    file.write_text(f"modules: {{pre_trainer: {{framework: megatron, overrides: {{seq_length: 512, {more}, lora: {section}}}}}}}\n")
    made = load_job("megatron", str(file), model="llama2-7b")
    told, found = {row.key: row.fate for row in made.rows}, dict(made.strategy or {})
    assert (found.get("tuner_type"), found.get("lora_rank")) == (("lora", 16) if on else (None, None))
    assert told["overrides.lora.dim"] == ("mapped" if on else "no_cost_effect")
    assert told["overrides.lora.alpha"] == told["overrides.fused_padded_mla_attention"] == "no_cost_effect"


def test_names_of_nemos_other_models(tmp_path: Path) -> None:
    more = "  override_vocab_size: 32000\n  precision: bf16\n  apply_embedding_scaling: true\n"
    file = tmp_path / "n.yaml"
    file.write_text(NEMO.rstrip("\n").replace("\nmodel:\n", f"\nmodel:\n{more}", 1) + "\n")
    made = load_job("megatron", str(file))
    told = {row.key: row.fate for row in made.rows}
    assert made.architecture is not None and made.architecture.vocab_size == 32000
    assert (told["model.override_vocab_size"], told["model.precision"], told["model.apply_embedding_scaling"]) == (
        *("mapped", "no_cost_effect", "not_modelled"),
    )
