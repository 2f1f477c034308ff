"""GPT-NeoX's files: the model, DeepSpeed's part, kernels by their switches, and a row for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "gpt-neox"
BASE: dict[str, Any] = {
    **dict(num_layers=10, hidden_size=256, num_attention_heads=8, seq_length=512, pos_emb="rotary", attention_config=[[["flash"], 10]]),
    **dict(train_micro_batch_size_per_gpu=2, precision="bfloat16"),
}
# of NeoXArgs* and DeepSpeed's at ea7aefd8, some of every class
NAMES = """pipe_partition_method world_size mlp_multiple_of expansion_factor sliding_window_width use_qk_layernorm rpe_num_buckets opt_pos_emb_offset
no_weight_tying sparsity_config num_unique_layers param_sharing_style use_flashattn_swiglu scaled_masked_softmax_fusion bias_dropout_fusion
fp16_lm_cross_entropy init_method_std attention_softmax_in_fp32 rotary_emb_base gmlp_attn_dim soft_prompt_tuning mamba_inner_func_fusion
serve_model_weights online_dataserver_ips te_columnparallel te_fp8_margin dim_att use_bnb_optimizer lr_decay_style warmup use_wandb use_comet
peak_theoretical_tflops log_grad_norm memory_profiling profile_step_start distributed_backend adlr_autoresume deepscale do_train train_data_paths
neg_test_label_data_paths weighted_sampler_alpha pack_impl dataset_impl train_impl dpo_beta z_loss kl_impl s3_path checkpoint_factor no_save_rng
eval_interval vocab_file num_workers exit_interval checkpoint_in_cpu synchronize_each_layer contiguous_checkpointing hysteresis use_mup
mup_width_scale
text_gen_type maximum_tokens eval_tasks moe_router_type moe_lbl_in_fp32 fp32_allreduce hostfile num_nodes launcher autotuning_run comment account
prescale_gradients curriculum_learning comms_logger steps_per_print""".split()


def job(tmp_path: Path, *more: str, **data: Any) -> Job:
    path = tmp_path / "model.yml"
    path.write_text(format_yaml({**BASE, **data}))
    return load_job("gpt-neox", str(path), *more)


def test_two_files_with_a_pipeline() -> None:
    made = load_job("gpt-neox", str(FILES / "dense" / "model.yml"), str(FILES / "dense" / "setup.yml"))
    model, found = made.architecture, dict(made.strategy or {})
    assert model is not None and (model.num_layers, model.parallel_block, model.attention.rotary_fraction) == (32, True, 0.25)
    assert model.vocab_size == 50432  # 50277 up to a multiple of 128 * 2
    assert (found["tp"], found["pp"], found["dp"], found["schedule"], found["zero"]) == (2, 2, 16, "ds_default", 1)
    assert not found["overlap_grad_reduce"] and found["distribute_saved_activations"] and found["masked_softmax_fusion"]
    assert found["ddp_bucket_size"] == 5 * 10**8 and found["precision"] == "fp16" and found["num_microbatches"] == 8
    told = {row.key: row for row in made.rows}
    assert told["zero_optimization.overlap_comm"].fate == "derived" and "attention_kernel" not in made.assumptions


def test_a_mixture_with_gated_networks() -> None:
    made = load_job("gpt-neox", str(FILES / "mixture" / "model.yml"))
    model = made.architecture
    assert model is not None and model.moe is not None and model.mlp is not None
    assert model.mlp.ffn_hidden_size == 1024 and model.mlp.gated  # 4 * 768, a third for each of gate and value
    assert [kind for segment in model.layers for kind in segment.kinds * segment.repeat][:3] == ["mixture", "dense", "mixture"]
    assert made.assumptions["apply_rope_fusion"] == "true" and dict(made.strategy or {})["norm_fusion"]


def test_keys_of_the_fork_that_trained_stablelm(tmp_path: Path) -> None:
    sizes = dict(hidden_size=5120, num_attention_heads=32, mlp_multiple_of=256, mlp_type="gated", activation="silu")
    norms = dict(qk_norm=True, use_bias_in_qk_norm=False, reset_attention_mask=True, gas=4)
    made = job(tmp_path, **sizes, **norms, attention_head_type="groupedquery", num_kv_heads=8, eval_batch_size=1)
    model, told = made.architecture, {row.key: row.fate for row in made.rows}
    assert model is not None and model.mlp is not None and (model.mlp.ffn_hidden_size, model.mlp.gated) == (13824, True)  # as stablelm-2-12b
    assert (model.query_groups, model.attention.qk_norm, model.qk_norm_bias) == (8, "per_head", False)
    assert (told["gas"], told["reset_attention_mask"], told["mlp_type"]) == ("no_cost_effect", "not_modelled", "mapped")
    many = job(tmp_path, num_kv_heads=8, attention_head_type="multiquery").architecture
    assert many is not None and many.query_groups == 1


def test_layers_that_do_not_divide_and_written_out_attention(tmp_path: Path) -> None:
    made = job(tmp_path, pipe_parallel_size=4, attention_config=[[["global"], "all"]], train_batch_size=16)
    found = dict(made.strategy or {})
    assert found["pipeline_model_parallel_layout"] == "Et*3|t*3|t*2|t*2L" and made.assumptions["attention_kernel"] == "math"
    assert found["dp"] == 8 and symsim.derive(made.architecture, found).strategy.pp == 4


def test_modules_of_transformer_engine(tmp_path: Path) -> None:
    made = job(tmp_path, attention_config=[[["global"], 10]], te_mha=True, te_layernorm_mlp=True)
    assert "attention_kernel" not in made.assumptions and made.assumptions["layernorm_linear_fusion"] == "fused"
    assert dict(made.strategy or {})["bias_activation_fusion"]


def test_weight_gradients_in_sixteen_bits(tmp_path: Path) -> None:
    (told,) = (row for row in job(tmp_path, te_fp8_wgrad=False).rows if row.key == "te_fp8_wgrad")
    assert told.fate == "no_cost_effect" and "since 2.0" in told.why


def test_layers_of_mamba_have_its_parameters(tmp_path: Path) -> None:
    """Sizes of configs/mamba/mamba-130M.yml at ea7aefd8: state-spaces/mamba-130m's 129,135,360 parameters, 24 rows of padding and positions."""
    sizes = {"hidden_size": 768, "num_layers": 24, "num_attention_heads": 12, "max_position_embeddings": 2048, "norm": "rmsnorm"}
    plain = {"pos_emb": "learned", "no_weight_tying": False, "gpt_j_residual": False, "intermediate_size": None, "vocab_file": "20B_tokenizer.json"}
    fused = {"mamba_selective_scan_fusion": True, "attention_config": [[["mamba"], 24]]}
    made = job(tmp_path, **sizes, **plain, **fused, tokenizer_type="HFTokenizer", model_parallel_size=1, make_vocab_size_divisible_by=128)
    assert made.architecture is not None
    total = symsim.derive(made.architecture, {}).to_json()["params"]["total"]
    assert total == 129_135_360 + 24 * 768 + 2048 * 768
    mixed = job(tmp_path, **sizes, **plain, attention_config=[[["mamba", "flash"], "all"]], tokenizer_type="HFTokenizer", model_parallel_size=1)
    assert mixed.architecture is not None and [s.kinds for s in mixed.architecture.layers] == [("mamba", "dense")]
    assert {row.key: row.fate for row in mixed.rows}["mamba_selective_scan_fusion"] == "not_modelled"


