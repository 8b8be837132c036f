"""Arrow IPC files; see :mod:`.arrow_tables`."""

from hpcd.interchange.arrow_tables import write_arrow as write

__all__ = ["write"]
