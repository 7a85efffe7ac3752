"""Machine files, device descriptions and the shipped ones, read. Shell."""
