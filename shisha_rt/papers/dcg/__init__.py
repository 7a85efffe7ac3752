"""Rivals of the DCG papers' placement. Pure."""
