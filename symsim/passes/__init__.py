"""Passes over blocks, in the order `lower.py` runs them."""
