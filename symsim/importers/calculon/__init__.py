"""Calculon (git caa4b11)."""
