"""CPython: from its evaluation loop on the C stack to functions, files and lines."""
