"""Makes Python as bare as a GPU machine without the workflow's environment: only what captures may need."""

import sys
from importlib.abc import MetaPathFinder

MISSING = {"snakemake", "pandas", "matplotlib", "jsonschema", "nibabel", "jinja2", "ncu_report"}


class _Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r} on this machine", name=name)


sys.meta_path.insert(0, _Missing())
