"""Schedules as closed forms, the stages they cut, and the orders they stand for."""
