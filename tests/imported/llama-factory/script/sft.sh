#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
MODEL=${1:-meta-llama/Llama-2-7b-hf}
OUT=saves/$(basename $MODEL)
cat > ds_config.json <<EOF
{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
 "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8, "contiguous_gradients": true}}
EOF
mkdir -p "$OUT"
deepspeed --num_gpus 8 --master_port=9901 src/train.py \
    --deepspeed ds_config.json --stage sft --do_train True \
    --model_name_or_path $MODEL \
    --dataset alpaca_en --template llama2 \
    --finetuning_type lora --lora_target q_proj,v_proj --lora_rank 16 \
    --cutoff_len 2048 --per_device_train_batch_size 4 --gradient_accumulation_steps 4 \
    --learning_rate 5e-5 --num_train_epochs 3.0 --gradient_checkpointing \
    --output_dir "$OUT" --bf16 2>&1 | tee $OUT/log.txt
