"""Threads and processes of a recording: when they live, and what their time was."""
