"""Grids of configurations: what varies, what is asked, how it is searched, kept and shown."""
