"""A selection as tables: CSV, Parquet, Arrow, data frames, Hatchet."""
