"""The compiled part of the converter; what else there is to say of the package is in pyproject.toml."""

import hashlib
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

# One build for every Python from 3.11 on, but for those without the GIL.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
LIMITED_API = [("Py_LIMITED_API", "0x030B0000")] if STABLE else []
SOURCE = "src/gpuatlas/ncurep/_native.c"
DIGEST = hashlib.sha256(Path(SOURCE).read_bytes()).hexdigest()

setup(
    ext_modules=[
        Extension(
            "gpuatlas.ncurep._native",
            [SOURCE],
            # What it was built from: one of another source is not used.
            define_macros=[("SOURCE_SHA256", f'"{DIGEST}"'), *LIMITED_API],
            py_limited_api=STABLE,
            # Where there is no compiler, the same is done with numpy, slower.
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
)
