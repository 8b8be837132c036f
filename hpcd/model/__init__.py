"""Plain data both sides of every format share: frames, calling context trees, identities."""
