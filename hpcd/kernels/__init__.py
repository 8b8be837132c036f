"""Kernels: the code that runs for every record, compiled from the C in ``sources``.

:data:`hpcd.kernels.library.kernels` has them by name; ``sources/kernels.h`` declares them.
"""
