"""Orders of the layers other than the file's: which one leads to the best chain, and by how much. Pure."""
