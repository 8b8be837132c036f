"""What recorded calls tell: totals and bandwidth by function, file, peer or call path."""
