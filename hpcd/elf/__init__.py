"""ELF files and LEB128 numbers, read as hostile input: shared by recorder and analysis."""
