"""Megatron-LM's arguments: configurations of its own oracle as argument lists, scripts as users write them, and every name's fate."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import megatron_cases
import pytest
from shared import SHARED, needed
from shared import cases as oracle_cases

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.megatron.gaps import GAPS
from symsim.importers.megatron.silent import SILENT
from symsim.importers.reading import Options, load_job, read_job
from symsim.inputs.reading import format_yaml
from symsim.inputs.strategies import load_strategy

FILE = "megatron.json"
IMPORTED = Path(__file__).parent / "imported" / "megatron"
PARAMS, TRACE = (oracle_cases(FILE, "sections", s) for s in ("params", "trace"))
_SIZES = """
    num_layers hidden_size ffn_hidden_size num_attention_heads kv_channels q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim
    moe_ffn_hidden_size moe_router_topk moe_shared_expert_intermediate_size moe_router_num_groups moe_router_group_topk
    moe_router_score_function moe_latent_size mtp_num_layers normalization softmax_type vocab_size moe_router_dtype
    """.split()
_FLAGS = """
    add_qkv_bias attention_output_gate multi_latent_attention qk_layernorm mtp_use_repeated_layer moe_shared_expert_gate moe_router_pre_softmax
    moe_router_enable_expert_bias
    """.split()


def names(found: list) -> list[str]:
    return [c["name"] if c else "absent" for c in found]


def argument_list(case: dict[str, Any]) -> list[str]:
    """A case of the oracle as one would write it on Megatron-LM's command line."""
    m, given = case["config"]["model"], case["config"].get("strategy") or {}
    p, result = case["result"]["parallel"], case["result"]
    words = ["--bf16", "--use-distributed-optimizer", "--make-vocab-size-divisible-by", "1", "--transformer-impl", "local", "--no-rope-fusion"]
    words += ["--hidden-dropout", "0", "--attention-dropout", "0", "--moe-grouped-gemm", "--world-size", str(p["world"])]
    for name in _SIZES:
        if m.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(m[name])]
    words += [f"--{name.replace('_', '-')}" for name in _FLAGS if m.get(name)]
    if m.get("num_query_groups"):
        words += ["--group-query-attention", "--num-query-groups", str(m["num_query_groups"])]
    words += ["--swiglu"] if m["gated_linear_unit"] and m.get("act") is None else [] if m.get("act") == "gelu" else ["--squared-relu"]
    words += [] if m.get("add_bias_linear") else ["--disable-bias-linear"]
    words += [] if m.get("tied") else ["--untie-embeddings-and-output-weights"]
    words += ["--position-embedding-type", m.get("pos", "rope"), "--max-position-embeddings", str(m.get("max_seq", 4096))]
    if m.get("num_moe_experts"):
        freq = m.get("moe_layer_freq", 1)
        words += ["--num-experts", str(m["num_moe_experts"]), "--moe-layer-freq", str(freq)]
        words += ["--moe-token-dispatcher-type", given.get("moe_token_dispatcher_type", "alltoall")]
        if m.get("moe_aux_loss_coeff"):
            words += ["--moe-aux-loss-coeff", str(m["moe_aux_loss_coeff"])]
            words += ["--moe-router-load-balancing-type", m.get("moe_router_load_balancing_type", "aux_loss")]
    degrees = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep"}
    for name, key in degrees.items():
        words += [f"--{name}{'-model' * (key != 'cp')}-parallel-size", str(p[key])]
    words += ["--expert-tensor-parallel-size", str(p["etp"])]
    words += ["--sequence-parallel"] if p["sp"] else []
    if p["vpp"] and "pipeline_model_parallel_layout" not in given:
        words += ["--num-layers-per-virtual-pipeline-stage", str(m["num_layers"] // p["pp"] // p["vpp"])]
    words += ["--micro-batch-size", str(result.get("micro_batch_size", 1)), "--seq-length", str(result.get("seq_length", 4096))]
    # those called fused have another module in the place of the local attention
    words += ["--use-flash-attn"] if case["config"].get("fused") else ["--attention-backend", "unfused"]
    for name, value in given.items():
        if name in ("moe_token_dispatcher_type", "bias_activation_fusion"):
            continue
        words += [f"--{name.replace('_', '-')}"]
        words += [] if value is True else [str(one) for one in (value if isinstance(value, list) else [value])]
    return words


def imported(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Job:
    """The job of a case's argument list, put where the comparisons with the oracle look for a case's own."""
    job = read_job("megatron", argument_list(case))
    # the oracle's layers are of the local specification, where tables of the rotary embedding belong to a layer
    monkeypatch.setattr(megatron_cases, "architecture", lambda _: job.architecture)
    monkeypatch.setattr(megatron_cases, "strategy", lambda _: job.placed())
    monkeypatch.setattr(megatron_cases, "assumptions", lambda _: dict(job.assumptions))
    return job


def same(case: dict, exceptions: dict[str, str], comparison: tuple) -> None:
    expected, computed = comparison
    assert (computed == expected) == (case["name"] not in exceptions)


@pytest.mark.parametrize("case", PARAMS, ids=names(PARAMS))
def test_the_oracles_parameters_from_argument_lists(case: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    needed(case, FILE)
    imported(case, monkeypatch)
    same(case, megatron_cases.PARAMETER_EXCEPTIONS, megatron_cases.parameters(case))


@pytest.mark.parametrize("case", TRACE, ids=names(TRACE))
def test_the_oracles_traces_from_argument_lists(case: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    needed(case, FILE)
    imported(case, monkeypatch)
    same(case, megatron_cases.MESSAGE_EXCEPTIONS, megatron_cases.collectives(case))
    same(case, {}, megatron_cases.flops(case))
    if case["config"].get("fused"):
        same(case, {}, megatron_cases.saved(case))


SCRIPT = IMPORTED / "script" / "train_moe.sh"
DENSE = (
    "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --vocab-size 1000 --micro-batch-size 1 --seq-length 128 --bf16 "
    "--position-embedding-type rope --world-size 8"
).split()


def job(*words: str, lenient: bool = False, variables: dict[str, str] | None = None, model: str | None = None) -> Job:
    return read_job("megatron", words, Options(lenient, variables=variables or {}, model=model))


def row(found: Job, key: str) -> tuple[str, str, str]:
    (one,) = [r for r in found.rows if r.key == key]
    return one.fate, one.to, one.why


def test_a_launch_script_is_a_job() -> None:
    found = job(str(SCRIPT))
    placed = found.placed()
    assert (placed.tp, placed.pp, placed.ep, placed.etp, placed.dp, placed.sp, placed.zero) == (2, 2, 8, 1, 8, True, 1)
    assert (placed.global_batch_size, placed.microbatches, placed.cross_entropy_fusion) == (128, 16, "te")
    assert (placed.moe_token_dispatcher_type, placed.moe_flex_dispatcher_backend) == ("flex", "deepep")
    model = found.architecture
    assert model is not None and (model.num_layers, model.vocab_size, model.kind_names()) == (24, 100096, ["dense", "moe"])
    assert found.assumptions == {
        "layernorm_linear_fusion": "fused",
        "apply_rope_fusion": "true",
        "moe_permute_fusion": "true",
    }
    assert [r.key for r in found.rows if r.key.startswith("--wandb") or r.key.startswith("--fp8")] == []
    assert row(found, "--data-path")[0] == "no_cost_effect"


def test_variables_change_what_a_script_asks_for() -> None:
    found = job(str(SCRIPT), variables={"TP": "1", "SLURM_NNODES": "8", "RUN_NAME": "fp8-try", "WANDB_API_KEY": "x"})
    placed = found.placed()
    assert (placed.tp, placed.sp, placed.dp, placed.fp8, placed.global_batch_size) == (1, False, 32, "blockwise", 512)
    assert row(found, "--wandb-exp-name")[0] == "no_cost_effect"


def test_arguments_behind_a_file_hold() -> None:
    found = job(str(SCRIPT), "--micro-batch-size", "2", "--world-size", "64")
    assert found.placed().micro_batch_size == 2 and found.placed().dp == 16
    assert any("--micro-batch-size is given again" in note for note in found.notes)


def test_defaults_are_those_of_its_command_line() -> None:
    found = job(*DENSE)
    model = found.architecture
    assert model is not None and (model.hidden_dropout, model.attention_dropout, model.vocab_size) == (0.1, 0.1, 1024)
    assert model.mlp is not None and (model.mlp.ffn_hidden_size, model.mlp.gated, model.mlp.bias) == (1024, False, True)
    assert (model.normalization, model.norm_bias, model.tie_word_embeddings, model.attention.qkv_bias) == ("LayerNorm", True, True, True)
    assert found.placed().zero == 0 and found.placed().dp == 8
    for key in ("hidden_dropout", "use_distributed_optimizer", "make_vocab_size_divisible_by", "ffn_hidden_size"):
        assert row(found, key)[0] == "derived"
    gated = job(*DENSE, "--swiglu").architecture
    assert gated is not None and gated.mlp is not None and gated.mlp.ffn_hidden_size == 640


EXPERTS = "--num-experts 4 --expert-model-parallel-size 4 --moe-ffn-hidden-size 32"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--moe-token-dispatcher-type flex", {"moe_token_dispatcher_type": "flex"}),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-hybridep-num-sms 16", {"moe_flex_dispatcher_num_sms": 16}),
        ("--moe-token-dispatcher-type flex --moe-deepep-num-sms 24", {"moe_flex_dispatcher_num_sms": 24}),
        ("--moe-token-dispatcher-type flex --moe-hybridep-num-sms 24", {"moe_flex_dispatcher_num_sms": None}),
        ("--moe-token-dispatcher-type alltoall --moe-deepep-num-sms 24", {"moe_flex_dispatcher_num_sms": None}),
        (
            "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-permute-fusion-into-hybridep",
            {"moe_permute_fusion_into_hybridep": True},
        ),
        ("--fp8-format hybrid --moe-router-padding-for-fp8", {"moe_router_padding_for_quantization": True}),
        ("--use-transformer-engine-op-fuser", {"use_transformer_engine_op_fuser": True}),
        ("--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-output-proj --untie-embeddings-and-output-weights", {"fp8_output_proj": True}),
        ("--fp8-format hybrid --fp8-recipe tensorwise --fp8-output-proj", {"fp8_output_proj": None}),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router", {"cuda_graph_scope": ["attn", "moe_router"]}),
        ("--enable-cuda-graph --cuda-graph-modules moe", {"cuda_graph_impl": "local", "cuda_graph_scope": ["moe_router"]}),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", {"cuda_graph_impl": "full_iteration", "cuda_graph_scope": None}),
        ("--cuda-graph-scope attn", {"cuda_graph_impl": None, "cuda_graph_scope": None}),
    ],
)
def test_dispatchers_and_graphs(words: str, expected: dict[str, object]) -> None:
    found = job(*DENSE, *EXPERTS.split(), *words.split())
    assert found.strategy is not None
    assert {name: found.strategy.get(name) for name in expected} == expected
    assert found.placed().ep == 4


GATHERED_IN_STEP = "overlap_param_gather_with_optimizer_step"
AWARE = "--use-distributed-optimizer --use-precision-aware-optimizer"
GATHERED = f"--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --{GATHERED_IN_STEP.replace('_', '-')}"


def test_forced_balance_is_random_routing() -> None:
    assert job(*DENSE, *EXPERTS.split(), "--moe-router-force-load-balancing").assumptions["expert_load"] == "random"


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        ("--sequence-parallel", "sp", None),
        ("--overlap-param-gather --use-distributed-optimizer", "overlap_param_gather", None),
        ("--moe-shared-expert-overlap", "moe_shared_expert_overlap", None),
        ("--fp16", None, None),
        ("--timing-log-level 2", "host_waits", 2),
        ("--timing-log-level 2 --pipeline-model-parallel-size 2", "host_waits", 4),
        ("--timing-log-level 1", "host_waits", None),
        (f"{GATHERED} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", GATHERED_IN_STEP, True),
        (f"{GATHERED} --pipeline-model-parallel-size 2", GATHERED_IN_STEP, None),
        ("--tensor-model-parallel-size 2 --tp-comm-overlap", "tp_comm_overlap", None),
        ("--tensor-model-parallel-size 2 --tp-comm-overlap --sequence-parallel", "tp_comm_overlap", True),
        ("--expert-model-parallel-size 2", "ep", None),
        ("--recompute-granularity selective --recompute-modules core_attn mla_up_proj moe", "recompute_modules", ["core_attn"]),
        ("--recompute-granularity full --recompute-method uniform --recompute-modules core_attn", "recompute_modules", None),
        ("--moe-pad-expert-input-to-capacity", "moe_pad_expert_input_to_capacity", None),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", "recompute", None),
        ("--use-megatron-fsdp", "zero", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "zero", 2),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", "reshard_after_forward", False),
        ("--grad-reduce-in-bf16", "grad_reduce_in_fp32", False),
        (f"{AWARE} --main-grads-dtype bf16", "grad_reduce_in_fp32", False),
        (f"{AWARE} --main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32", "grad_reduce_in_fp32", None),
        (f"{AWARE} --main-grads-dtype fp32", "grad_reduce_in_fp32", None),
        ("--fp8-format hybrid", "fp8", "delayed"),
        ("--fp4-format e2m1", "fp8", "nvfp4"),
        ("--fp8-format hybrid --fp8-dot-product-attention", "fp8_dot_product_attention", True),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "fp8", "mxfp8"),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", "vpp", 2),
        ("--pipeline-model-parallel-size 2", "p2p_comm", "batched"),
        ("--pipeline-model-parallel-size 2", "batch_p2p_sync", True),
        ("--pipeline-model-parallel-size 1", "p2p_comm", None),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", "p2p_comm", None),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", "overlap_p2p_comm", True),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication", "overlap_p2p_comm", None),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|t|t|tL", "vpp", 2),
        ("--recompute-activations", "recompute", "selective"),
        ("--optimizer sgd", "optimizer", "sgd_momentum"),
        ("--optimizer muon", "optimizer", "muon"),
        (
            "--use-precision-aware-optimizer --use-distributed-optimizer --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d",
            "overlap_cpu_optimizer_d2h_h2d",
            True,
        ),
        ("--optimizer dist_muon", "zero", 1),
        ("--optimizer muon --muon-tp-mode distributed", "muon_tp_mode", "distributed"),
        ("--optimizer muon --muon-num-ns-steps 6", "muon_num_ns_steps", 6),
        ("--optimizer sgd --sgd-momentum 0", "optimizer", "sgd"),
        ("--context-parallel-size 2 --cp-comm-type a2a", "cp_comm_type", "a2a"),
        ("--use-tp-pp-dp-mapping", "rank_order", "tp-cp-ep-pp-dp"),
        ("--use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16", "exp_avg_dtype", "bf16"),
    ],
)
def test_what_an_argument_becomes(words: str, option: str | None, value: object) -> None:
    plain = [word for word in DENSE if word != "--bf16" or "--fp16" not in words]
    found = job(*plain, *words.split())
    assert found.strategy is not None
    if option is None:
        assert (found.strategy["precision"], found.strategy["grad_reduce_in_fp32"]) == ("fp16", False)
    else:
        assert found.strategy.get(option) == value


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ("--transformer-impl local", "math"),
        ("--transformer-impl local --attention-backend flash", "math"),
        ("--transformer-impl local --use-flash-attn", None),
        ("--transformer-impl transformer_engine", None),
        ("--attention-backend unfused --use-flash-attn", "math"),
    ],
)
def test_the_local_modules_have_an_attention_of_their_own(words: str, kernel: str | None) -> None:
    assert job(*DENSE, *words.split()).assumptions.get("attention_kernel") == kernel


