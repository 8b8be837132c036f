"""The measurement directory: what one recorder wrote on one node. See ``docs/formats.md``."""
