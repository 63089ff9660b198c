# gpuatlas: `make demo` runs the study from recorded captures, `make test` runs every check.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup demo test lint bench soak lock clean

PYTHON ?= python3
CORES ?= $(shell nproc)
TORCH ?= torch==2.13.0
# Where pip finds torch, for instance https://download.pytorch.org/whl/cpu for the small CPU build.
TORCH_INDEX ?=
BIN := .venv/bin
# Snakemake and its jobs find this environment's programs first.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# The programs of an environment name its place: one that was moved with its checkout is made again.
$(shell [ ! -e .venv/bin/pip ] || head -3 .venv/bin/pip | grep -qF '$(CURDIR)/.venv/' || rm -f .venv/.complete)

setup: .venv/.installed

# torch comes first and without hashes, so that pip may take a CPU build where one is offered.
.venv/.complete: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpuatlas needs Python 3.11 or later: make PYTHON=/path/to/python3.12 setup")'
	@echo "Setting up .venv (once; some minutes, about 2 GB with a CPU build of torch)"
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@touch $@

# Apart, since it also compiles: where there is no compiler, the converter is slower and the rest as fast.
.venv/.installed: .venv/.complete setup.py src/gpuatlas/ncurep/_native.c
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -c 'from gpuatlas.ncurep.metrics import COMPILED as c; \
		print("The converter is compiled." if c else "The converter is not compiled, and about half as fast: \
	there is no C compiler or no Python.h here. When there is: touch setup.py && make setup")'
	@touch $@

demo: setup
	snakemake --profile profiles/local --cores $(CORES)
	@echo "Open results/report.html"

test: lint
	pytest

lint: setup
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	lint-imports
	snakemake --lint

# The other benchmarks need a GPU: benchmarks/workload.md and docs/capture.md say how to run them.
bench: setup
	python benchmarks/bench_convert.py

soak: setup
	pytest -m soak

# torch and what its CUDA builds bring are left out of the lock: see setup.
NOT_LOCKED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cccl nvidia-cuda-cupti \
	nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver \
	nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx

lock:
	uv pip compile pyproject.toml --extra train --extra dev --extra nvidia --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --upgrade $(addprefix --no-emit-package ,$(NOT_LOCKED)) \
		--output-file requirements.lock

clean:
	rm -rf .snakemake results logs
