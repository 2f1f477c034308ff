#!/bin/bash
export TOKENIZERS_PARALLELISM=false
BATCH=1
torchrun --nproc_per_node=4 run_llama.py \
    --output_dir ./output \
    --bf16 \
    --per_device_train_batch_size $BATCH --gradient_accumulation_steps 8 \
    --seq_length 2048 \
    --split_method layer_split --partition_method uniform \
    --checkpoint_num_layers 2 \
    --input_name input_ids attention_mask \
    --zero_stage 1 --parallel_vocab True \
    --logging_steps 10
