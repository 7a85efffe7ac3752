"""What a layer costs on a place: read from a file, or measured (signatures, the store, the fit) and modelled."""
