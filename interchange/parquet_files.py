"""Parquet files; see :mod:`.arrow_tables`."""

from hpcd.interchange.arrow_tables import write_parquet as write

__all__ = ["write"]
