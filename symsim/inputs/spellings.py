"""What is set here under other systems' names, and where a name that is set elsewhere belongs: for suggestions, not accepted as input.

Names that are accepted are ALIASES.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symsim.errors import cut, near, nearest
from symsim.inputs.strategy import Strategy

# name | setting here | whose. From the strategy files of SimuMax v1.2, Merak's init() and MerakArguments, transformers' TrainingArguments
# (4.50) and configurations, DeepSpeed's JSON (0.16), the arguments of Megatron-LM and of ms-swift's Megatron, torchtitan's [parallelism]
_TABLE = """
tp_size                         | tp                            | SimuMax, transformers
tensor_parallel_degree          | tp                            | torchtitan
parallel_vocab                  | placement                     | Merak
col_para_list                   | placement                     | Merak
row_para_list                   | placement                     | Merak
pp_size                         | pp                            | SimuMax
pipeline_parallel_size          | pp                            | vLLM
pipeline_parallel_degree        | pp                            | torchtitan
cp_size                         | cp                            | SimuMax
context_parallel_degree         | cp                            | torchtitan
sequence_parallel_size          | cp                            | ms-swift (Ulysses: cp_comm_type=a2a)
ep_size                         | ep                            | SimuMax, DeepSpeed
expert_parallel_degree          | ep                            | torchtitan
etp_size                        | etp                           | SimuMax
expert_tensor_parallel_degree   | etp                           | torchtitan
dp_size                         | dp                            | SimuMax
interleaving_size               | vpp                           | SimuMax
num_layers_per_virtual_pipeline_stage | vpp                     | Megatron-LM
enable_sequence_parallel        | sp                            | SimuMax
order_of_paralielism            | rank_order                    | SimuMax
order                           | rank_order                    | Megatron-Core
seq_len                         | seq_length                    | SimuMax, torchtitan
max_length                      | seq_length                    | ms-swift
max_seq_length                  | seq_length                    | TRL
packing_length                  | seq_length                    | ms-swift
sequence_len                    | seq_length                    | axolotl
per_device_train_batch_size     | micro_batch_size              | transformers, Merak
per_gpu_train_batch_size        | micro_batch_size              | transformers
train_micro_batch_size_per_gpu  | micro_batch_size              | DeepSpeed
gradient_accumulation_steps     | num_microbatches              | transformers, DeepSpeed, Merak
micro_batch_num                 | num_microbatches              | SimuMax
train_batch_size                | global_batch_size             | DeepSpeed
total_batch_size                | global_batch_size             | Merak
zero_state                      | zero                          | SimuMax
zero_stage                      | zero                          | Merak, DeepSpeed
use_distributed_optimizer       | zero                          | Megatron-LM
data_parallel_sharding_strategy | zero                          | Megatron-LM
fsdp                            | zero                          | transformers
grad_reduce_in_bf16             | grad_reduce_in_fp32           | SimuMax
accumulate_allreduce_grads_in_fp32 | grad_reduce_in_fp32        | Megatron-LM
use_fp32_accum_grad             | grad_reduce_in_fp32           | SimuMax
max_grad_norm                   | clip_grad                     | transformers
gradient_clipping               | clip_grad                     | DeepSpeed
optim                           | optimizer                     | transformers
train_schedule                  | schedule                      | Merak
pipeline_parallel_schedule      | schedule                      | torchtitan
pp_comm_async                   | overlap_p2p_comm              | SimuMax
dealloc_pipeoutput              | deallocate_pipeline_outputs   | SimuMax
decoder_first_pipeline_num_layers | num_layers_in_first_pipeline_stage | Megatron-LM
decoder_last_pipeline_num_layers  | num_layers_in_last_pipeline_stage  | Megatron-LM
enable_recompute                | recompute                     | SimuMax
gradient_checkpointing          | recompute                     | transformers
activation_checkpointing        | recompute                     | Merak, DeepSpeed
recompute_layer_num             | recompute_num_layers          | SimuMax
megatron_recompute_modules      | recompute_modules             | SimuMax
dtype                           | precision                     | SimuMax
torch_dtype                     | precision                     | transformers, ms-swift
params_dtype                    | precision                     | Megatron-Core
bf16                            | precision                     | transformers, DeepSpeed
fp16                            | precision                     | transformers, DeepSpeed
moe_dispatcher_policy           | moe_token_dispatcher_type     | SimuMax
cuda_graph_modules              | cuda_graph_scope              | Megatron-Core
moe_deepep_num_sms              | moe_flex_dispatcher_num_sms   | Megatron-Core
moe_hybridep_num_sms            | moe_flex_dispatcher_num_sms   | Megatron-Core
tp_overlapping_level            | tp_comm_halves                | Merak
cross_entropy_loss_fusion       | cross_entropy_fusion          | Megatron-Core
cross_entropy_fusion_impl       | cross_entropy_fusion          | Megatron-Core
transformer_impl                | fusion                        | Megatron-LM
use_flash_sdp                   | assume.attention_kernel       | SimuMax
use_math_sdp                    | assume.attention_kernel       | SimuMax
use_flash_attn                  | assume.attention_kernel       | Megatron-LM
attn_implementation             | assume.attention_kernel       | transformers
attn_impl                       | assume.attention_kernel       | ms-swift
attention_backend               | assume.attention_kernel       | Megatron-Core
mem_factor                      | assume.memory                 | SimuMax
adapter                         | tuner_type                    | axolotl
finetuning_type                 | tuner_type                    | LLaMA-Factory
lora_r                          | lora_rank                     | axolotl, peft
load_in_4bit                    | quantize_base                 | transformers, axolotl
load_in_8bit                    | quantize_base                 | transformers, axolotl
quantization_bit                | quantize_base                 | LLaMA-Factory
nproc_per_node                  | world                         | torchrun
num_gpus                        | world                         | DeepSpeed
gpus                            | world                         | people
num_hidden_layers               | num_layers                    | transformers
intermediate_size               | ffn_hidden_size               | transformers
num_key_value_heads             | num_query_groups              | transformers
head_dim                        | kv_channels                   | transformers
num_experts                     | num_moe_experts               | transformers
num_local_experts               | num_moe_experts               | transformers
n_routed_experts                | num_moe_experts               | transformers
num_experts_per_tok             | moe_router_topk               | transformers
moe_intermediate_size           | moe_ffn_hidden_size           | transformers
max_position_embeddings         | position_embedding_rows       | transformers
padded_vocab_size               | vocab_size                    | Megatron-LM
"""
_ROWS = [[part.strip() for part in line.split("|")] for line in _TABLE.strip().splitlines()]
ELSEWHERE = {name: ours for name, ours, _ in _ROWS}

# methods that people give as a value, which are several options here
VALUES = {
    ("tuner_type", "dora"): "DoRA is tuner_type=lora,use_dora=true",
    ("tuner_type", "qlora"): "QLoRA is tuner_type=lora,quantize_base=nf4_double",
}

# Megatron-Core's long names for the fields of a strategy
ALIASES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "sequence_parallel": "sp",
    "recompute_granularity": "recompute",
    "data_parallel_size": "dp",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "fp8_recipe": "fp8",
    "world_size": "world",
}

TOPICS = (
    ("degrees", ("tp", "sp", "cp", "pp", "vpp", "ep", "etp", "dp")),
    ("batch", ("micro_batch_size", "num_microbatches", "global_batch_size", "seq_length")),
    ("choices", ("zero", "schedule", "recompute", "precision", "fp8")),
)


def of_strategy(name: str, others: Mapping[str, str]) -> str:
    """A clause for a name that is no option: the option meant, or where else the name is set, or the options by topic. others: every other
    setting by its full name, and what kind of thing it is."""
    given = _plain(name)
    options = [*Strategy.model_fields, *ALIASES, "world"]
    meant = ELSEWHERE.get(given)
    if meant in options:
        return f"did you mean '{meant}'?"
    place = next((path for path in (meant, given) if path in others), None)
    if place is None and not near(given, options):
        place = next(iter(near(given, list(others))), None)
    if place is not None:
        return f"that is {others[place]}: --set {place}=..."
    return nearest(given, options, f"the options are {by_topic()}")


def of_setting(name: str, settings: Iterable[str], others: Mapping[str, str]) -> str:
    """A clause for a name that --set and --axis do not know. settings: the short names that they know."""
    given = _plain(name)
    if given in ELSEWHERE:
        return f"did you mean '{ELSEWHERE[given]}'?"
    last = next((path for path in others if path.rpartition(".")[2] == given), None)
    if last is not None:
        return f"did you mean '{last}'?"
    lists = (
        "options of the strategy ('symsim list options'), fields of the model's file, numbers of the system's, "
        "symbols ('symsim list symbols') and assume.NAME ('symsim list assumptions') can be set"
    )
    # a symbol is no word that one could have meant, and so is never near
    return nearest(given, [*(n for n in settings if len(n) > 1), *others], lists)


def by_topic() -> str:
    return "; ".join(f"{topic} {', '.join(names)}" for topic, names in TOPICS) + "; 'symsim list options' has all"


def _plain(name: str) -> str:
    """As on a command line: --tensor-model-parallel-size."""
    return cut(name, 100).strip().lstrip("-").replace("-", "_")
