"""Recordings of perf: perf.data and the text of ``perf script``."""
