"""Orders of layers other than the file's: which one allows the best chain, and how much better it is. Pure."""
