"""Costs: files, and what follows from them."""
