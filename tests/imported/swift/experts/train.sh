export NNODES=2 NPROC_PER_NODE=8
ARGUMENTS=(
    --model Qwen/Qwen3-30B-A3B
    --tuner_type full
    --pipeline_model_parallel_size 2
    --expert_model_parallel_size 8
    --moe_permute_fusion true
    --moe_shared_expert_overlap true
    --moe_aux_loss_coeff 1e-3
    --optimizer_cpu_offload true
    --use_precision_aware_optimizer true
)
megatron sft "${ARGUMENTS[@]}" \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \
    --global_batch_size 32 \
    --max_length 4096 \
    --num_train_epochs 1 \
    --output_dir out
