"""What a layer costs on a place: read from a file, or (later) modelled and measured."""
