"""What plan is to run: searches followed live, plans of the daemon's own, operators placed anew. Pure."""
