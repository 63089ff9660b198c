"""Capture: a training step under Nsight Compute, each launch configuration once, coverage stated.

`timeline` reads what a step launches, `cost` and `plan` decide what is measured in which order, `ncu` runs
the profiler, `program` is what it profiles, `preflight` says beforehand whether the machine can do it, `join`
compares the report with the timeline, and `run` puts them together.
"""
