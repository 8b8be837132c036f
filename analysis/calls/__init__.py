"""Results of recorded calls: totals and bandwidth by function, file, peer or call path."""
