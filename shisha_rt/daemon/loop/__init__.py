"""What the daemon waits for. Shell."""
