"""Names of addresses: symbol tables, demangling.

:func:`symbolization.symbolize` names all addresses of one module at once. Source lines, inlined
calls and loops are :mod:`hpcd.analysis.structure`'s; names of whole trees are made by the merge.
"""
