"""ms-swift: Megatron-SWIFT, and its trainer with DeepSpeed or FSDP."""
