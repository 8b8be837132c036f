"""The measurement directory: data that one recorder wrote on one host. See ``docs/formats.md``."""
