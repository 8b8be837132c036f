"""Findings: sentences on what stands out in a recording, by what threads' time was used for."""
