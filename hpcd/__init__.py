"""hpcd: call path tracing of running programs, by eBPF, without relaunch or frame pointers."""

__version__ = "0.1.0"
