"""Benchmarks on paper: nothing runs but planners."""
