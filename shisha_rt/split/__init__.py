"""Splitting one layer over several places: what shares cost, which are best, and how a graph is rewritten. Pure."""
