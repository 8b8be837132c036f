"""Java: HotSpot's processes are recognised, and their methods named."""
