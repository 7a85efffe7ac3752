"""Benchmarks by models and simulation: only planners and the daemon's cores run."""
