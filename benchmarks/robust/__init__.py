"""What the daemon and its readers take without harm: input that nobody should send (`fuzz`), deaths, stops and changes
at random (`campaign`, beside another server `rivals`), faults of engines and files (`faults`), and more than can be
answered over more connections than behave (`overload`).
"""
