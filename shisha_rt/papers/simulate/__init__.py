"""Simulated machines: an `Evaluator` like the live one, in virtual time. Nothing here runs a network. Pure."""
