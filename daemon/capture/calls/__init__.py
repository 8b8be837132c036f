"""Recorded calls: from the programs' ring to the measurement, within their budget."""
