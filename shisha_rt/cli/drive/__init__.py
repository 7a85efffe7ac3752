"""What commands do to a daemon: start one, reach one, send it frames. Shell."""
