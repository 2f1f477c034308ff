#!/bin/bash
# Qwen2.5-14B on eight A800, packed rows of 8192 tokens, as Megatron-SWIFT ran it in May 2025
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=4

NPROC_PER_NODE=8 \
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
megatron sft \
    --load Qwen2.5-14B-mcore \
    --dataset 'my/instructions#5000' \
              'my/conversations' \
    --tensor_model_parallel_size $TP \
    --sequence_parallel true \
    --micro_batch_size 1 \
    --global_batch_size 16 \
    --packing true \
    --max_length 8192 \
    --recompute_granularity selective \
    --cross_entropy_loss_fusion true \
    --use_flash_attn true \
    --lr 1e-5 --min_lr 1e-6 \
    --save out/$(date +%F)
