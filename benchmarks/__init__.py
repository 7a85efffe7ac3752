"""The short benchmarks: what the pipeline costs beyond its stages, and what a change of plan costs.

Every figure is a ratio of sides that took turns in one run, the median of several rounds; absolute times are of the
machine that the header of each result names.
"""
