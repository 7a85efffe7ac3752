"""Frames that were traced, as spans to an OTLP receiver: a process of its own. Shell."""
