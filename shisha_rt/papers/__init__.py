"""What papers compare with and repeat: rivals, literal forms, studies and their commands.

No other package imports any of it: what is wanted is loaded by name (`shisha_rt/studies.py`). Shell.
"""
