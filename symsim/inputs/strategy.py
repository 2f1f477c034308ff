"""The strategy: how a model is placed on a mesh of ranks, and the choices that go with it.

Names are Megatron-Core's short forms (see docs/strategy.md for aliases). Degrees and sizes are numbers;
categorical choices select a variant of the derivation.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from symsim.inputs.limits import LARGEST_SIZE, MOST_LAYERS, MOST_PATTERNS, MOST_STAGES, AnyLayers, AnySize, Degree, Layers, Size, Stages

Loss = Literal["unfused", "native", "te", "torch", "torch_fp32", "linear", "liger", "chunked", "cut", "output_chunks", "compiled_chunks"]
RECOMPUTE_MODULES = ("core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts", "mhc")


class Strategy(BaseModel):
    """A parallel strategy. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    # the mesh
    tp: Degree = Field(1, description="tensor-parallel degree")
    sp: bool = Field(False, description="sequence parallelism in the TP group")
    cp: Degree = Field(1, description="context-parallel degree")
    cp_comm_type: Literal["p2p", "all_gather", "a2a", "a2a+p2p"] = Field("p2p", description="how context parallelism moves keys and values")
    cp_partition_mode: Literal["zigzag", "contiguous"] = Field(
        "zigzag", description="tokens of a rank of cp: an early and a late part of a row, or one part, of which the last attends to most keys"
    )
    cp_saved_output: Literal["attention", "projection"] = Field(
        "attention",
        description="cp_comm_type=a2a: attention's output is kept for its backward as it was made, or as its projection reads it, and exchanged once "
        "more for the backward (TransformerEngine before 2.8)",
    )
    hierarchical_context_parallel_sizes: tuple[Degree, ...] | None = Field(None, description="(a2a, p2p) degrees for a2a+p2p")
    pp: Stages = Field(1, description="pipeline stages")
    vpp: Stages = Field(1, description="virtual stages (model chunks) a rank")
    ep: Degree = Field(1, description="expert-parallel degree")
    etp: Degree | None = Field(None, description="tensor-parallel degree inside an expert; default: tp, as Megatron-Core")
    dp: Degree = Field(1, description="data-parallel degree; default: the smallest that gives the experts their ranks")
    placement: tuple[str, ...] | None = Field(
        None, max_length=64, description="dimensions of named operations that lie elsewhere, NAME.DIMENSION=AXES: lm_head.V=none+lm_head.s=cp*tp"
    )
    rank_order: str = Field("tp-cp-ep-dp-pp", description="axes along which ranks are numbered, innermost first (order)")
    # overlap
    tp_comm_overlap: bool = Field(False, description="tensor-parallel gathers and scatters in pieces beside their products (userbuffers); needs sp")
    tp_comm_overlap_ag: bool = Field(True, description="tp_comm_overlap: gathers before products, and of outputs' gradients, in pieces beside them")
    tp_comm_overlap_rs: bool = Field(True, description="tp_comm_overlap: scatters behind products in pieces beside them")
    tp_comm_overlap_rs_dgrad: bool = Field(
        False, description="tp_comm_overlap: scatters of inputs' gradients in pieces beside the input gradients; then nothing is bulk"
    )
    tp_comm_bulk_dgrad: bool = Field(True, description="tp_comm_overlap: repeated gathers of inputs beside the input gradients")
    tp_comm_bulk_wgrad: bool = Field(True, description="tp_comm_overlap: scatters of inputs' gradients beside the weight gradients")
    tp_comm_overlap_disable_qkv: bool = Field(False, description="tp_comm_overlap: not in pieces around the joint product of q, k and v")
    tp_comm_overlap_disable_fc1: bool = Field(False, description="tp_comm_overlap: not in pieces around the first product of a feed-forward network")
    tp_comm_halves: Literal["none", "linear", "layer", "model"] = Field(
        "none",
        description="tensor-parallel all-reduces of one half of a micro-batch beside the other's computation: in a linear map, a layer, all layers",
    )
    overlap_grad_reduce: bool = Field(False, description="gradient buckets reduced beside the last backward")
    overlap_param_gather: bool = Field(False, description="parameter buckets gathered beside the first forward")
    overlap_param_gather_with_optimizer_step: bool = Field(
        False, description="overlap_param_gather with vpp above 1: the first chunk's parameters are gathered beside the update of the others"
    )
    overlap_p2p_comm: bool = Field(False, description="boundary tensors sent beside computation")
    overlap_p2p_comm_warmup_flush: bool = Field(True, description="overlap_p2p_comm: in the warm-up and the flush of the interleaved schedule too")
    p2p_comm: Literal["asynchronous", "batched", "single"] = Field(
        "asynchronous",
        description="1f1b: boundary tensors travel while their sender goes on; batched: a rank waits for each exchange, a send and a receive "
        "together (batch_p2p_comm); single: one after the other",
    )
    batch_p2p_sync: bool = Field(False, description="the host waits for every boundary tensor, so that the launch behind it shows")
    host_waits: int = Field(
        0, ge=0, le=64, description="times in a micro-batch that the host waits for the device (timers of its parts), so that the launch behind shows"
    )
    variable_seq_lengths: bool = Field(False, description="the shape of every boundary tensor is sent ahead of it")
    moe_shared_expert_overlap: bool = Field(False, description="the shared experts run beside the exchange of tokens")
    overlap_moe_expert_parallel_comm: bool = Field(False, description="the exchange of tokens runs beside another micro-batch's computation")
    delay_wgrad_compute: bool = Field(False, description="weight gradients run beside the exchange of tokens too")
    overlap_dispatch_backward_with_experts_wgrad: bool = Field(
        False, description="the experts' weight gradients run beside the exchange that takes gradients back to their tokens"
    )
    ep_overlap_early_attn_memory_release: bool = Field(
        False,
        description="overlap_moe_expert_parallel_comm: attention's backward before the other micro-batch's experts, so that its tensors are free "
        "by then and two of the four exchanges are exposed",
    )
    # the batch
    micro_batch_size: Size = Field(1, description="sequences a micro-batch, per data-parallel rank")
    num_microbatches: Size | None = Field(None, description="micro-batches a step (default 1, or pp with vpp)")
    global_batch_size: Size | None = Field(None, description="sequences a step, all data-parallel ranks together")
    seq_length: Size = Field(4096, description="tokens a sequence")
    packed_document_length: Size | None = Field(None, description="mean length of documents packed into a sequence; attention stays inside each")
    document_lengths: str | None = Field(
        None,
        max_length=4096,
        description="lengths of the documents packed into a sequence: all equal, 1500; lognormal:MEAN+CV; @FILE lists them; cut: before it where "
        "rows cut what runs through them",
    )
    padding_free: bool = Field(False, description="rows are one document each, of its own length, unpadded: work at the mean, memory at seq_length")
    mlp_padding_free: bool = Field(
        False,
        description="rows are one document each, padded to seq_length: attention works on whole rows, feed-forward networks and experts on the "
        "tokens that are no padding, of which a row has the documents' mean",
    )
    attention_sparse_ratio: float = Field(0.0, ge=0, lt=1, description="share of the scores that flash attention leaves out, besides its mask")
    # data parallelism
    zero: Literal[0, 1, 2, 3] = Field(
        1, description="0: replicated; 1: optimizer states sharded (distributed optimizer); 2: gradients too; 3: parameters too (FSDP)"
    )
    num_distributed_optimizer_instances: Degree = Field(1, description="replicas of the sharding group (HSDP)")
    outer_dp_sharding_strategy: Literal["no_shard", "optim"] = Field(
        "no_shard",
        description="FSDP with several instances: optimizer states are replicated over them, or sharded too (HFSDP): gradients are scattered "
        "between instances once a step, and parameters gathered",
    )
    expert_shard_ranks: Degree | None = Field(
        None,
        description="FSDP: ranks over which a copy of the experts is sharded, when not in as many copies as the others; a part on one rank alone "
        "(these, or all ranks with an instance each) is not gathered: its gradients and states are those of a distributed optimizer; "
        "what is sent once a step overlaps as overlap_grad_reduce and overlap_param_gather say",
    )
    reshard_after_forward: bool | Degree = Field(
        True,
        description="FSDP: free gathered parameters after forward and gather them again in backward; "
        "a number: keep them sharded over so many ranks instead",
    )
    reshard_after_backward: bool = Field(True, description="FSDP: free gathered parameters after backward; false keeps them until the step")
    gradient_sync: Literal["every_microbatch", "every_group", "every_flush", "last_microbatch"] = Field(
        "every_microbatch",
        description="zero=2, FSDP: when gradients are reduced (no_sync); every_group: a chunk's, after each group of micro-batches that run "
        "through it in a row, so that one chunk's are whole at a time; every_flush: as the pipeline empties, pipeline_flushes times",
    )
    prefetch_bucket_size: AnySize | None = Field(
        None, description="FSDP: parameters gathered ahead of what runs (stage3_prefetch_bucket_size); default: the next unit"
    )
    max_live_parameters: AnySize | None = Field(
        None, description="FSDP: parameters that may be gathered at once, those ahead among them (stage3_max_live_parameters)"
    )
    max_reuse_distance: AnySize | None = Field(
        None, description="FSDP: parameters needed again before so many others have been used stay gathered (stage3_max_reuse_distance)"
    )
    param_persistence_threshold: AnySize | None = Field(
        None, description="FSDP: parameters of at most so many elements stay whole on every rank (stage3_param_persistence_threshold)"
    )
    ddp_bucket_size: Size | None = Field(
        None,
        description="gradients of a bucket, each a message; default: one message, of which the last of max(4*10^7, 10^6 a rank) "
        "parameters cannot overlap",
    )
    sub_group_size: Size | None = Field(None, description="zero=3: parameters of a rank that are updated at once (DeepSpeed); default: all of them")
    allgather_bucket_size: Size | None = Field(None, description="parameters gathered in one message after the update; default: ddp_bucket_size")
    grad_reduce_in_fp32: bool = Field(True, description="gradients accumulated and reduced in fp32")
    pad_buckets_for_high_nccl_busbw: bool = Field(False, description="gradient buckets padded to a multiple of 2^16 elements")
    clip_grad: float = Field(1.0, ge=0, le=LARGEST_SIZE, description="gradient norm to clip to; 0: no clipping")
    log_num_zeros_in_grad: bool = Field(False, description="zeros among gradients are counted in every step: one more pass over them")
    log_params_norm: bool = Field(False, description="the norm of all parameters is taken in every step: a pass over those that are updated")
    # what is trained
    task_type: Literal["causal_lm", "seq_cls", "token_cls", "embedding"] = Field(
        "causal_lm", description="seq_cls: a score of num_labels columns of the last token (reward: one); token_cls: of every token; embedding: none"
    )
    num_labels: Size = Field(2, description="seq_cls, token_cls: columns of the head")
    tuner_type: Literal["full", "lora", "oft"] = Field(
        "full", description="lora: adapters of low rank beside linear maps; oft: rotations of what goes into them; the model's own parameters rest"
    )
    lora_rank: Size = Field(8, description="lora: rank of the adapters")
    lora_expert_rank: Size | None = Field(None, description="lora: rank of the adapters of experts, where it is another")
    rank_pattern: tuple[str, ...] | None = Field(
        None, max_length=MOST_PATTERNS, description="lora: other ranks, NAME=RANK, of which the first counts: q_proj=16+layers.0-3.down_proj=4"
    )
    oft_block_size: Size = Field(32, ge=2, description="oft: inputs of a linear map that are rotated together")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="lora: dropout of what goes into the adapters; above 0 it takes a mask, at any rate")
    lora_dropout_position: Literal["pre", "post"] = Field("pre", description="lora_dropout: of what goes into an adapter, or of what it makes")
    target_modules: tuple[str, ...] = Field(
        ("all_linear",),
        max_length=64,
        description="lora: linear maps with adapters, by name (q_proj, linear_fc1, layers.0-15.mlp), or all_linear; layers.0-15: all of these",
    )
    exclude_modules: tuple[str, ...] | None = Field(
        None, max_length=64, description="lora, oft: linear maps that have none all the same, named as in target_modules"
    )
    fused_adapters: tuple[Literal["qkv", "o", "mlp", "each"], ...] = Field(
        (),
        description="lora, eager: linear maps that run with their adapters in one function, which keeps its input alone (mlp: gate and up, too): an "
        "adapter's second product adds its result; each: every map by itself, with a pass that adds",
    )
    use_dora: bool = Field(False, description="lora: a magnitude for every column of an adapted weight, over the weight's norm (DoRA)")
    quantize_base: Literal["none", "nf4", "nf4_double", "fp4", "fp4_double", "nf4_torchao", "nf4_torchao_compiled", "int8"] = Field(
        "none", description="lora: how frozen weights of linear maps are stored: symsim/ir/quantised.py (QLoRA: nf4, or nf4_double)"
    )
    quantize_experts: bool = Field(False, description="quantize_base: weights of experts too, which are no linear modules")
    modules_to_save: tuple[str, ...] | None = Field(None, max_length=64, description="lora: parameters trained as they are, beside the adapters")
    freeze_parameters: tuple[str, ...] | None = Field(
        None, max_length=64, description="parameters that are not trained, by names: embedding, norm, attention.q_proj, layers.0-15, layers.3.mlp"
    )
    trainable_parameters: tuple[str, ...] | None = Field(None, max_length=64, description="trained all the same, named as in freeze_parameters")
    trained_before: bool = Field(
        False,
        description="a tower or projector whose results stand among the embedding's is trained, so that a gradient goes back through all layers, "
        "frozen ones too (freeze_llm); it is not counted itself",
    )
    reference_models: int = Field(
        0, ge=0, le=8, description="frozen models of the same size beside the trained one, whose forward every micro-batch needs (DPO, KTO)"
    )
    further_forwards: int = Field(
        0, ge=0, le=8, description="forwards of the trained model without gradients, a micro-batch: without its adapters, or before the update"
    )
    allocator_in_use: float = Field(
        0.94, gt=0, le=1, description="of what PyTorch's caching allocator reserves, the share in use at the peak (SimuMax's mem_factor)"
    )
    # the optimizer
    optimizer: Literal[
        "adam",
        "sgd",
        "sgd_momentum",
        "lion",
        "rmsprop",
        "ademamix",
        "lamb",
        "adafactor",
        "came",
        "adam_mini",
        "muon",
        "galore",
        "apollo",
        "onebit_adam",
        "onebit_lamb",
        "zero_one_adam",
    ] = Field("adam", description="what is kept and moved: symsim/inputs/optimizers.py; adam: two moments; sgd: none; sgd_momentum, lion: one")
    optimizer_in_bwd: bool = Field(
        False, description="eager, compile: a parameter is updated as its gradient is made, which is freed then: of one micro-batch a step"
    )
    optimizer_bits: Literal[32, 8, 4] = Field(
        32, description="8, 4: moments in blocks of 256, 128 numbers with an fp32 scale each (bitsandbytes, torchao); 32: in the types below"
    )
    fp32_embedding_moments: bool = Field(False, description="optimizer_bits=8, 4: embeddings' moments stay in fp32 (HF Trainer, bitsandbytes)")
    local_step_clipper: Degree = Field(16, description="zero_one_adam: steps from one message to the next, as they are in the long run")
    optimizer_rank: Size = Field(128, description="galore, apollo: rows of a projected gradient")
    muon_tp_mode: Literal["blockwise", "duplicated", "distributed"] = Field(
        "blockwise", description="muon: every tensor-parallel rank its own piece of a matrix, each the whole one, or all of them together"
    )
    muon_num_ns_steps: Degree = Field(5, description="muon: Newton-Schulz rounds, of three products each")
    muon_split_qkv: bool = Field(True, description="muon, te: queries, keys and values are matrices of their own; false: one, as they are stored")
    muon_fp32_matmul_prec: Literal["medium", "high", "highest"] = Field(
        "medium", description="muon: the rounds multiply in 16 bits, in TF32 (high, half that rate), or in fp32 (highest)"
    )
    muon_scalar_optimizer: Literal["adam", "lion"] = Field(
        "adam", description="muon: what updates all that is no matrix, with the embedding and the output layer: two moments, or one (lion)"
    )
    use_precision_aware_optimizer: bool = Field(False, description="optimizer states in the types below; needs a distributed optimizer")
    store_param_remainders: bool = Field(True, description="precision-aware: of fp32 main parameters, the 16 bits that bf16 lacks")
    main_params_dtype: Literal["fp32", "fp16", "bf16"] | None = Field(
        None, description="type of the parameters that the optimizer updates (fp32); that of precision: no copy is kept"
    )
    main_grads_dtype: Literal["fp32", "bf16"] = Field("fp32", description="type of the gradients that the optimizer reads")
    exp_avg_dtype: Literal["fp32", "fp16", "bf16", "fp8"] | None = Field(None, description="type of the first moment; default: main_params_dtype")
    exp_avg_sq_dtype: Literal["fp32", "fp16", "bf16", "fp8"] | None = Field(None, description="type of the second moment; default: main_params_dtype")
    optimizer_cpu_offload: bool = Field(False, description="optimizer states and update on the host; under te it needs the precision-aware optimizer")
    optimizer_offload_fraction: float = Field(1.0, ge=0, le=1, description="share of the parameters whose states are on the host")
    optimizer_offload_device: Literal["cpu", "nvme"] = Field(
        "cpu", description="optimizer_cpu_offload: states wait in the host's memory, or on its drives, read and written in every step"
    )
    offload_gradients: bool = Field(
        False, description="zero=2, 3: gradients are summed on the host, and travel there beside backward (ZeRO-Offload, FSDP CPU offload)"
    )
    overlap_cpu_optimizer_d2h_h2d: bool = Field(False, description="what travels for the host's update travels beside it")
    host_update: Literal["fused", "torch"] = Field(
        "fused", description="the update on the host: one pass over what it reads and writes (DeepSpeedCPUAdam), or PyTorch's, operation by operation"
    )
    offload_parameters: bool = Field(False, description="FSDP: shards of parameters wait on the host, and come over its link for every gather")
    offload_operations: tuple[str, ...] | None = Field(
        None,
        max_length=64,
        description="operations of a layer, named as in recompute_operations, whose saved tensors wait on the host (offload_modules)",
    )
    cpu_offloading_num_layers: int = Field(0, ge=0, le=MOST_LAYERS, description="leading layers whose saved activations wait on the host")
    deallocate_pipeline_outputs: bool = Field(True, description="a stage's output is freed once it is sent")
    # the pipeline
    schedule: Literal[
        "gpipe",
        "1f1b",
        "interleaved",
        "looped_bfs",
        "zb_h1",
        "zb_h2",
        "interleaved_zb",
        "grouped_interleaved",
        "zbv",
        "v_half",
        "v_min",
        "1f1b_v",
        "dualpipe",
        "dualpipev",
        "ds_default",
        "merak_1f1b",
        "pre_recompute_1f1b",
        "last_no_recompute_1f1b",
        "shifted_critical_path",
    ] = Field("1f1b", description="order of forwards and backwards in the pipeline; 1f1b with vpp above 1 is interleaved")
    microbatch_group_size_per_vp_stage: Size | None = Field(None, description="interleaved: micro-batches in a row through one chunk; default: pp")
    pipeline_flushes: Size = Field(
        1, description="times a step that the pipeline fills and empties, for a part of the micro-batches each (gradient accumulation around it)"
    )
    defer_embedding_wgrad_compute: bool = Field(
        False, description="weight gradients of the output layer wait until the last stage's last backward; needs pp above 1"
    )
    wgrad_deferral_limit: int = Field(0, ge=0, le=LARGEST_SIZE, description="micro-batches whose weight gradient waits; 0: all")
    num_layers_in_first_pipeline_stage: Layers | None = Field(None, description="layers of the first stage; the rest are split evenly")
    num_layers_in_last_pipeline_stage: Layers | None = Field(None, description="layers of the last stage; the rest are split evenly")
    account_for_embedding_in_pipeline_split: bool = Field(False, description="the embedding counts as a layer of the first stage")
    account_for_loss_in_pipeline_split: bool = Field(False, description="the head counts as a layer of the last stage")
    pipeline_model_parallel_layout: str | None = Field(
        None, description="explicit layout: E embedding, t layer, m MTP, L loss; stages separated by |, e.g. Et*3|(tt|)*29,m|L"
    )
    # recompute
    recompute: Literal["none", "full", "selective", "sac_mm", "sac_attn", "sac_mm_attn"] = Field(
        "none", description="recompute_granularity; sac_*: PyTorch selective checkpointing that saves these operations' outputs"
    )
    recompute_method: Literal["uniform", "block"] = Field("uniform", description="full: groups of layers, or the first layers of each chunk")
    recompute_num_layers: Layers = Field(1, description="full: layers a group (uniform), or layers recomputed (block)")
    recompute_layers_per_stage: tuple[AnyLayers, ...] | None = Field(
        None,
        max_length=MOST_STAGES,
        description="full: leading layers of every stage that run again, over its chunks, 8+8+6+0; the others keep what they need",
    )
    num_microbatches_with_partial_activation_checkpoints: AnySize | None = Field(
        None,
        description="full, 1f1b: of the micro-batches (passes through a chunk) that a rank holds at once, those that keep what they need; the "
        "others run again",
    )
    recompute_modules: tuple[Literal["core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts", "mhc"], ...] = Field(
        ("core_attn",), description="selective: modules that run again in backward"
    )
    recompute_operations: tuple[str, ...] | None = Field(
        None,
        max_length=64,
        description="selective: operations of a layer that run again, in place of modules: their names, those of scopes, or runs FIRST..LAST: "
        "attention.qkv..attention.core+mlp",
    )
    recompute_from_fp8: tuple[str, ...] | None = Field(
        None,
        max_length=64,
        description="fp8: operations that run again from the FP8 copies of their inputs, which wait instead (cache_groupgemm_col_fp8_inputs)",
    )
    distribute_saved_activations: bool = Field(False, description="full, without sp: checkpoints are split over TP")
    synchronize_checkpoint_boundary: bool = Field(
        False, description="full: the host waits for the device at both ends of a checkpoint, forward and backward, so that four launches show"
    )
    # precision
    precision: Literal["bf16", "fp16", "fp32"] = Field("bf16", description="type of parameters and activations")
    autocast: bool = Field(
        False,
        description="eager: trained parameters stay in fp32, and PyTorch casts what products multiply to the type of precision in every forward; "
        "copies of parameters live until its end, or until backward has used them",
    )
    fp8: Literal["none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"] = Field(
        "none", description="recipe of the linear layers' narrow products: FP8, or NVFP4"
    )
    fp8_param_gather: bool = Field(False, description="weights multiplied in FP8 are kept and gathered so, without a copy in the type of precision")
    fp8_wgrad: bool = Field(True, description="fp8: weight gradients are products of the recipe too; false: of the type of precision, as are inputs")
    fp8_output_proj: bool = Field(False, description="fp8=mxfp8: the output layer's products are narrow too")
    fp8_dot_product_attention: bool = Field(False, description="attention multiplies in FP8, of queries, keys and values that are cast for it")
    fp8_multi_head_attention: bool = Field(False, description="fp8_dot_product_attention: queries, keys and values come in FP8, and nothing is cast")
    keep_fp8_transpose_cache: bool = Field(False, description="FSDP with fp8_param_gather: transposed forms of all weights stay whole on every rank")
    num_layers_at_start_in_bf16: int = Field(
        0, ge=0, le=MOST_LAYERS, description="fp8: first layers whose products stay in the type of precision (first_last_layers_bf16)"
    )
    num_layers_at_end_in_bf16: int = Field(
        0, ge=0, le=MOST_LAYERS, description="fp8: last layers whose products stay in the type of precision (first_last_layers_bf16)"
    )
    fp32_residual_connection: bool = Field(False, description="the residual stream in fp32")
    activation_func_fp8_input_store: bool = Field(False, description="activation inputs kept in FP8")
    attention_output_store: Literal["fp8", "e5m6"] | None = Field(
        None, description="te, flash: attention's output kept in 8 bits, or in 12 (E5M6), for its backward and the projection after it"
    )
    # kernels
    fusion: Literal["te", "eager", "compile"] = Field(
        "te",
        description="te: TransformerEngine kernels as Megatron-Core uses them; eager: Hugging Face modules op by op; compile: the same under "
        "torch.compile, whose kernels are what lies between two products",
    )
    gradient_accumulation_fusion: bool = Field(
        True, description="te: weight gradients are added to the accumulated ones in their product; else written in 16 bits and added in a pass"
    )
    fused_kernels: tuple[Literal["norm", "activation", "rope"], ...] = Field(
        (), description="eager: modules that are one kernel forward and one backward, as Liger's are, in place of PyTorch's operations"
    )
    cuda_graph_impl: Literal["none", "local", "transformer_engine", "full_iteration"] = Field(
        "none", description="te: layers are launched as CUDA graphs; with any kernels, all of forward and backward is one (full_iteration)"
    )
    cuda_graph_scope: tuple[Literal["attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"], ...] = Field(
        (), description="local, transformer_engine: parts of a layer that are graphs (cuda_graph_modules); default: the whole layer"
    )
    bias_activation_fusion: bool = Field(True, description="te: a bias, the activation, its gate and routing weights are one kernel")
    bias_dropout_fusion: bool = Field(True, description="te: a bias, dropout and the residual addition are one kernel")
    masked_softmax_fusion: bool = Field(True, description="te: scale, mask and softmax of written-out attention are one kernel")
    norm_fusion: bool = Field(True, description="te: a norm is one kernel")
    use_fused_mhc: bool = Field(True, description="te: residual streams are mixed, and what a layer made is spread over them, by one kernel")
    cross_entropy_fusion: Loss = Field(
        "unfused",
        description="cross entropy (cross_entropy_loss_fusion, cross_entropy_fusion_impl); torch, torch_fp32: PyTorch's, of logits as they are or in "
        "fp32 (unfused is the latter under eager and compile); with the output layer in it, so that logits are never "
        "whole: linear (Megatron-Core), liger, chunked (torchtitan), cut (CCE); eager: output_chunks, fp32 copies of some rows at a time "
        "(torchtune), compiled_chunks, the same compiled, which keeps 16-bit logits alone",
    )
    cross_entropy_chunks: Size | None = Field(
        None, description="liger, chunked, output_chunks: chunks of tokens whose logits are there one after the other; default: V / h, 8, 8"
    )
    # mixture of experts
    use_transformer_engine_op_fuser: bool = Field(
        False, description="te: experts' biases, clamps and, under mxfp8, activation and casts between their products are parts of these products"
    )
    moe_token_dispatcher_type: Literal["alltoall", "allgather", "flex"] = Field(
        "alltoall", description="how tokens reach their experts; flex: in kernels of their own, a copy a rank, and one a node between nodes"
    )
    moe_flex_dispatcher_backend: Literal["deepep", "hybridep"] = Field("deepep", description="flex: whose kernels")
    moe_flex_dispatcher_num_sms: Size | None = Field(
        None, description="flex: multiprocessors that an exchange takes; default: the backend's own, of deepep 20, of hybridep 24, or 8 between nodes"
    )
    moe_permute_fusion_into_hybridep: bool = Field(False, description="flex with hybridep: rows are sorted by expert inside the exchange")
    moe_expert_capacity_factor: float | None = Field(None, gt=0, le=LARGEST_SIZE, description="rows an expert takes, over the mean; else dropless")
    moe_expert_rank_capacity_factor: float | None = Field(
        None, gt=0, le=LARGEST_SIZE, description="flex with hybridep: rows that memory is set aside for on a rank, over the mean, however many arrive"
    )
    moe_paged_stash: bool = Field(False, description="moe_expert_rank_capacity_factor: rows kept for backward are copied to pages, 1.1 of the mean")
    moe_pad_expert_input_to_capacity: bool = Field(False, description="every expert computes exactly its capacity")
    moe_router_padding_for_quantization: bool = Field(
        False, description="fp8: the router chooses as many rows for every expert as products need, so that none are copied to pad them"
    )
    moe_router_dtype: Literal["compute", "fp32"] = Field("compute", description="type of routing probabilities")
    moe_router_load_balancing_type: Literal["none", "aux_loss", "seq_aux_loss", "global_aux_loss"] = Field(
        "none", description="auxiliary loss, whose token counts are summed over ranks"
    )
    moe_z_loss: bool = Field(False, description="a loss that keeps a router's logits small: one more pass over them, and over their gradients")
    dsa_indexer_loss: Literal["none", "dense", "sparse"] = Field(
        "none", description="an indexer's own loss: over all keys (dense), or those that it chose (sparse); none: it is not trained"
    )
    mtp_num_layers: int | None = Field(None, ge=0, le=MOST_LAYERS, description="multi-token prediction depths to train; default: the model's")

    @model_validator(mode="wrap")
    @classmethod
    def _default_dp(cls, data: Any, handler: ModelWrapValidatorHandler["Strategy"]) -> "Strategy":
        """Without dp: the fewest replicas over which etp * ep expert ranks fit (1 for a dense model). It does not count as given."""
        if not isinstance(data, dict) or data.get("dp") is not None:
            return handler(data)
        degree = {k: data.get(k) or 1 for k in ("tp", "cp", "ep")}
        degree["etp"] = data.get("etp") or degree["tp"]
        if not all(isinstance(v, int) and v > 0 for v in degree.values()):
            return handler(data)
        made = handler({**data, "dp": default_dp(**degree)})
        made.model_fields_set.discard("dp")
        return made

    @property
    def expert_tp(self) -> int:
        """ETP with Megatron-Core's default (tp)."""
        return self.etp if self.etp is not None else self.tp

    @property
    def microbatches(self) -> int:
        """Micro-batches a step."""
        if self.num_microbatches is not None:
            return self.num_microbatches
        if self.global_batch_size is not None:
            return self.global_batch_size // (self.micro_batch_size * self.dp)
        return self.pp if self.vpp > 1 else 1

    @property
    def flush_microbatches(self) -> int:
        """Micro-batches of a step for which the pipeline fills and empties once."""
        return self.microbatches // self.pipeline_flushes

    @property
    def core_attention_again(self) -> bool:
        """Whether attention's scores are a recompute module of their own."""
        return self.recompute == "selective" and "core_attn" in self.recompute_modules and self.recompute_operations is None

    @property
    def world_size(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def expert_dp(self) -> int:
        """Expert data-parallel degree: the ranks of a stage that hold the same experts."""
        return self.tp * self.cp * self.dp // (self.expert_tp * self.ep)


# properties that say yes or no, each with the options that it follows from: a pass that reads one asks for no more
ANSWERS = {"core_attention_again": frozenset(("recompute", "recompute_modules", "recompute_operations"))}


def default_dp(tp: int, cp: int, ep: int, etp: int) -> int:
    """The fewest replicas over which etp * ep expert ranks fit."""
    expert, dense = etp * ep, tp * cp
    return expert // math.gcd(expert, dense)
