"""Inference engines: the only modules that import one."""
