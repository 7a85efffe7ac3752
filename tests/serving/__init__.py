"""Real daemons with real workers and sockets: what they promise, under load, under fire and at their end."""
