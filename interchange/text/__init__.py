"""Formats of call paths as text, and their relatives: collapsed stacks, Austin, speedscope, TAU."""
