"""Recorded calls: from the programs' ring to the measurement, within what they may cost."""
