# What must hold before Snakemake reads the configuration: a readable config.yaml and a folder to write into.
import os
import sys
from pathlib import Path

from gpuatlas import console
from gpuatlas.config import read_yaml
from gpuatlas.errors import GpuatlasError

try:
    read_yaml(Path("config/config.yaml"))
    results = Path("results")
    if results.exists() and not results.is_dir():
        raise GpuatlasError("results: is a file, and a folder is needed there; move it away")
    if not os.access(results if results.exists() else Path(), os.W_OK):
        raise GpuatlasError("results: this folder cannot be written; change its rights or run elsewhere")
except GpuatlasError as error:
    console.fail(str(error))
    sys.exit(error.exit_code)
