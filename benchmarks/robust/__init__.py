"""What the daemon and its readers take without harm: input that nobody should send (`fuzz`), deaths, stops and changes
at random (`campaign`), faults of engines and files (`faults`).
"""
