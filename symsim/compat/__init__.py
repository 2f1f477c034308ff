"""What other systems compute for the same job: each of their differences from symsim a named row of options."""
