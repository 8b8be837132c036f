"""Programs that record calls: of functions, system calls and memory."""
