"""DeepSpeed, with the arguments of the Hugging Face Trainer beside it."""
