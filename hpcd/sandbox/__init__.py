"""Processes that read hostile files: unprivileged, bounded, expendable.

Files of others are never parsed in a privileged or long-lived process. A crash, a hang or too large
a memory request costs only the file being read; the worker is replaced.
"""
