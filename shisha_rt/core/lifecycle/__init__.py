"""What becomes of frames, epochs and workers: events in, instructions out. Pure."""
