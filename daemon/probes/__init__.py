"""Probes: functions of programs and libraries whose calls are recorded."""
