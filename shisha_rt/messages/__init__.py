"""What the daemon, its workers and one-shot jobs say to each other. Shell."""
