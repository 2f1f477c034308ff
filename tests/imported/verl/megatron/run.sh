#!/usr/bin/env bash
NNODES=${NNODES:-4}
ACTOR_EP=${ACTOR_EP:-8}
OFFLOAD="actor_rollout_ref.actor.megatron"
ray job submit -- python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer' \
    data.max_prompt_length=2048 data.max_response_length=8192 \
    actor_rollout_ref.model.path="Qwen/Qwen3-30B-A3B-Base" \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480 \
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=1 \
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null \
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=${ACTOR_EP} \
    actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1 \
    ${OFFLOAD}.param_offload=True ${OFFLOAD}.optimizer_offload=True \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1 \
    +actor_rollout_ref.actor.megatron.override_transformer_config.moe_router_dtype=fp32 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=16 \
    trainer.n_gpus_per_node=8 trainer.nnodes=$NNODES
