#!/bin/bash
# Qwen3-8B with GRPO on two nodes
set -ex
if [ -z "${BASE_FOLDER}" ]; then
  echo "BASE_FOLDER is not set"
  exit 1
fi
MODEL_ARGS=(
   --disable-bias-linear --qk-layernorm --group-query-attention --swiglu --untie-embeddings-and-output-weights
   --num-layers 36 --hidden-size 4096 --ffn-hidden-size 12288 --num-attention-heads 32 --num-query-groups 8 --kv-channels 128
   --normalization RMSNorm --position-embedding-type rope --rotary-base 1000000 --vocab-size 151936
)
CKPT_ARGS=(--hf-checkpoint ${BASE_FOLDER}/Qwen3-8B --load ${BASE_FOLDER}/Qwen3-8B_slime --save-interval 20)
ROLLOUT_ARGS=(
   --prompt-data ${BASE_FOLDER}/math.jsonl --input-key prompt --rm-type deepscaler
   --num-rollout 1000 --rollout-batch-size 32 --n-samples-per-prompt 8 --num-steps-per-rollout 2
   --rollout-max-response-len 8192 --rollout-temperature 1 --balance-data
)
PERF_ARGS=(
   --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2
   --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
   --use-dynamic-batch-size --max-tokens-per-gpu 9216
)
GRPO_ARGS=(--advantage-estimator grpo --use-kl-loss --kl-loss-coef 0.00 --entropy-coef 0.00 --eps-clip 0.2)
SGLANG_ARGS=(--rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7)
MISC_ARGS=(--attention-dropout 0.0 --hidden-dropout 0.0 --accumulate-allreduce-grads-in-fp32 --attention-backend flash)
ray start --head --num-gpus 8
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \
   --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate \
   ${MODEL_ARGS[@]} ${CKPT_ARGS[@]} ${ROLLOUT_ARGS[@]} ${PERF_ARGS[@]} ${GRPO_ARGS[@]} ${EVAL_ARGS[@]} ${SGLANG_ARGS[@]} ${MISC_ARGS[@]}
