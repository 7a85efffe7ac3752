"""Split layers: what their cost models are worth, and the GP paper's experiments repeated."""
