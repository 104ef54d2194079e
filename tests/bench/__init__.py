"""Benchmarks: ratios measured in one run, beside what the same servers do without us; never asserted."""
