"""What commands do with a daemon: start one, reach one, send it frames. Shell."""
