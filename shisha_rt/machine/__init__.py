"""The unequal machine: memories, places and devices, from a file or from what this process may use. Pure."""
