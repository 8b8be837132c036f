"""The kernel's side: eBPF programs, their maps and rings, and what loads and attaches them."""
