"""Definitions as one program over arrays, and its printers: NumPy, C, a function of numbers, a module."""
