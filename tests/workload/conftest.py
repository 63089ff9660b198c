"""Shared pieces of the workload's tests: the reference configurations and formula weights."""

import json

import numpy as np
import pytest
import torch
from tests.workload.reference import REFERENCE


@pytest.fixture(scope="session")
def reference_keys() -> dict[str, dict[str, list[int]]]:
    return json.loads((REFERENCE / "med_ddpm_keys.json").read_text())


@pytest.fixture(scope="session")
def reference_vectors() -> dict[str, np.ndarray]:
    with np.load(REFERENCE / "med_ddpm_vectors.npz") as stored:
        return dict(stored)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Machines that test run other things too: threads that wait for each other would only slow us."""
    torch.set_num_threads(1)
