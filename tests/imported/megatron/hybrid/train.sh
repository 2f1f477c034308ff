#!/bin/bash
PATTERN="M-M*|M-M-|M*M-|M-ME"
ARGS=(
    --hybrid-layer-pattern "$PATTERN" --hidden-size 1024 --num-attention-heads 16 --group-query-attention --num-query-groups 4
    --mamba-head-dim 64 --mamba-state-dim 128 --mamba-num-groups 8 --squared-relu --disable-bias-linear --normalization RMSNorm
    --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall --moe-grouped-gemm --expert-model-parallel-size 2
    --position-embedding-type none --untie-embeddings-and-output-weights --vocab-size 32000 --hidden-dropout 0 --attention-dropout 0
    --is-hybrid-model --spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec
)
torchrun --nproc_per_node 8 pretrain_hybrid.py "${ARGS[@]}" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --bf16 --sequence-parallel --use-distributed-optimizer
