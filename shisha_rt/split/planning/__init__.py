"""Plans with layers split, from what layers cost. Pure."""
