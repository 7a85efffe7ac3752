"""Data plane: one worker process for each place. Shell."""
