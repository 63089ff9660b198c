"""Kernel classes: what a kernel does, told from its demangled name."""

import re
from functools import lru_cache

from gpuatlas.compare import catalog
from gpuatlas.names import normalise

CONVOLUTION = ("conv_fprop", "conv_dgrad", "conv_wgrad", "conv_other")


@lru_cache(maxsize=65536)
def classify(demangled: str) -> str:
    """Return the class of a kernel: the first of the catalogue whose pattern its demangled name matches."""
    return next(c.name for c in catalog.load().classes if c.pattern.search(demangled))


_NOISE = re.compile(
    r"(at::native::|\{anonymous\}::|<unnamed>::|cudnn::|engines_precompiled::|internal::|ops::|cnn::)"
)
_FUNCTOR = re.compile(r"(\w+?)(?:_kernel_cuda|_kernel|Functor_\w+|Functor|KernelImplInternal)\b")


def short_name(demangled: str, width: int = 44) -> str:
    """Return a label for a kernel that fits in a figure: without namespaces, arguments and tile details.

    Parameters
    ----------
    demangled
        The demangled name.
    width
        Greatest length; a longer label is cut in its middle.
    """
    name = _NOISE.sub("", normalise(demangled))
    base, _, arguments = name.partition("<")
    if "elementwise" in base or base == "reduce_kernel":
        inner = [m.group(0) for m in _FUNCTOR.finditer(arguments) if "gpu_kernel_impl" not in m.group(0)]
        inner = [word for word in inner if not word.startswith(("gpu_", "func_wrapper"))]
        if inner:
            base = f"{base}<{inner[0]}>"
    elif base in ("Kernel2", "cutlass::Kernel2", "cutlass::Kernel", "Kernel"):
        base = arguments.rstrip(">")
    base = base.removesuffix("_execute_kernel__5x_cudnn").removesuffix("_execute_kernel__5x_cublas")
    base = re.sub(r"_warpsize\w*?_g1|_alignc?\w*|__5x_(cudnn|cublas)|_stage\d|_execute", "", base)
    if len(base) <= width:
        return base
    head = (width - 1) * 2 // 3
    return f"{base[:head]}…{base[-(width - 1 - head) :]}"
