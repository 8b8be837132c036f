"""The present stacks of threads, and what each thread waits for.

``stack_reader`` makes a snapshot: the iterator's records (``hpcd.bpf.task_stacks``), walked and
placed in load modules, with the waits that ``wait_reasons`` finds in registers, memory and /proc.
"""
