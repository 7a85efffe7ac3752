"""A place on another host: a relay stands for it here, and its far end has the worker there. Shell."""
