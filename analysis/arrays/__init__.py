"""Bulk arrays: column files, archives, reading ahead, sparse sums.

Independent of traces and trees: numbers, their places in files, and sums of them.
Public: :mod:`column_files <hpcd.analysis.arrays.column_files>`,
:mod:`named_arrays <hpcd.analysis.arrays.named_arrays>`,
:mod:`read_ahead <hpcd.analysis.arrays.read_ahead>`,
:mod:`sparse_sums <hpcd.analysis.arrays.sparse_sums>`.
"""
