"""Planners of the pipeline."""
