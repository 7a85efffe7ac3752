"""A model made ready on a machine: compiled, profiled, its costs and best plans stored; no daemon needed. Shell."""
