"""Pictures of databases: the trace view and its kin."""
