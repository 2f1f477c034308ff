"""Hugging Face configs read as architectures."""

from symsim.hf.families import SUPPORTED
from symsim.hf.reader import read_config

__all__ = ["SUPPORTED", "read_config"]
