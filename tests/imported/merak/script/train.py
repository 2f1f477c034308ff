import os

import Merak
import torch
from dataset import PackedText
from Merak import MerakArguments, MerakTrainer, init_empty_weights
from transformers import GPT2Config, GPT2LMHeadModel

HIDDEN = 64 * 32


def main():
    # four stages of two tensor ranks each, twice
    pp = 4
    tp = 2
    dp = 2
    Merak.init(pp, tp, dp)

    config = GPT2Config(n_layer=24, n_embd=HIDDEN, n_head=16, vocab_size=50304, n_positions=1024)
    config._attn_implementation = "eager"
    with init_empty_weights():
        model = GPT2LMHeadModel(config)

    training_args = MerakArguments(
        output_dir=os.environ.get("OUTPUT", "./output"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=16,
        fp16=True,
        train_schedule="shifted_critical_path",
        split_method="layer_split",
        activation_checkpoint_ratio=[0.8],
        learning_rate=1.5e-4,
        max_steps=10_000,
        wall_clock_breakdown=False,
    )
    trainer = MerakTrainer(model=model, args=training_args, train_dataset=PackedText("/data/text"), loss_fn=torch.nn.CrossEntropyLoss())
    trainer.train()


if __name__ == "__main__":
    main()
