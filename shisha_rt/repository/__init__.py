"""Several models on one machine: a host process runs a daemon for each, directs clients to it, deals places. Shell."""
