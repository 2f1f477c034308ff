#!/bin/bash
# the command of a run in a variable, as its scripts have it
CACHE=<PATH TO A FOLDER>
IFS=, read -r BATCH EACH <<< "64,2"
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --data.dataset Open-Orca/OpenOrca \
   --data.max_len 2048 \
   --train.batch_size $BATCH \
   --train.micro_batch_size $EACH \
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \
   --model.gradient_checkpointing_enable \
   --ckpt.output_dir $CACHE \
   --ds.zero_stage 3 \
   --ds.param_dtype bf16 \
   --ds.lora.rank 32 \
   --ds.overlap_comm \
   --adam.lr 5e-6
EOF
deepspeed --num_gpus 8 --module $training_commands