def test_every_name_has_a_row(tmp_path: Path) -> None:
    made = job(tmp_path, **dict.fromkeys(NAMES))
    assert set(NAMES) <= {row.key for row in made.rows}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"hidden_dropuot": 0}, "a GPT-NeoX file has no key 'hidden_dropuot': did you mean 'hidden_dropout'"),
        ({"attention_config": [[["rwkv"], 10]]}, "layers of this kind are not modelled; give global"),
        ({"attention_config": [[["mamba"], 3]]}, "a kind for each of the 10 layers, and there are 3"),
        ({"zero_optimization": {"stage": 3}, "pipe_parallel_size": 2}, "DeepSpeed's pipelines take stages 0 and 1"),
        ({"num_kv_heads": 3}, "a divisor of num_attention_heads=8"),
        ({"seq_length": None}, "seq_length is not given"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, **data)


def test_a_key_in_two_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "more.yml").write_text("seq-length: 1024\n")
    with pytest.raises(InputError, match=r"more.yml:1: 'seq-length' is given in .*model.yml too"):
        job(tmp_path, str(tmp_path / "more.yml"))


def test_a_host_that_waits_and_one_that_does_not(tmp_path: Path) -> None:
    found = job(tmp_path, checkpoint_activations=True, synchronize_each_layer=True, wall_clock_breakdown=True, pipe_parallel_size=1)
    told = {row.key: row.fate for row in found.rows}
    assert (found.strategy or {})["synchronize_checkpoint_boundary"] is True
    assert (told["synchronize_each_layer"], told["wall_clock_breakdown"]) == ("mapped", "no_cost_effect")
    alone = job(tmp_path, synchronize_each_layer=True, wall_clock_breakdown=True)
    assert {row.key: row.fate for row in alone.rows}["wall_clock_breakdown"] == "no_cost_effect"
    assert "synchronize_checkpoint_boundary" not in (alone.strategy or {})


def test_gates_in_a_kernel_of_flash_attention(tmp_path: Path) -> None:
    assert dict(job(tmp_path, use_flashattn_swiglu=True, activation="swiglu").strategy or {})["bias_activation_fusion"] is True
    plain = job(tmp_path, use_flashattn_swiglu=True)
    assert dict(plain.strategy or {})["bias_activation_fusion"] is False
    assert {row.key: row.fate for row in plain.rows}["use_flashattn_swiglu"] == "no_cost_effect"


def test_pairs_with_a_reference_unless_its_outputs_are_in_the_data(tmp_path: Path) -> None:
    alone = job(tmp_path).placed()
    pairs = job(tmp_path, train_impl="dpo").placed()
    assert pairs.reference_models == 1 and pairs.micro_batch_size == 2 * alone.micro_batch_size
    for told in ({"precompute_model_name": "ref"}, {"dpo_reference_free": True}):
        known = job(tmp_path, train_impl="dpo", **told)
        assert known.placed().reference_models == 0 and known.placed().micro_batch_size == pairs.micro_batch_size
        assert {row.key: row.fate for row in known.rows}["train_impl"] == "mapped"
    assert {row.key: row.fate for row in job(tmp_path, train_impl="reinforce").rows}["train_impl"] == "not_modelled"


def test_keys_of_forks(tmp_path: Path) -> None:
    made = job(tmp_path, use_flash_cross_entropy=True, warmup_iters=500, attention_type="groupedquery")
    told = {row.key: row.fate for row in made.rows}
    assert made.placed().cross_entropy_fusion == "te" and job(tmp_path, use_flash_cross_entropy=False).placed().cross_entropy_fusion == "unfused"
    assert told["use_flash_cross_entropy"] == "mapped" and told["warmup_iters"] == told["attention_type"] == "no_cost_effect"
