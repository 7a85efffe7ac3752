"""The commands, run in this process."""
