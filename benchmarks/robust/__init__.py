"""Robustness of the daemon and its readers: malformed input (`fuzz`); deaths, stops and changes at random (`campaign`,
and compared with another server `rivals`); faults of engines and files (`faults`); and more frames than can be
answered, over connections many of which misbehave (`overload`).
"""
