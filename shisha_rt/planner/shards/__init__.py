"""Plans with layers split, from what layers cost: exact shares, and where they go. Pure."""
