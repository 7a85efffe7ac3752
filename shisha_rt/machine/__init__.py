"""The unequal machine: memories and places, from a file or from what this process may use."""
