"""Graph tests: tiny networks with hand-computed answers, and the zoo."""
