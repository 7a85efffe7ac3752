"""Shisha's evaluation (2022, sections 5 and 6), repeated on simulated machines: `python -m benchmarks shisha`.

No network has run: costs are a roofline's, and trials take virtual time. The paper's were simulated, too (gem5), so
shares and ratios are comparable, but not seconds or frames per second.
"""
