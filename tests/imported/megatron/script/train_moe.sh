#!/bin/bash
#SBATCH --job-name=moe-16e
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --exclusive

set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_SL=1

RUN_NAME=${RUN_NAME:-moe-16e}
TP=${TP:-2}
PP=${PP:-2}
EP=${EP:-8}
SEQ_LEN=4096
GPUS_PER_NODE=8
NODES=${SLURM_NNODES:-4}
WORLD_SIZE=$((GPUS_PER_NODE * NODES))
DP=$(( WORLD_SIZE / (TP * PP) ))
GBS=$((DP * 16))
OUT=/lustre/runs/${RUN_NAME}
DATA_PATH=$1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

mkdir -p "$OUT/logs" || exit 1

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NODES
    --rdzv_backend c10d
    --rdzv_endpoint "$MASTER_ADDR:29400"
)

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 24
    --hidden-size 2048
    --ffn-hidden-size 8192        # the first layers are dense
    --num-attention-heads 16
    --group-query-attention
    --num-query-groups 4
    --seq-length $SEQ_LEN
    --max-position-embeddings $SEQ_LEN
    --position-embedding-type rope
    --rotary-base 500000
    --swiglu
    --normalization RMSNorm
    --qk-layernorm
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --vocab-size 100000
    --tokenizer-type NullTokenizer
)

MOE_ARGS=(
    --num-experts 16
    --moe-layer-freq "'([0]*2+[1]*22)'"   # the quotes are for bash -c
    --moe-ffn-hidden-size 1024
    --moe-router-topk 4
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --moe-permute-fusion
    --moe-token-dispatcher-type flex
    --moe-flex-dispatcher-backend deepep
    --moe-shared-expert-intermediate-size 1024
)

PARALLEL_ARGS=" \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --expert-model-parallel-size $EP --expert-tensor-parallel-size 1 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
if [ "$TP" -gt 1 ]; then
    PARALLEL_ARGS="$PARALLEL_ARGS --sequence-parallel"
fi

TRAIN_ARGS=(
    --micro-batch-size 1 --global-batch-size $GBS
    --train-iters 20000
    --bf16
    --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95
    --lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine --lr-warmup-iters 500
    --weight-decay 0.1 --clip-grad 1.0
    --recompute-granularity selective --recompute-modules moe_act layernorm
    --cross-entropy-loss-fusion --cross-entropy-fusion-impl te
    --manual-gc --manual-gc-interval 100
)

case "$RUN_NAME" in
    *fp8*) TRAIN_ARGS+=(--fp8-format hybrid --fp8-recipe blockwise) ;;
esac
[[ -n "${WANDB_API_KEY:-}" ]] && TRAIN_ARGS+=(--wandb-project moe --wandb-exp-name "$RUN_NAME")

CMD="torchrun ${DISTRIBUTED_ARGS[*]} pretrain_gpt.py ${MODEL_ARGS[*]} ${MOE_ARGS[*]} $PARALLEL_ARGS ${TRAIN_ARGS[*]} \
    --data-path $DATA_PATH --split 99,1,0 --save $OUT/ckpt --load $OUT/ckpt --save-interval 1000 \
    --log-interval 10 --tensorboard-dir $OUT/logs --distributed-timeout-minutes 30"

srun --label bash -c "$CMD" 2>&1 | tee "$OUT/logs/train.log"
