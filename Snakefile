# The study; the workflow itself lies in workflow/.
include: "workflow/Snakefile"


workflow.default_target = "all"
