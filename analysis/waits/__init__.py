"""Sums of waits by their wakers, and by the causes at the ends of chains of waits."""