def test_layers_of_several_kinds() -> None:
    words = "--num-experts 8 --moe-layer-freq ([0]+[1]*3) --window-size 127,0 --window-attn-skip-freq 2 --no-rope-freq 4 --quick-geglu"
    model = job(*DENSE, *words.split()).architecture
    assert model is not None
    kinds = [model.layer_kinds[kind] for segment in model.layers for kind in segment.kinds * segment.repeat]
    assert [(k.ffn, k.window, k.rope) for k in kinds] == [("mlp", 128, True), ("moe", None, True), ("moe", 128, True), ("moe", None, False)]
    linear = job(*DENSE, "--experimental-attention-variant", "gated_delta_net", "--linear-attention-freq", "4").architecture
    assert linear is not None and [k for s in linear.layers for k in s.kinds * s.repeat] == ["dense_linear"] * 3 + ["dense"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--tensor-model-paralel-size 2",
            "the command line: Megatron-LM has no key 'tensor_model_paralel_size': did you mean 'tensor_model_parallel_size'?",
        ),
        ("--hierarchical-context-parallel-sizes ² 2", "it should be degrees"),
        ("--hierarchical-context-parallel-sizes " + "9" * 5000, "it should be degrees"),
        (f"--window-size {'9' * 400},0", "a window of a decoder"),
        ("--swiglu true", "the command line: --swiglu takes no value, and 'true' is the value of no argument"),
        ("--seq-length", "the command line: --seq-length has no value"),
        ("--seq-length 12 13", "the command line: --seq-length takes one value, and '13' is the value of no argument"),
        ("--tensor-model-parallel-size 3", "8 ranks (world_size 8) are not a multiple of tensor 3 x context 1 x pipeline 1"),
        ("--optimizer soap", "give adam, sgd, lion, muon, dist_muon"),
        ("--moe-layer-freq [0,1]+x --num-experts 8", "moe_layer_freq is [0,1]+x; it should be a number, or a list such as ([0]*3+[1]*1)*6"),
        ("--moe-layer-freq [0,1] --num-experts 8", "it should be a list of 4 numbers, one a layer (it has 2)"),
        ("--position-embedding-type relative", "relative positions are not modelled"),
        ("--num-query-groups 3 --group-query-attention", "num_query_groups is 3; it should be a divisor of num_attention_heads=8"),
        ("--recompute-granularity selective --recompute-modules atn", "'atn' is none of its modules; give some of core_attn, mlp, moe"),
        ("--hidden-dropout 1.5", "hidden_dropout is 1.5; it should be a share from 0 to below 1"),
        ("--experimental-attention-variant gdn2", "of these variants gated_delta_net and dsa are modelled; give one of them"),
        ("--num-layers 10000000000", "num_layers is 10000000000; it should be at most"),
    ],
)
def test_what_cannot_be_is_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        job(*DENSE, *words.split())
    assert sentence in str(error.value)


