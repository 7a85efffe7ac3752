"""The simulated machine: its costs, its machines and its virtual time."""
