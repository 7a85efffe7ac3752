"""Benchmarks of places on other hosts: raylets behind slow links, on this host."""
