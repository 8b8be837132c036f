"""The kernel side: eBPF programs, their maps and ring buffers, what loads and attaches them.

``programs`` holds the C sources, ``loading`` what loads them and what this machine can do.
:class:`sampler.Sampler` is what the recorder uses.
"""
