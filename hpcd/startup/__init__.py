"""Starting a process: where modules come from, and how fast they are imported.

A recording begins before numpy is imported: the modules that take part until then do without it, a
list that ``tests/unit/setup/test_startup.py`` keeps.
"""
