"""The Open Inference Protocol over HTTP and the live page: a process of its own, and a client of the daemon. Shell."""
