"""Which operator runs on which device of a place, transfers counted. Pure."""
