"""The worker processes, and the lines to them. Shell."""
