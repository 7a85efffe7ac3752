"""The live page: the pipeline as it serves and is tuned, in a browser, and the controls of the daemon. Shell."""
