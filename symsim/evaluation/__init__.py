"""A derivation at given sizes: numbers, the object of --json, and what is said about them."""
