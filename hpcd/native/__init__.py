"""What is done with each record, compiled from C ahead of time; numpy does the same without it."""
