"""Declared blocks to kernels with their messages, transposes and what is kept: one function a pass."""
