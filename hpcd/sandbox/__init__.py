"""Processes that read what is hostile: unprivileged, bounded, expendable.

Files of others are never parsed in a process that has something to lose. What crashes, hangs or
requests too much memory costs the file it was working on, and is replaced.
"""
