"""Ring buffers of the programs, emptied in bulk."""
