"""The live page: the pipeline while it serves and is tuned, in a browser, and the controls of the daemon. Shell."""
