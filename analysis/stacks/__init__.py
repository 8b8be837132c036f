"""Present stacks of threads: named, merged into a tree, and what stands out among them.

Works on :class:`hpcd.model.stack_snapshot.StackSnapshot`; nothing here needs a measurement.
"""
