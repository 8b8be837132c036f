"""HPCToolkit's databases, version 4: written and read."""
