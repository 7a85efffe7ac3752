"""Shisha's evaluation (2022, sections 5 and 6), repeated on machines on paper: `python -m benchmarks shisha`.

Nothing here has run a network: costs are a roofline's, and what trials take is virtual time. The paper's were
simulated too (gem5), so figures compare as shares and ratios, not as seconds or frames per second.
"""
