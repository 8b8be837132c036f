"""Reading a database: :func:`open` gives a :class:`Database`.

Everything here is read only, and imports nothing of the merge. Its directory is ``directory``, the
SQLite tables ``schema``; ``metrics``, ``statistics`` and ``scopes`` are what a :class:`Database`
has under these names; ``check`` verifies all of it. Writing one is :mod:`hpcd.analysis.merge`.
"""

from hpcd.analysis.database.database import Database, open

__all__ = ["Database", "open"]
