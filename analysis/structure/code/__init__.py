"""Analysis of machine code: functions, control flow, loops, procedures that never return.

The rest of :mod:`hpcd.analysis.structure` uses ``loop_table``. Each instruction set has a module of
its own: ``x86`` and ``arm64``.
"""
