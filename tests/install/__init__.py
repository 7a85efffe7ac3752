"""The worked examples, as a stranger runs them."""
