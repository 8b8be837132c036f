"""Starting a recording: its options, its programs, its parts put together."""
