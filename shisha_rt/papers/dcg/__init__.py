"""Rivals of the placement methods of the DCG papers. Pure."""
