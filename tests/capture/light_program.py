"""A program as `gpuatlas.capture.program` is for ncu, without torch: a record, a marked range, the closing line."""

import json
import sys
from pathlib import Path

import marked

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
stack = {"name": None, "torch": None, "cudnn": None, "ncu": None}
record = {"schema": 1, "target": job["target"], "gpu": None, "stack": stack, "data_sha256": None}
Path(job["environment"]).write_text(json.dumps(record), encoding="utf-8")
marked.start()
marked.stop()
sys.stdout.write("gpuatlas: the marked step took 2.000 s\n")
