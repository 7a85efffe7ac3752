"""The daemon's child processes, which prepare, profile, search, place, compare and trace, and links to them. Shell."""
