"""What addresses belong to: load modules, the kernel's symbols, code made at run time."""
