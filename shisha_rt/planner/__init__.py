"""Which layers form which stage on which place: the seed, and what improves it. Pure."""
