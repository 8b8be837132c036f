"""The loop of a recording: rings emptied, records written, rates adapted, an account at the end."""
