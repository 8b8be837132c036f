"""pprof profiles: written, read, and pushed to receivers."""
