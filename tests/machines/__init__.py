"""Machines that are not like the one at hand: `python -m tests.machines`."""
