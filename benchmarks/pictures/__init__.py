"""Moving pictures of how it works, for `docs/how-it-works.md`: `python -m benchmarks pictures`.

All are drawn from results of the project's own code on a simulated machine: its costs, its planners, its lifecycle in
virtual time. Nothing here has run a network, and the same code writes the same bytes.
"""
