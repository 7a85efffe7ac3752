"""Several models on one machine: a host process has a daemon for each, leads clients there and deals places. Shell."""
