"""Unwind tables: from a load module's file to rows that say how to step out of any instruction."""
