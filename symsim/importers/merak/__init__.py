"""Merak."""
