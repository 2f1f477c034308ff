"""Hugging Face configs read as architectures."""

from symsim.inputs.hf.families import SUPPORTED
from symsim.inputs.hf.reader import read_config

__all__ = ["SUPPORTED", "read_config"]
