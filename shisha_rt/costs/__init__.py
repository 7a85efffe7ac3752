"""What a layer costs on a place, and an operator on a device: read from a file, measured, or by a formula. Pure."""
