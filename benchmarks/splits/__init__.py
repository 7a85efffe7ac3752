"""Split layers: the accuracy of their cost models, and the GP paper's experiments repeated."""
