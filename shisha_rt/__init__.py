"""shisha-rt: an online auto-tuning inference daemon for unequal hardware (control plane)."""

__version__ = "0.1.0"
