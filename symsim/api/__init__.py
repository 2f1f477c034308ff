"""What users call: the command line, and Python."""
