"""What a user gives: architectures, strategies, systems, assumptions; how their files are read."""
