"""shisha-rt: an online auto-tuning inference daemon for unequal hardware (control plane). Shell."""

__version__ = "0.1.0"
