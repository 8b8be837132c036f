"""Bulk arrays: column files, archives, reading ahead, sparse sums.

Knows nothing of traces or trees: numbers, where they lie in files, and how they are added up.
Public: :mod:`column_files <hpcd.analysis.arrays.column_files>`,
:mod:`archive <hpcd.analysis.arrays.archive>`, :mod:`read_ahead <hpcd.analysis.arrays.read_ahead>`,
:mod:`sparse_sums <hpcd.analysis.arrays.sparse_sums>`.
"""
