"""Languages' runtimes whose frames are shown in call paths: one package for each.

A runtime recognises its processes as their mappings are found out, writes what the version needs
for the programs that walk stacks (``bpf/programs/runtimes``), which put words of its frames into
paths, and turns these words into frames of load modules: a source file, a function, a line.
"""
