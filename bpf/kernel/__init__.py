"""The kernel's interfaces: system calls, libbpf, maps, sysfs, privileges."""
