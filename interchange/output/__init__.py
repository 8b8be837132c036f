"""Shared by all exports: the selection, its contexts and its records."""
