"""Shisha's rivals."""
