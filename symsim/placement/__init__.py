"""Names on a mesh: where every dimension and every store of parameters lies."""
