#!/bin/sh
torchrun --nproc_per_node 8 --nnodes 2 --node_rank ${RANK:-0} pretrain_gpt.py $1
