"""Frames that were looked at closely, as spans to an OTLP receiver: a process of its own. Shell."""
