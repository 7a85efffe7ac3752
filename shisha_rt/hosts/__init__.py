"""Places on other hosts, by Ray: what they ask for, who has it, what becomes of it. Only `hosts/process.py` and what
it starts on those hosts know Ray. Shell.
"""
