#!/bin/bash
#SBATCH --nodes=2
GPUS=8
BATCH=128
STEPS=$(($BATCH / ($GPUS * ${SLURM_NNODES:-2}) / 2))
accelerate launch --config_file configs/fsdp.yaml \
    --num_machines ${SLURM_NNODES:-2} --num_processes $(($GPUS * ${SLURM_NNODES:-2})) --machine_rank $SLURM_PROCID \
    scripts/sft.py \
    --model_name_or_path Qwen/Qwen3-8B --bf16 --packing \
    --per_device_train_batch_size 2 --gradient_accumulation_steps $STEPS \
    --max_length 4096 --learning_rate 1e-5 --num_train_epochs 2 \
    --output_dir $1
