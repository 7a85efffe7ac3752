"""Stages as a worker builds them. Shell."""
