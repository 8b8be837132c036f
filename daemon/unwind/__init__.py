"""Unwind tables: from a load module's file to rows that say how to step out of any instruction."""

DECODER = ("-m", "hpcd.daemon.unwind.decoder_worker")
"""The module that Python runs as the decoder."""
