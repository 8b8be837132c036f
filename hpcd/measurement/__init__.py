"""The measurement directory: what one recorder wrote on one host. See ``docs/formats.md``."""
