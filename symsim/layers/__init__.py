"""Layers: each file declares one, as operations over named dimensions; none knows of any strategy."""
