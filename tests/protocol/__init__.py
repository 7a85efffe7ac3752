"""Tests of what strangers send and receive."""
