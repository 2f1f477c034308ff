"""Expressions, their units and domains, named definitions, facts, and reductions over stages; how they read and print."""
