"""Reproductions of papers: rivals, methods in their literal forms, studies and their commands.

No other package imports it; modules are loaded by name (`shisha_rt/studies.py`). Shell.
"""
