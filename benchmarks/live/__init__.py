"""Benchmarks of the running daemon and its workers."""
