"""The compiled part of the converter; what else there is to say of the package is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "gpuatlas.ncurep._native",
            ["src/gpuatlas/ncurep/_native.c"],
            py_limited_api=True,
            # Where there is no compiler, the same is done with numpy, slower.
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
