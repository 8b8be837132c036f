"""hpcd: call path tracing of running programs, by eBPF, without relaunch or frame pointers."""

try:
    # Written when hpcd is built or installed, from the tags of its repository.
    from hpcd._version import __version__
except ImportError:
    __version__ = "0.1.0"

__all__ = ["__version__"]
