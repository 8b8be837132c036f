"""Owners and names of addresses: load modules, the kernel's symbols, code made at run time."""
