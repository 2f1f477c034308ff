"""Answers as files that other systems start from."""
