"""Shisha's rivals, one file each: each chooses what to try next, the rest is shared (`search.py`). Pure."""
