"""The worker processes, and the channels to them. Shell."""
