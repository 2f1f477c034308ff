"""slime."""
