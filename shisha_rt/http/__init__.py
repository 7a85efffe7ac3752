"""The Open Inference Protocol over HTTP and gRPC, and the page: a process of its own, a client of the daemon. Shell."""
