"""The poller, signals and interpreter settings of the daemon's loop. Shell."""
