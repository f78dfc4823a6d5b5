"""Speed, side by side with peers in one run: `python -m benchmarks --help`.

Every comparison is a file of `benchmarks/comparisons` with a function `run`; what it measured goes to results/ as JSON,
and the tables and plots are made from there. Bare times of two machines, or of two hours on one, cannot be compared:
so a row is a ratio of two things timed in turns in the same run.
"""
