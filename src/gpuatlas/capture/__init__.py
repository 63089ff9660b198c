"""Capture: a training step under Nsight Compute, each launch configuration once or twice, coverage stated.

`timeline` reads what a step launches, `represent` says what a measured launch stands for of it, `cost`,
`plan` and `second` decide what is measured in which order, `ncu` runs the profiler, `program` is what it
profiles, `preflight` says beforehand whether the machine can do it, `join` compares the report with the
timeline, and `run` puts them together.
"""
