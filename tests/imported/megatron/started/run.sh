#!/bin/bash
# run.sh SIZE TP PP [further arguments]
usage() { echo "usage: $0 SIZE TP PP"; exit 1; }
[ $# -lt 3 ] && usage
SIZE=$1
TP=${2:-1}
shift 2
PP=$1; shift
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "${HERE}/sizes.sh"
. ./cluster.sh || true
sizes_of $SIZE

cat > $HERE/model.yaml <<EOF
language_model:
  num_layers: ${LAYERS}
EOF

BATCH=${BATCH:-$((WORLD_SIZE / (TP * PP) * 8))}
ARGS="--num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS --ffn-hidden-size $WIDE --swiglu"
ARGS+=" --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --normalization RMSNorm"
for name in disable-bias-linear bf16 use-distributed-optimizer; do
    ARGS="$ARGS --$name"
done
while [[ $# -gt 0 ]]; do
    case $1 in
        --recompute) ARGS+=" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"; shift ;;
        *) ARGS+=" $1"; shift ;;
    esac
done

bash ./start.sh "$ARGS --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
    --micro-batch-size 1 --global-batch-size $BATCH"
