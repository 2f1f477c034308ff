"""Blocks of operations over named dimensions: the notation, and the table of operations."""
