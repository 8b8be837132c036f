"""What machine code says: functions, control flow, loops, procedures that never return.

``loop_table`` is what the rest of :mod:`hpcd.analysis.structure` asks. One module an instruction
set: ``x86`` and ``arm64``.
"""
