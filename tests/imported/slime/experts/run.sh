# Qwen3-30B-A3B, whose arguments are in a file that is not here
SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/qwen3-30B-A3B.sh"
ARGS=(
   --hf-checkpoint /root/Qwen3-30B-A3B
   --global-batch-size 128 --micro-batch-size 2 --rollout-batch-size 64 --n-samples-per-prompt 4
   --rollout-max-prompt-len 1024 --rollout-max-response-len 3072
   --tensor-model-parallel-size 4 --sequence-parallel --expert-model-parallel-size 8 --expert-tensor-parallel-size 1
   --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer
)
python3 train.py --actor-num-nodes 4 --actor-num-gpus-per-node 8 ${MODEL_ARGS[@]} "${ARGS[@]}"
