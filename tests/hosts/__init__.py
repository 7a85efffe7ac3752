"""Places on the nodes of a Ray cluster that is started here, on this host."""
