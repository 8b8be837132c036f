"""The first stage of a merge: measurements, read once, become parts."""
