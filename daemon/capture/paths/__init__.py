"""Call paths: from stacks of the BPF programs to nodes of the calling context tree."""
