"""Orders of the layers other than the file's."""
