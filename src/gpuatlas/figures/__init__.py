"""Figures: one module and one function each, drawn from results/compare/ and results/claims/ alone."""

FIGURES = (
    "study_matrix",
    "kernel_breakdown",
    "instruction_mix",
    "pipe_utilization",
    "stalls",
    "memory",
    "occupancy_ipc",
    "roofline",
    "priority",
    "claims_overview",
)
"""Names of the figures, in the order of the report; each is also the name of its module and its files."""

CLAIM_FIGURES = ("pipe_utilization", "claims_overview")
"""Those that also show what the claims report or how they were judged."""
