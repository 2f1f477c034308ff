"""Arguments of Megatron-LM that change a step and that symsim has no option for: what would change, and what is refused.

Names as in `silent.py`.
"""

from __future__ import annotations

from symsim.importers.assumed import COLLECTED, NARROW_WEIGHT_GRADIENTS, UPDATE_GRAPH
from symsim.importers.keys import Silent, silent

GAPS: dict[str, Silent] = {
    **silent(
        "refused",
        "roll-outs and further models are another workload; left out, the training step of the same model is timed",
        "perform_rl_step",
    ),
    **silent(
        "not_modelled",
        "a step of a fixed batch is computed; the batch that grows makes early steps smaller",
        "rampup_batch_size step_batch_size_schedule",
    ),
    **silent(
        "no_cost_effect",
        "TransformerEngine says that it does nothing any more (pytorch/cpu_offload.py)",
        "cpu_offloading_weights cpu_offloading_double_buffering",
    ),
    **silent(
        "not_modelled",
        "no transposes of 8-bit weights are kept: a byte a parameter less, a pass more",
        "disable_parameter_transpose_cache",
    ),
    **silent(
        "not_modelled",
        "maxima over tensor-parallel ranks only: a smaller reduction",
        "tp_only_amax_red",
    ),
    **silent(
        "not_modelled",
        "Newton-Schulz rounds compute half of what is symmetric: a quarter to a third of their FLOPs less",
        "muon_use_syrk",
    ),
    **silent(
        "not_modelled",
        "optimizer states by layers: other sizes of gathers",
        "use_layer_wise_distributed_optimizer",
    ),
    **silent(
        "not_modelled",
        "routing bound to a number of groups: fewer copies of a token",
        "moe_router_topk_limited_devices",
    ),
    **silent(
        "not_modelled",
        "one fusion off: a few more passes over activations; fused kernels are taken",
        "no_persist_layer_norm disable_jit_fuser",
    ),
    **silent(
        "not_modelled",
        "a fused kernel in place of two: a pass over activations less",
        """
        fused_residual_rmsnorm fused_single_qkv_rope mla_down_proj_fusion moe_router_fusion use_fused_weighted_squared_relu
        use_grouped_gemm_for_dense_mlp use_grouped_gemm_for_shared_expert use_te_activation_func
        """,
    ),
    **silent("no_cost_effect", COLLECTED, "manual_gc manual_gc_interval no_manual_gc_eval disable_manual_gc_eval"),
    **silent(
        "not_modelled",
        "the allocator gives its cache back: allocation takes time again",
        "empty_unused_memory_level",
    ),
    **silent(
        "not_modelled",
        "kernels that do not depend on the batch: products at lower shares",
        "batch_invariant_mode",
    ),
    **silent(
        "not_modelled",
        "a synchronisation or a pass over gradients that costs well below 1 % of a step",
        """
        check_for_large_grads check_for_spiky_loss log_max_attention_logit moe_input_jitter_eps
        no_barrier_with_level_1_timing qk_clip train_sync_interval
        """,
    ),
    **silent(
        "not_modelled",
        "how shards of weights are gathered and their gradients added up: other buffers, and multiprocessors for messages",
        "gtp_remat_reduce_scatter_with_fp32_accumulation gtp_remat_nccl_ub gtp_expert_remat_nccl_ub",
    ),
    **silent(
        "not_modelled",
        "MTP without gradient into the trunk",
        "mtp_detach_heads mtp_hsm",
    ),
    **silent(
        "not_modelled",
        "histories of maxima: a few bytes a module",
        "fp8_amax_history_len",
        ("1", 1),
    ),
    **silent(
        "not_modelled",
        "a product of FP8 training in another type than the rest",
        "te_precision_config_file use_kitchen_attention",
    ),
    **silent("no_cost_effect", NARROW_WEIGHT_GRADIENTS, "no_fp8_wgrad disable_fp8_wgrad"),
    **silent(
        "not_modelled",
        "a transpose of every FP8 weight that stays, or a buffer that is used again: up to a byte a parameter",
        "keep_fp8_transpose_cache reuse_grad_buf_for_mxfp8_param_ag",
    ),
    **silent(
        "not_modelled",
        "the sizes of gradient buckets: which part of the last reduction is exposed",
        "ddp_num_buckets suggested_communication_unit_size",
    ),
    **silent(
        "not_modelled",
        "how a reduction adds up: a buffer or a pass over gradients more or less",
        """
        ddp_reduce_scatter_with_fp32_accumulation ddp_param_name_patterns_for_fp32_local_accumulation
        no_gradient_reduce_div_fusion
        """,
    ),
    **silent(
        "not_modelled",
        "buffers registered with NCCL: fewer multiprocessors for messages",
        "use_nccl_ub",
    ),
    **silent(
        "not_modelled",
        "two buffers of units in place of one",
        """
        fsdp_double_buffer megatron_fsdp_max_pool_double_buffer fsdp_db_use_persist_buf_on_alloc_fail
        megatron_fsdp_enable_fine_grained_param_gather
        """,
    ),
    **silent(
        "not_modelled",
        "types of Megatron-FSDP's own buffers",
        "megatron_fsdp_main_params_dtype megatron_fsdp_main_grads_dtype megatron_fsdp_grad_comm_dtype",
        ("fp32", "auto"),
    ),
    **silent("no_cost_effect", UPDATE_GRAPH, "optimizer_cuda_graph"),
    **silent(
        "not_modelled",
        "blocks that sort rows inside HybridEP, or beside its exchange; rows padded where ranks have other numbers of tokens",
        "moe_hybridep_num_blocks_permute moe_hybridep_num_blocks_unpermute moe_hybridep_pad_uneven_dispatch_inputs",
    ),
    **silent(
        "not_modelled",
        "tokens travel in 8 bits: half the bytes of the exchange",
        "moe_dispatch_fwd_dtype moe_combine_bwd_dtype",
        ("bf16",),
    ),
    **silent(
        "not_modelled",
        "a copy of the embedding's output",
        "no_clone_scatter_output_in_embedding disable_clone_scatter_output_in_embedding",
    ),
    **silent(
        "not_modelled",
        "the MLP in pieces along the sequence: smaller transients, weights read once a piece",
        "mlp_chunks_for_training",
        ("1", 1),
    ),
    **silent(
        "not_modelled",
        "the type of logits: those of the model's type are counted",
        "output_logit_dtype",
        ("bf16",),
    ),
    **silent(
        "not_modelled",
        "parameters without gradients: no gradients, states or reductions for them",
        "freeze_all_layers freeze_base_for_mtp",
    ),
    **silent(
        "not_modelled",
        "distillation from stored logits: a pass over the vocabulary",
        "logits_load_dir logits_save_dir logits_save_top_k logits_save_top_p",
    ),
    **silent(
        "refused",
        "layers of unequal sizes from a file are not read; --of MODEL takes a model file whose layer_kinds say them",
        "heterogeneous_layers_config_path heterogeneous_layers_config_encoded_json",
    ),
    **silent(
        "not_modelled",
        "another recipe of narrow products (Kitchen): those of fp8_recipe are known",
        "kitchen_config_file kitchen_recipe_number",
    ),
    **silent(
        "not_modelled",
        "ModelOpt: a pass over weights and inputs of every product that is rounded, below 5 % of a step",
        "export_quant_cfg export_real_quant_cfg export_kv_cache_quant",
    ),
    **silent("not_modelled", "a further term of the loss (LLM-jp's fork): a pass over the logits", "use_z_loss"),
    **silent(
        "not_modelled",
        "a teacher's forward in every step: set reference_models",
        "export_kd_teacher_load export_kd_teacher_model_config export_offline_model qad_train_target",
    ),
    **silent(
        "not_modelled",
        "states between chunks of another type: half or twice as many bytes of them",
        "mamba_training_ssm_states_dtype",
    ),
    **silent(
        "not_modelled",
        "the scan in separate kernels that keep more: inputs of the convolution and the gate",
        "disable_mamba_mem_eff_path",
    ),
    **silent(
        "refused",
        "a specification in Python is not read; leave it out, and give the layers by arguments or with --of MODEL",
        "spec",
    ),
    **silent(
        "refused",
        "an encoder before a decoder is not modelled; leave it out for a decoder alone",
        "pipeline_model_parallel_split_rank",
    ),
    **silent(
        "refused",
        "a retriever beside the model is not modelled; leave it out for the decoder alone",
        "retro_add_retriever",
    ),
    **silent(
        "refused",
        "a file of arguments; give it as an input, symsim import megatron FILE, not as an argument",
        "yaml_cfg",
    ),
    **silent(
        "refused",
        "a removed name that Megatron-LM refuses; give tensor_model_parallel_size, micro_batch_size or lr_warmup_fraction",
        "model_parallel_size batch_size warmup",
    ),
}
