"""Slower places than this host has: the real computation, and then a wait. Shell."""