def test_paths_that_a_published_script_leaves_open(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    begun = "TK=''\nDATA=\ntorchrun pretrain_gpt.py --num_layers 2 --hidden_size 64 --num_attention_heads 4 --seq_length 64 --micro_batch_size 1"
    script.write_text(f"{begun} --vocab_size 64 --tokenizer-model $TK --data-path ${{DATA}} --log-throughput-to-tensorboard --rank 0 --bf16\n")
    told = {row.key: row for row in job(str(script)).rows}
    assert (told["--tokenizer-model"].value, told["--data-path"].fate) == ("", "no_cost_effect")
    script.write_text(f"{begun} --global-batch-size $TK --vocab_size 64\n")
    with pytest.raises(InputError, match=r"train.sh:3: --global-batch-size has no value"):
        job(str(script))


def test_a_command_that_hangs_on_a_variable_asks_for_it(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    lists = "RUN=(\n--nnodes 2\n--nproc_per_node 8\n)\nMODEL=(\n" + " ".join(DENSE[:-2]) + "\n)\n"
    script.write_text(lists + 'APP="torchrun ${RUN[@]} pretrain_gpt.py ${MODEL[@]}"\nif [[ $PROFILE == a ]]; then APP+=" --profile"; fi\n${APP}\n')
    with pytest.raises(InputError, match=r"\$PROFILE has no value; --var PROFILE=VALUE gives it; --var PROFILE= leaves it empty"):
        job(str(script))
    assert job(str(script), variables={"PROFILE": ""}).placed().dp == 16
    script.write_text(lists)
    found = job(str(script))
    assert found.placed().dp == 16 and found.notes == ("no command starts a training; its arguments are taken from $MODEL",)


def test_older_and_other_names() -> None:
    found = job(*DENSE, "--activations-checkpoint-method", "block", "--activations-checkpoint-num-layers", "1", "--attention-head-type", "multiquery")
    placed = found.placed()
    assert (placed.recompute, placed.recompute_method, placed.recompute_num_layers) == ("full", "block", 1)
    assert found.architecture is not None and found.architecture.query_groups == 1


def test_the_line_of_a_script_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "TP=$1\nARGS=(\n  --num-layers 2\n  --tensor-model-parallel-size $TP\n  --swigloo\n  --bf16\n)\ntorchrun pretrain_gpt.py ${ARGS[@]} $MORE\n"
    )
    with pytest.raises(InputError) as error:
        job(str(script))
    asked = "$1 (TP) has no value; --var 1=VALUE gives it, or the script's arguments behind it: TP (for tensor_model_parallel_size)"
    assert str(error.value) == f"{script}:1: {asked}"
    with pytest.raises(InputError, match=r"train.sh:5: Megatron-LM has no key 'swigloo': did you mean 'swiglu'\?"):
        job(str(script), variables={"MORE": "--hidden-size 64 --num-attention-heads 8 --vocab-size 64", "1": "1"})


ASKING = """TP=${2:-1}
SIZE=$1
if [ $# -lt 1 ]; then echo "usage: SIZE [TP ..]"; exit 1; fi
[ $SIZE = 7B ] && LAYERS=32
shift 2
while [ $# -gt 0 ]; do
    case $1 in
        --pp) PP=$2; shift 2;;
        *) MORE="$MORE $1"; shift;;
    esac
done
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $LAYERS --hidden-size 64 --num-attention-heads 8 --vocab-size 64 --bf16 \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP:-1} --seq-length 8 --micro-batch-size 1 --global-batch-size 8 $EXTRA
"""


def test_a_script_takes_its_arguments_from_behind_it(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(ASKING)
    for inputs in ([str(script), "7B", "2"], ["bash", str(script), "7B", "2", "--pp", "2"], [str(script), "7B", "2", "--seq-length", "16"]):
        made = job(*inputs)
        assert made.architecture is not None and made.architecture.num_layers == 32
        assert made.strategy is not None and (made.strategy["tp"], made.strategy.get("pp", 1)) == (2, 2 if "--pp" in inputs else 1)
        assert made.strategy["seq_length"] == (16 if "--seq-length" in inputs else 8)
        assert f"{script}:13: nothing that is read sets $EXTRA: it is taken as empty" in made.notes
    with pytest.raises(InputError, match=r"train.sh:12: \$LAYERS has no value"):
        job(str(script), "8B", "2")
    other = tmp_path / "two.sh"
    other.write_text(ASKING.replace("-lt 1", "-lt 2"))
    with pytest.raises(InputError, match=r"two.sh:3: the script ends here, given 1 argument$"):
        job(str(other), "7B")


def test_a_file_that_only_sets_variables(tmp_path: Path) -> None:
    file = tmp_path / "model.sh"
    file.write_text(f"WIDTH=256\nMODEL_ARGS=(\n  {' '.join(DENSE).replace('--hidden-size 256', '--hidden-size $WIDTH')}\n)\n")
    found = job(str(file))
    assert found.strategy == job(*DENSE).strategy and found.architecture is not None and found.architecture.hidden_size == 256
    assert found.notes == ("no command starts a training; its arguments are taken from $MODEL_ARGS",)


def test_ranks_of_a_jobs_header(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    plain = " ".join(DENSE[:-2])
    for header, started, ranks in (
        ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n", "srun python", 32),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n", "srun python -u", 8),
        ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:h100:8\n", "torchrun --nnodes $SLURM_NNODES --nproc_per_node 4", 8),
        ("", "torchrun --nnodes=3 --nproc-per-node=2", 6),
        ("", "python", None),
    ):
        script.write_text(f"#!/bin/bash\n{header}{started} pretrain_gpt.py {plain}\n")
        found = job(str(script))
        assert found.placed().dp == (ranks or 1), started
        assert bool(found.notes) == (ranks is None), started


def test_latent_attention_and_its_norms() -> None:
    words = "--multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32".split()
    plain, normed = (job(*DENSE, *words, *more).architecture for more in ((), ("--qk-layernorm",)))
    assert plain is not None and normed is not None
    assert (plain.attention.kind, plain.attention.kv_lora_rank, plain.attention.q_lora_rank) == ("mla", 64, None)
    assert (plain.attention.latent_norm, plain.attention.q_input_norm) == (False, False)
    assert (normed.attention.latent_norm, normed.attention.q_input_norm) == (True, True)


def test_programs_that_train_no_decoder_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_t5.py {' '.join(DENSE[:-2])}\n")
    with pytest.raises(InputError, match="pretrain_t5.py trains an encoder and a decoder"):
        job(str(script))
    assert row(job(str(script), lenient=True), "pretrain_t5.py")[0] == "refused"


def test_two_trainings_in_a_script_are_no_job(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("for TP in 1 2; do torchrun pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size $TP; done\n")
    with pytest.raises(InputError, match="2 commands here start a training"):
        job(str(script))


def test_a_list_of_arguments_in_a_file(tmp_path: Path) -> None:
    listed = tmp_path / "args.txt"
    listed.write_text("# a comment\n" + "\n".join(" ".join(pair) for pair in (DENSE[:2], DENSE[2:])) + "\n")
    assert job(str(listed)).to_json()["strategy"] == job(*DENSE).to_json()["strategy"]


def test_overrides_of_a_recipe(tmp_path: Path) -> None:
    text = "model.tensor_model_parallel_size=2 model.sequence_parallel=true train.global_batch_size=64 train.micro_batch_size=1 logger.log_interval=1"
    found = job(*text.split(), "--world-size", "16", model="llama3-8b")
    placed = found.placed()
    assert (placed.tp, placed.sp, placed.dp, placed.zero, placed.precision, placed.global_batch_size) == (2, True, 8, 1, "bf16", 64)
    assert found.architecture is not None and found.architecture.name == "llama3-8b"
    assert row(found, "logger.log_interval")[0] == "no_cost_effect"
    file = tmp_path / "overrides.txt"
    file.write_text(text.replace(" ", " \\\n  ") + "\n")
    assert job(str(file), "--world-size", "16", model="llama3-8b").strategy == found.strategy
    nested = tmp_path / "overrides.yaml"
    nested.write_text(
        "model:\n  tensor_model_parallel_size: ${TP}\n  sequence_parallel: true\ntrain:\n  global_batch_size: 64\n  micro_batch_size: 1\n"
    )
    assert job(str(nested), "--world-size", "16", model="llama3-8b", variables={"TP": "2"}).strategy == found.strategy
    with pytest.raises(InputError, match=r"overrides.yaml:2: \$\{TP\} has no value; --var TP=VALUE gives it|\$TP has no value"):
        job(str(nested), model="llama3-8b")


def test_what_starts_a_recipe_is_told_besides(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    told = "--recipe llama3_8b_sft --mode finetune --peft_scheme lora --seq_length 4096 --packed_sequence"
    script.write_text(f"torchrun --nproc_per_node 8 run_recipe.py {told} model.tensor_model_parallel_size=2 train.global_batch_size=64\n")
    found = job(str(script), model="llama3-8b")
    assert (found.placed().tuner_type, found.placed().seq_length, found.placed().dp) == ("lora", 4096, 4)
    assert [row(found, f"--{key}")[0] for key in ("recipe", "mode", "packed_sequence")] == ["not_modelled", "no_cost_effect", "derived"]
    script.write_text(f"{script.read_text().strip()} model.seq_length=8192\n")
    overridden = job(str(script), model="llama3-8b")
    assert overridden.placed().seq_length == 8192 and row(overridden, "--seq_length")[0] == "no_cost_effect"


def test_rows_that_a_recipe_packs(tmp_path: Path) -> None:
    """A section inside a section says so; what no file tells is how long samples are."""
    file = tmp_path / "sft.yaml"
    packing = "packed_sequence_specs: {packed_sequence_size: 8192, pad_seq_to_mult: 16}"
    file.write_text(f"model: {{seq_length: 8192}}\ndataset:\n  dataset_name: a/b\n  {packing}\n  dataset_kwargs: {{chat: true}}\n")
    found = job(str(file), model="llama3-8b")
    key = "dataset.packed_sequence_specs.packed_sequence_size"
    assert row(found, key)[:2] == ("derived", "seq_length") and row(found, "dataset.dataset_kwargs.chat")[0] == "no_cost_effect"
    told = job(str(file), model="llama3-8b", variables={"packed_document_length": "512"})
    assert row(told, key)[0] == "mapped" and told.placed().packed_document_length == 512
    text = "dataset.packed_sequence_specs.packed_sequence_size=8192 model.seq_length=8192 dataset.dataset_name=a/b dataset.dataset_kwargs.chat=true"
    assert job(*text.split(), model="llama3-8b").strategy == found.strategy
    with pytest.raises(InputError, match=r"llama3.py: Python is not run; of a recipe, its overrides are read, from YAML"):
        job("llama3.py")


def test_lists_as_yaml_has_them(tmp_path: Path) -> None:
    file = tmp_path / "args.yaml"
    for modules, rate in (("[moe_act, layernorm]", "1e-2"), ('"[moe_act layernorm]"', "[0.01]"), ("moe_act layernorm", "0.01")):
        text = f"recompute-granularity: selective\nrecompute-modules: {modules}\nmoe-aux-loss-coeff: {rate}\nnum-experts: 4\nswiglu: true\n"
        file.write_text(text)
        placed = job(str(file), *DENSE).placed()
        assert (placed.recompute_modules, placed.moe_router_load_balancing_type) == (("moe_act", "layernorm"), "aux_loss")
    file.write_text('fine-grained-activation-offloading: true\noffload-modules: "[core_attn attn_proj]"\nswiglu: true\n')
    assert job(str(file), *DENSE).placed().offload_operations == ("attention.core", "attention.o_proj")


def test_yaml_in_groups(tmp_path: Path) -> None:
    file = tmp_path / "gpt.yaml"
    model = "language_model:\n  num_layers: 4\n  hidden_size: 256\n  num_attention_heads: 8\n  activation_func: swiglu\n  add_bias_linear: false\n"
    file.write_text(f"{model}model_parallel:\n  tensor_model_parallel_size: 2\n  bf16: true\nvocab_size: 1000\nmicro_batch_size: 2\n")
    found = job(str(file), "--world-size", "4")
    assert found.architecture is not None and found.architecture.mlp is not None
    assert (found.architecture.mlp.gated, found.architecture.mlp.bias, found.architecture.vocab_size) == (True, False, 1024)
    assert (found.placed().tp, found.placed().dp, found.placed().precision, found.placed().micro_batch_size) == (2, 2, "bf16", 2)


def test_yaml_of_arguments_in_either_spelling(tmp_path: Path) -> None:
    for dash in "-_":
        file = tmp_path / "args.yaml"
        pairs = dict(zip(("num-layers", "hidden-size", "num-attention-heads", "vocab-size"), (4, 256, 8, 1000), strict=True))
        told = [f"{key.replace('-', dash)}: {value}" for key, value in pairs.items()]
        file.write_text("\n".join([*told, "swiglu: true", f"disable{dash}bias{dash}linear: true", "bf16: true", "optimizer: sgd"]) + "\n")
        model = job(str(file)).architecture
        assert job(str(file)).strategy["optimizer"] == "sgd_momentum"
        assert model is not None and model.mlp is not None and (model.mlp.gated, model.mlp.bias, model.hidden_dropout) == (True, False, 0.1)


# ModelParallelConfig as its documentation had it, and the fields added since (core/model_parallel_config.py at d98e8a64)
SEED = """
    tensor_model_parallel_size pipeline_model_parallel_comm_backend pipeline_model_parallel_size virtual_pipeline_model_parallel_size
    sequence_parallel context_parallel_size hierarchical_context_parallel_sizes expert_model_parallel_size expert_tensor_parallel_size
    moe_extended_tp perform_initialization use_cpu_initialization fp16 bf16 params_dtype timers finalize_model_grads_func grad_scale_func
    no_sync_func grad_sync_func param_sync_func deterministic_mode enable_autocast autocast_dtype
    num_microbatches_with_partial_activation_checkpoints gradient_accumulation_fusion async_tensor_model_parallel_allreduce use_te_rng_tracker
    tp_comm_overlap tp_comm_bulk_wgrad tp_comm_bulk_dgrad tp_comm_overlap_ag tp_comm_overlap_rs tp_comm_overlap_rs_dgrad tp_comm_split_ag
    tp_comm_atomic_ag tp_comm_split_rs tp_comm_atomic_rs cross_entropy_loss_fusion cross_entropy_fusion_impl tp_comm_overlap_disable_qkv
    tp_comm_overlap_disable_fc1 tp_comm_bootstrap_backend overlap_moe_expert_parallel_comm delay_wgrad_compute pipeline_dtype
    variable_seq_lengths overlap_p2p_comm batch_p2p_comm batch_p2p_sync use_ring_exchange_p2p deallocate_pipeline_outputs
    defer_embedding_wgrad_compute wgrad_deferral_limit overlap_p2p_comm_warmup_flush microbatch_group_size_per_vp_stage cpu_offloading
    cpu_offloading_num_layers _cpu_offloading_context cpu_offloading_activations cpu_offloading_weights cpu_offloading_double_buffering
    barrier_with_L1_time
    """.split()
ADDED = """
    tensor_parallel_num_weight_shards gtp_weight_remat_size max_seqlen_per_dp_cp_rank hybrid_context_parallel
    expert_tensor_parallel_num_weight_shards expert_gtp_weight_remat_size moe_grad_scale_func mtp_grad_scale_func
    overlap_dispatch_backward_with_experts_wgrad ep_overlap_early_attn_memory_release mtp_standalone cpu_offloading_retain_pinned_cpu_buffers
    """.split()
# what a value of a field is, where it is not true
VALUES: dict[str, Any] = {
    **dict.fromkeys(("tensor_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size"), 1),
    **{"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2, "microbatch_group_size_per_vp_stage": 2},
    **{"hierarchical_context_parallel_sizes": None, "fp16": False, "cross_entropy_fusion_impl": "te", "cpu_offloading_num_layers": 0},
    **{"params_dtype": "torch.bfloat16", "pipeline_dtype": "torch.bfloat16", "autocast_dtype": "torch.bfloat16"},
    **{"num_microbatches_with_partial_activation_checkpoints": 2, "max_seqlen_per_dp_cp_rank": 1024},
    **{"tp_comm_bootstrap_backend": "nccl", "sequence_parallel": False},
    **{"pipeline_model_parallel_comm_backend": "nccl", "tp_comm_overlap": False, "overlap_moe_expert_parallel_comm": False},
    **{"delay_wgrad_compute": False, "wgrad_deferral_limit": 0, "num_microbatches_with_partial_activation_checkpoints": 1},
    **{"max_seqlen_per_dp_cp_rank": 4096, "tensor_parallel_num_weight_shards": 2, "gtp_weight_remat_size": 2},
    **{"expert_tensor_parallel_num_weight_shards": 1, "expert_gtp_weight_remat_size": 1},
}


CONFIGURED = """\
language_model:
  num_layers: 8
  hidden_size: 1024
  num_attention_heads: 16
  ffn_hidden_size: null
  add_bias_linear: false
  gated_linear_unit: false
  bias_swiglu_fusion: false
  bias_activation_fusion: true
  activation_func: swiglu
  num_moe_experts: null
model_parallel:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 2
  sequence_parallel: true
  bf16: true
  fp16: false
  deallocate_pipeline_outputs: false
  overlap_p2p_comm: false
num_layers_per_virtual_pipeline_stage: null
micro_batch_size: 2
global_batch_size: 16
seq_length: 512
max_position_embeddings: 512
vocab_size: 1000
swiglu: false
optimizer: adam
accumulate_allreduce_grads_in_fp32: false
align_param_gather: false
scatter_gather_tensors_in_pipeline: true
retriever_seq_length: 256
untie_embeddings_and_output_weights: true
position_embedding_type: rope
"""


def test_a_file_that_stands_instead_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "gpt.yaml").write_text(CONFIGURED)
    (tmp_path / "train.sh").write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --yaml-cfg conf/gpt.yaml --seq-length 4096 --split 1,0,0")
    both = job(str(tmp_path / "train.sh"), str(tmp_path / "gpt.yaml"))
    assert both.architecture is not None and both.architecture.mlp.gated and both.architecture.mlp.ffn_hidden_size == 2688
    assert (both.strategy["tp"], both.strategy["pp"], both.strategy["dp"], both.strategy["seq_length"]) == (2, 2, 2, 512)
    # yaml_arguments.py sets these whatever the file says
    assert not {"vpp", "deallocate_pipeline_outputs", "grad_reduce_in_fp32"} & both.strategy.keys()
    assert both.strategy["bias_activation_fusion"] is False
    fates = {row.key: row.fate for row in both.rows}
    assert fates["swiglu"] == fates["--seq-length"] == fates["accumulate_allreduce_grads_in_fp32"] == "no_cost_effect"
    alone = job(str(tmp_path / "gpt.yaml"), "--world-size", "8")
    assert (alone.strategy, alone.architecture.mlp) == (both.strategy, both.architecture.mlp)
    with pytest.raises(InputError, match="yaml_cfg=conf/gpt.yaml: a file of arguments; give it as an input"):
        job(str(tmp_path / "train.sh"), "--vocab-size", "1000")


def test_arguments_of_older_versions_and_of_retrieval() -> None:
    words = "--align-param-gather --no-scatter-gather-tensors-in-pipeline --renormalize-blend-weights --s3-cache-path d --retriever-seq-length 256"
    rows = [row for row in job(*DENSE, *words.split()).rows if row.key in words.split()]
    assert [row.fate for row in rows] == ["no_cost_effect"] * 5
    for name in ("--retro-add-retriever", "--pipeline-model-parallel-split-rank 2"):
        with pytest.raises(InputError, match="leave it out for"):
            job(*DENSE, *name.split())


def test_every_field_of_the_seed_has_its_row() -> None:
    assert (len(SEED), len(ADDED)) == (63, 12)
    model = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128, "hidden_dropout": 0, "attention_dropout": 0}
    fields = {**model, **{name: VALUES.get(name, True) for name in (*SEED, *ADDED)}}
    rows = {r.key: r for r in _of_fields(fields).rows}
    assert set(fields) <= set(rows)
    assert not [name for name in fields if rows[name].fate == "refused" or (rows[name].fate != "mapped" and not rows[name].why)]
    for name in ("deterministic_mode", "tensor_parallel_num_weight_shards"):
        assert rows[name].why, name


def _of_fields(fields: dict[str, Any], lenient: bool = False) -> Job:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "config.json"
        file.write_text(json.dumps(fields))
        return job(str(file), "--world-size", "8", lenient=lenient)


def test_names_of_the_vocabulary_have_a_fate() -> None:
    """Every name that the study's vocabulary has for Megatron-Core, and every argument of its lists, is read or in a table."""
    path = SHARED / "vocabulary.yaml"
    if not path.exists():
        pytest.skip("../shared/vocabulary.yaml is not on this machine")
    from ruamel.yaml import YAML

    vocabulary = YAML(typ="safe").load(path.read_text())
    found = {
        alias["key"]
        for entry in vocabulary["canonical"].values()
        for alias in (entry.get("aliases") or {}).get("megatron_core", [])
        if "key" in alias
    }
    found |= set(vocabulary["no_cost_effect"]["megatron_core"]["keys"])
    names_ = sorted(name for name in found if name.isidentifier())
    assert len(names_) > 70
    model = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128, "num_moe_experts": 4}
    unknown = [
        name for name in names_ if name not in model and row(_of_fields({**model, name: None}, lenient=True), name)[2].startswith("no such key")
    ]
    assert not unknown


def test_tables_say_each_name_once() -> None:
    assert not SILENT.keys() & GAPS.keys()
    assert len(SILENT) > 400 and len(GAPS) > 90 and all(one.why for one in (*SILENT.values(), *GAPS.values()))


def test_a_job_is_imported_and_evaluated_from_the_command_line(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "symsim"]
    done = subprocess.run([*run, "import", "megatron", str(SCRIPT), "-o", str(tmp_path / "job")], capture_output=True, text=True, check=True)
    assert "--moe-layer-freq = ([0]*2+[1]*22)" in done.stdout
    done = subprocess.run([*run, "eval", str(tmp_path / "job"), "-y", "h100-sxm"], capture_output=True, text=True, check=True)
    assert "32 ranks on h100-sxm" in done.stdout


SMALL = ["--num-layers", "4", "--hidden-size", "64", "--num-attention-heads", "4", "--seq-length", "128", "--micro-batch-size", "1"]


def _small(*more: str, lenient: bool = False) -> Job:
    return load_job("megatron", *SMALL, "--global-batch-size", "8", *more, lenient=lenient)


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        (("--tokenizer-type", "TikTokenizer", "--tokenizer-model", "words.128k.json"), 131072),
        (("--vocab-file", "vocab.json", "--merge-file", "merges.txt"), 50304),
        (("--patch-tokenizer-type", "Qwen2Tokenizer", "--extra-vocab-size", "421"), 152064),
        (("--patch-tokenizer-type", "IcetkGLM130BTokenizer"), 150528),
        (("--patch-tokenizer-type", "DeepSeekV2Tokenizer", "--load", "/mnt/DeepSeek-V3-to-mcore-tp8-pp8-ep16", "--extra-vocab-size", "467"), 129280),
        (("--patch-tokenizer-type", "LLamaTokenizer", "--load", "/mnt/Qwen1.5-0.5B-hf-to-megatron-tp1", "--extra-vocab-size", "293"), 151936),
        (("--patch-tokenizer-type", "LLamaTokenizer", "--load", "/mnt/mine", "--extra-vocab-size", "8"), 32008),
        (("--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "vocab.json", "--merge-file", "merges.txt"), 50304),
        # 250,680 and 32,000 entries
        (("--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "bigscience/tokenizer"), 250752),
        (("--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", "/data/llama_tokenizer.model"), 32000),
    ],
)
def test_a_vocabulary_that_its_tokenizer_tells(said: tuple[str, ...], rows: int) -> None:
    made = _small(*said)
    assert made.architecture is not None and made.architecture.vocab_size == rows


def test_keys_given_twice(tmp_path: Path) -> None:
    file = tmp_path / "model_config.yaml"
    sizes = ("--num-layers: 2", "--hidden-size: 64", "--num-attention-heads: 8", "--vocab-size: 128", "--seq-length: 8")
    lines = ["MODEL_ARGS:", *sizes, "--ffn-hidden-size: 96", "--micro-batch-size: 1", "--global-batch-size: 8", "--ffn-hidden-size: 160"]
    file.write_text("\n  ".join(lines) + "\n")
    with pytest.raises(InputError) as error:
        job(str(file))
    said = "'MODEL_ARGS.--ffn-hidden-size' is given twice (first on line 7); --lenient takes the last, as the loader of Megatron-LM's tests does"
    assert str(error.value) == f"{file}:10: {said}"
    made = job(str(file), lenient=True)
    assert made.architecture is not None and made.architecture.mlp is not None and made.architecture.mlp.ffn_hidden_size == 160
    rows = [(row.value, row.fate, row.why) for row in made.rows if row.key == "ffn-hidden-size"]
    again = "given again on line 10, and the last one holds, as the loader of Megatron-LM's tests has it"
    assert rows == [("160", "mapped", ""), ("96", "no_cost_effect", again)]


def test_words_of_pai_megatron_patch() -> None:
    said = ("--vocab-size", "128", "--intermediate-size", "96", "--swiglu", "--disable-bias-linear-fc", "--disable-bias-attn-fc")
    made = _small(*said, "--use-llama2-rotary-position-embeddings", "--sliding-window", "16", "--train-data", "x", "--epochs", "2")
    same = _small("--vocab-size", "128", "--ffn-hidden-size", "96", "--swiglu", "--disable-bias-linear", "--add-qkv-bias",
                  "--use-rotary-position-embeddings", "--window-size", "15,0")  # fmt: skip
    assert made.architecture == same.architecture and made.architecture is not None
    assert {row.key: row.fate for row in made.rows}["--intermediate-size"] == "mapped"
    biased = _small("--vocab-size", "128", "--ffn-hidden-size", "96", "--swiglu", "--use-rotary-position-embeddings")
    assert biased.architecture != made.architecture
    slopes = _small("--vocab-size", "128", "--use-alibi-mask", "--position-embedding-type", "rope")
    assert slopes.architecture is not None and slopes.architecture.position_embedding == "alibi"


def test_a_vocabulary_that_nothing_tells() -> None:
    said = ("--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "/data/words")
    with pytest.raises(InputError, match="add --vocab-size N, or --of MODEL"):
        _small(*said)
    made = _small(*said, lenient=True)
    (row,) = [row for row in made.rows if row.key == "vocab_size"]
    assert row.fate == "refused" and made.architecture is not None and made.architecture.vocab_size == 128_000


def test_replicas_of_shards_are_so_many_ranks_at_least() -> None:
    said = ("--vocab-size", "128", "--use-distributed-optimizer", "--num-distributed-optimizer-instances", "2")
    assert (_small(*said).strategy or {})["dp"] == 2
    assert (_small(*said, "--context-parallel-size", "2").strategy or {})["dp"] == 1


def test_a_header_with_a_number_of_any_length(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(f"#SBATCH --nodes={'9' * 5000}\npython pretrain_gpt.py {' '.join(SMALL)} --vocab-size 128\n")
    assert (load_job("megatron", str(tmp_path / "train.sh")).strategy or {})["dp"] == 1


@pytest.mark.parametrize(
    ("more", "fate", "precision"),
    [
        ({"enable_autocast": True, "autocast_dtype": "bf16"}, "derived", "bf16"),
        ({"enable_autocast": True, "autocast_dtype": "torch.float16"}, "derived", "fp16"),
        ({"enable_autocast": True, "bf16": True}, "no_cost_effect", "bf16"),
        ({"enable_autocast": False}, "no_cost_effect", "fp32"),
    ],
)
def test_autocast_is_the_type_of_products_where_weights_are_wide(more: dict[str, Any], fate: str, precision: str, tmp_path: Path) -> None:
    fields = {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 64, "vocab_size": 256}
    (tmp_path / "c.json").write_text(json.dumps(fields | more))
    made = load_job("megatron", str(tmp_path / "c.json"))
    assert {row.key: row.fate for row in made.rows}["enable_autocast"] == fate
    assert made.strategy is not None and made.strategy["precision"] == precision


def test_fsdp_in_a_pipeline_is_megatrons_own() -> None:
    """Megatron-LM arguments.py: torch's FSDP2 refuses a pipeline; Megatron-FSDP shards every stage."""
    piped = (*DENSE, "--pipeline-model-parallel-size", "2")
    other = {row.key: row.fate for row in job("--use-megatron-fsdp", "--torch-fsdp2-no-reshard-after-forward").rows}
    assert other["--torch-fsdp2-no-reshard-after-forward"] == "no_cost_effect"
    with pytest.raises(InputError, match="use_torch_fsdp2=true: Megatron-LM runs it without a pipeline; give pipeline_model_parallel_size 1, not 2"):
        job(*piped, "--use-torch-fsdp2")
    found = job(*piped, "--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads_params").placed()
    assert (found.zero, found.pp) == (3, 2)


def test_layers_that_primus_names_run_again_on_their_stages(tmp_path: Path) -> None:
    """Their numbers are of the whole model, wherever chunks of stages begin (Primus examples/megatron/configs/MI355X)."""
    base = {"recompute_granularity": "full", "recompute_layer_ids": "0,3,4,7,8,11,31", "pipeline_model_parallel_size": 4}
    (tmp_path / "job.yaml").write_text(format_yaml({"modules": {"pre_trainer": {"overrides": {**base, "num_virtual_stages_per_pipeline_rank": 2}}}}))
    made = load_job("megatron", str(tmp_path / "job.yaml"), model="llama3-8b")
    told = {row.key: row for row in made.rows}["overrides.recompute_layer_ids"]
    # chunks of four layers: stage 0 has 0-3 and 16-19
    assert dict(made.strategy or {})["recompute_layers_per_stage"] == [2, 2, 2, 1] and told.fate == "mapped" and "7 of 32 layers" in told.why
    (tmp_path / "job.yaml").write_text(format_yaml({"modules": {"pre_trainer": {"overrides": {**base, "recompute_layer_ids": "99"}}}}))
    with pytest.raises(InputError, match="numbers of layers, from 0 to 31"):
        load_job("megatron", str(tmp_path / "job.yaml"), model="llama3-8b")


def test_hyper_connections_of_arguments() -> None:
    """Of n streams of h: n h (n^2 + 2 n) of a projection, as many biases as it has columns and three gates, around each mixer and network
    (Megatron-Core transformer/hyper_connection.py HyperConnectionModule); the streams end in their mean, which has no weights."""
    plain, several = (job(*DENSE, *more).architecture for more in ((), ("--enable-mhc-connections", "--mhc-num-residual-streams", "2")))
    assert plain is not None and several is not None and several.hyper_connections is not None
    assert (several.hyper_connections.streams, several.hyper_connections.sinkhorn_iterations, several.hyper_connections.averaged) == (2, 20, True)
    columns = 2 * 2 + 2 * 2
    each = 2 * several.hidden_size * columns + columns + 3
    for fusion in ("te", "eager"):
        n = [int(derive(model, load_strategy(f"fusion={fusion}")).value("params.total")) for model in (plain, several)]
        assert n[1] - n[0] == 2 * several.num_layers * each, fusion
    assert row(job(*DENSE, "--mhc-num-residual-streams", "2"), "--mhc-num-residual-streams")[0] == "no_cost_effect"


def test_the_allocator_is_a_variable_of_the_command(tmp_path: Path) -> None:
    arguments = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64"
    arguments += " --micro-batch-size 1 --vocab-size 256"
    script = tmp_path / "run.sh"
    script.write_text(f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\ntorchrun --nproc_per_node 8 pretrain_gpt.py {arguments}\n")
    grown = job(str(script))
    assert grown.assumptions["allocator"] == "expandable" and row(grown, "PYTORCH_CUDA_ALLOC_CONF")[:2] == ("mapped", "assume.allocator")
    script.write_text(f"PYTORCH_ALLOC_CONF=max_split_size_mb:512 torchrun --nproc_per_node 8 pretrain_gpt.py {arguments}\n")
    split = job(str(script))
    assert "allocator" not in split.assumptions and row(split, "PYTORCH_ALLOC_CONF")[0] == "not_modelled"


def test_overrides_of_a_recipe_that_has_adapters_or_no_experts() -> None:
    tuned = job("peft.target_modules=[linear_qkv,linear_proj]", "peft.exclude_modules=[linear_proj]", model="llama3-8b").placed()
    assert (tuned.tuner_type, tuned.target_modules, tuned.exclude_modules) == ("lora", ("linear_qkv", "linear_proj"), ("linear_proj",))
    some = job("peft.target_modules=['*.layers.0.*.linear_qkv',linear_fc1]", "peft.exclude_modules=['*.layers.3.mlp.*']", model="llama3-8b").placed()
    assert some.target_modules == ("layers.0-0.linear_qkv", "linear_fc1")
    assert some.exclude_modules == ("layers.3-3.linear_fc1", "layers.3-3.down_proj")
    dense = job("model.moe_z_loss_coeff=0.1", "model.parallel_output=true", "dist.use_decentralized_pg=true", model="llama3-8b")
    assert [row(dense, key)[0] for key in ("model.moe_z_loss_coeff", "model.parallel_output", "dist.use_decentralized_pg")] == ["no_cost_effect"] * 3
    assert row(job("model.moe_z_loss_coeff=0.1", model="qwen3-30b-a3b"), "model.moe_z_loss_coeff")[:2] == ("mapped", "moe_z_loss")
    with pytest.raises(InputError, match="mHC"):
        job("model.enable_mhc_connections=true", model="llama3-8b")


FLAGSCALE = """
system:
  tensor_model_parallel_size: 2
  sequence_parallel: true
  use_distributed_optimizer: true
  precision:
    bf16: true
  logging:
    log_interval: 1
    wandb_project: ${experiment.exp_name}
model:
  num_layers: 80
  hidden_size: 8192
  num_attention_heads: 64
  group_query_attention: true
  num_query_groups: 8
  hidden_dim_multiplier: 1.3
  multiple_of: 4096
  swiglu: true
  seq_length: 4096
  max_position_embeddings: 4096
  micro_batch_size: 1
  global_batch_size: 1024
  optimizer:
    lr_scheduler:
      lr: 1.0e-5
data:
  tokenizer:
    tokenizer_path: xxxx
    vocab_size: 100008
"""


def test_files_of_flagscale_are_arguments_in_sections(tmp_path: Path) -> None:
    file = tmp_path / "70b.yaml"
    file.write_text(FLAGSCALE)
    job = read_job("megatron", [str(file)], Options())
    assert job.architecture is not None and job.architecture.mlp is not None
    # 2/3 of 4 h, times 1.3, up to a multiple of 4096: Llama-2 70B's
    assert (job.architecture.mlp.ffn_hidden_size, job.architecture.num_layers) == (28672, 80)
    strategy, rows = dict(job.strategy or {}), {row.key: row for row in job.rows}
    assert (strategy["tp"], strategy["sp"], strategy["precision"], strategy["global_batch_size"]) == (2, True, "bf16", 1024)
    assert rows["model.multiple_of"].fate == rows["model.hidden_dim_multiplier"].fate == "mapped"
    assert rows["data.tokenizer.tokenizer_path"].fate == rows["model.optimizer.lr_scheduler.lr"].fate == "no_cost_effect"
    file.write_text(FLAGSCALE.replace("  multiple_of: 4096\n", "").replace("swiglu: true", "swiglu: true\n  enable_hetero: true"))
    rows = {row.key: row for row in read_job("megatron", [str(file)], Options()).rows}
    assert rows["model.enable_hetero"].fate == "not_modelled" and rows["model.hidden_dim_multiplier"].fate == "no_cost_effect"


def test_an_experiment_of_flagscale_names_its_training(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "70b.yaml").write_text(FLAGSCALE)
    head = "defaults:\n  - _self_\n  - train: 70b\nexperiment:\n  exp_name: a\n  runner:\n    hostfile: null\n"
    file = tmp_path / "train.yaml"
    for more, ranks in (
        ("    nnodes: 4\n    nproc_per_node: 8\n", 32),
        ("  envs:\n    CUDA_VISIBLE_DEVICES: 0,1,2,3\n", 4),
        ("    nnodes: ${env:WORLD_SIZE}\n    nproc_per_node: 8\n", None),
    ):
        file.write_text(head + more + "action: run\n")
        job = read_job("megatron", [str(file)], Options())
        alone = read_job("megatron", [str(tmp_path / "train" / "70b.yaml"), *(["--world-size", str(ranks)] if ranks else [])], Options())
        assert job.strategy == alone.strategy
        assert {row.key for row in job.rows} >= {"experiment.exp_name", "experiment.runner.hostfile", "action", "system.tensor_model_parallel_size"}
    assert next(row for row in job.rows if row.key == "experiment.runner.nnodes").fate == "not_modelled"
    for defaults, sentence in (
        ("serve: 70b", "names no training [(]serve[)]"),
        ("train: 7b", "train/7b.yaml, which is not beside it"),
        ("train: ../train/70b", "not"),
    ):
        file.write_text(head.replace("train: 70b", defaults))
        with pytest.raises(InputError, match=sentence):
            read_job("megatron", [str(file)], Options())


def test_adapters_and_a_folded_pipeline_of_flagscale(tmp_path: Path) -> None:
    file = tmp_path / "finetune.yaml"
    adapters = "model:\n  peft_type: lora\n  lora_dim: 16\n  lora_alpha: 32\n  lora_dropout: 0.1\n  lora_target_modules: [linear_proj]\n"
    file.write_text(FLAGSCALE.replace("model:\n", adapters, 1))
    found = read_job("megatron", [str(file)], Options())
    told, strategy = {one.key: one.fate for one in found.rows}, dict(found.strategy or {})
    assert (strategy["tuner_type"], strategy["lora_rank"], strategy["target_modules"]) == ("lora", 16, ["linear_proj"])
    assert told["model.peft_type"] == "mapped" and told["model.lora_alpha"] == "no_cost_effect"
    words = ("--num-experts", "4", "--expert-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--global-batch-size", "32")
    folded = (*DENSE, *words, "--use-dualpipev", "--moe-fb-overlap")
    assert job(*folded).placed().schedule == "dualpipev" and row(job(*folded), "--moe-fb-overlap")[0] == "not_modelled"
    assert job(*folded, "--moe-token-dispatcher-type", "alltoall").placed().overlap_moe_expert_parallel_comm


def test_names_of_forks() -> None:
    """Adam's states in 8 bits of Ling's and BigScience's, the launcher and a term of the loss of LLM-jp's."""
    for words in (("--optimizer", "adamw-bnb-8bit"), ("--use-bnb-optimizer",)):
        found = job(*DENSE, *words)
        assert found.placed().optimizer_bits == 8 and row(found, words[0])[0] == "mapped"
    found = job(*DENSE, "--use-mpi", "--use-z-loss")
    assert (row(found, "--use-mpi")[0], row(found, "--use-z-loss")[0]) == ("no_cost_effect", "not_modelled")
    latent = "--multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32".split()
    found = job(*DENSE, *latent, "--peft-type", "lora", "--lora-target-modules", "linear_q_proj")
    assert dict(found.strategy or {})["target_modules"] == ["q_proj"]


@pytest.mark.parametrize(
    "words, schedule, vpp",
    [
        ("--enable-zero-bubble", "zb_h2", 1),
        ("--enable-zero-bubble --zero-bubble-max-pending-backward 8", "zb_h2", 1),
        ("--enable-zero-bubble --zero-bubble-max-pending-backward 4", "zb_h1", 1),
        ("--enable-zero-bubble --num-layers-per-virtual-pipeline-stage 1", "interleaved_zb", 2),
        ("--zero-bubble-v-schedule --enable-zb-runtime", "zbv", 2),
        ("--zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup half", "v_half", 2),
        ("--zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup min", "v_min", 2),
        ("--enable-1f1b-v", "1f1b_v", 2),
        ("--zero-bubble-max-pending-backward 4 --enable-zb-runtime", "1f1b", 1),
    ],
)
def test_schedules_of_the_zero_bubble_fork(words: str, schedule: str, vpp: int) -> None:
    found = job(*DENSE[:-2], "--num-layers", "8", "--pipeline-model-parallel-size", "4", "--global-batch-size", "32", *words.split())
    assert (found.placed().schedule, found.placed().vpp) == (schedule, vpp)
    assert (row(found, "--zero-bubble-v-schedule-mem-setup")[0] == "mapped") if "mem-setup" in words else True
    two = job(*DENSE, "--pipeline-model-parallel-size", "2", "--zero-bubble-v-schedule", "--zero-bubble-v-schedule-mem-setup", "half")
    assert two.placed().schedule == "zbv" and row(two, "--zero-bubble-v-schedule-mem-setup")[0] == "not_modelled"
    two = job(*DENSE, "--pipeline-model-parallel-size", "2", "--enable-1f1b-v")
    assert two.placed().schedule == "1f1b" and row(two, "--enable-1f1b-v")[0] == "not_modelled"
    alone = job(*DENSE, "--enable-zero-bubble", "--zero-bubble-v-schedule")
    with pytest.raises(InputError, match="takes no value, and 'x' is the value of no argument"):
        job(*DENSE, "--enable-zero-bubble", "x")
    assert alone.placed().schedule == "1f1b" and alone.placed().vpp == 1


@pytest.mark.parametrize(("group", "fate", "taken"), [(0, "no_cost_effect", None), (1, "not_modelled", None), (2, "mapped", 2), (9, "mapped", 4)])
def test_groups_of_the_zero_bubble_fork(group: int, fate: str, taken: int | None) -> None:
    words = f"--num-layers 8 --pipeline-model-parallel-size 4 --global-batch-size 32 --interleave-group-size {group} --enable-zb-runtime".split()
    found = job(*DENSE[:-2], *words, "--num-layers-per-virtual-pipeline-stage", "1")
    assert row(found, "--interleave-group-size")[0] == fate
    assert found.placed().microbatch_group_size_per_vp_stage == taken
    assert found.placed().schedule == ("grouped_interleaved" if taken else "1f1b")
    alone = row(job(*DENSE[:-2], *words), "--interleave-group-size")
    assert alone[0] == "no_cost_effect"


@pytest.mark.parametrize(
    ("layers", "words", "layout", "vpp"),
    [
        (8, "", None, 1),
        (6, "", "Et|tt|tt|tL", 1),
        (7, "--num-layers-per-virtual-pipeline-stage 1", "Et|t|t|t|t|t|t|L", 2),
        (14, "--zero-bubble-v-schedule", "Et|tt|tt|tt|tt|tt|tt|tL", 2),
    ],
)
def test_layers_that_the_zero_bubble_fork_pads(layers: int, words: str, layout: str | None, vpp: int) -> None:
    """As many as stages divide; those that are none stand in the last chunk and in the first ones (get_offset of legacy/model/transformer.py)."""
    given = f"--num-layers {layers} --pipeline-model-parallel-size 4 --global-batch-size 32 --allow-padding-num-layers {words}".split()
    found = job(*DENSE[:-2], *given)
    assert (found.placed().pipeline_model_parallel_layout, found.placed().vpp) == (layout, vpp)
    assert row(found, "--allow-padding-num-layers")[0] == ("mapped" if layout else "no_cost_effect")


def test_layers_that_the_zero_bubble_fork_cannot_pad() -> None:
    words = "--num-layers 6 --pipeline-model-parallel-size 4 --allow-padding-num-layers --num-virtual-stages-per-pipeline-rank 3".split()
    with pytest.raises(InputError, match="given with 8 layers, padded, that 12 chunks divide"):
        job(*DENSE[:-2], *words)


def test_weighted_data_of_bigcode() -> None:
    found = job(*DENSE, "--train-weighted-split-paths", "TRAIN: 0.3 0:0.6 a", "--valid-weighted-split-paths", "A: 1 0:1 a", "B: 1 0:1 b")
    assert [row(found, f"--{which}-weighted-split-paths")[0] for which in ("train", "valid")] == ["no_cost_effect"] * 2


@pytest.mark.parametrize("said", ['"1e999"', '"inf"', '"nan"', "x"])
def test_a_width_of_flagscale_that_is_no_number_is_left_out(tmp_path: Path, said: str) -> None:
    file = tmp_path / "70b.yaml"
    file.write_text(FLAGSCALE.replace("hidden_dim_multiplier: 1.3", f"hidden_dim_multiplier: {said}"))
    rows = {row.key: row for row in read_job("megatron", [str(file)], Options()).rows}
    assert rows["model.hidden_dim_multiplier"].fate == "no_cost_effect"


def test_layers_that_run_again_by_their_name_of_2021() -> None:
    words = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 --seq-length 128 --max-position-embeddings 128"
    job = read_job("megatron", [*words.split(), "--micro-batch-size", "1", "--checkpoint-activations", "--checkpoint-num-layers", "2"], Options())
    strategy = dict(job.strategy or {})
    assert (strategy["recompute"], strategy["recompute_method"], strategy["recompute_num_layers"]) == ("full", "uniform", 2)
    assert next(row for row in job.rows if row.key == "--checkpoint-activations").fate == "mapped"
