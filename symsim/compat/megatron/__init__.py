"""Megatron-LM (git d98e8a64): what it estimates of itself."""
