"""Sums waits by who ended them and by what those in turn waited for."""
