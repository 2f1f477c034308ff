"""The version of symsim."""

__version__ = "0.1.0"
