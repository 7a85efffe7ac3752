"""The HTTP process: its routes, its guard, its life."""
