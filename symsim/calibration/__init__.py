"""Measured points, and the coefficients of a system fitted to them."""
