"""Counts, bytes, memory and seconds of lowered blocks, as named definitions."""
