"""Profiles of one database: views, filters, formulas, costs, annotated code.

:func:`views.make_view` makes trees of procedures (top-down, bottom-up, flat, by line, by loop) from
contexts and what they cost; ``report`` prints them. Whatever compares ranks or several databases is
:mod:`hpcd.analysis.parallel`'s.
"""
