"""A machine on paper: the same `Evaluator` as the live one, in virtual time. Nothing here runs a network. Pure."""
