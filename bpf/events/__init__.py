"""Perf events: by name, as clock, and changes of mappings."""
