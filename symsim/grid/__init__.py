"""Sweeps: many strategies of one model on one system at once."""
