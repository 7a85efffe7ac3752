"""Shisha's rivals, one file each: what they look at next is theirs, the rest is shared (`search.py`). Pure."""
