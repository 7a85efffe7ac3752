"""Places on other hosts, through Ray: what they request, which host has them, and what happens to them. Only
`hosts/process.py`, and what it starts on those hosts, use Ray. Shell.
"""
