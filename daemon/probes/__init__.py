"""Probes: functions of programs and libraries whose calls are recorded."""

from pathlib import Path

SETS = Path(__file__).parent / "sets"
"""The sets of probes that hpcd brings."""


def set_names() -> list[str]:
    """Their names."""
    return sorted(path.stem for path in SETS.glob("*.toml"))
