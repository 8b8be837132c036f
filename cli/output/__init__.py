"""Output of the verbs: progress, tables, hints."""
