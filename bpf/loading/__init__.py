"""Loading the BPF programs: libbpf with an object compiled ahead, or bcc with kernel headers.

:func:`loader.load_sampler` chooses; ``features`` says what this machine can do.
"""
