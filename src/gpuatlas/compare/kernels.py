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


_XMMA = re.compile(
    r"(?P<sm>sm\d+)_xmma_(?P<what>[a-z]+)_(?:implicit_gemm_)?(?:indexed_(?:wo_smem_)?)?(?P<types>.*?)_tilesize(?P<tile>\d+x\d+x\d+)"
    r"(?P<rest>.*)"
)


def short_name(demangled: str, width: int = 44) -> str:
    """Return a label for a kernel that fits in a figure: without namespaces, arguments and tuning details.

    Parameters
    ----------
    demangled
        The demangled name.
    width
        Greatest length; a longer label is cut in its middle.
    """
    name = _NOISE.sub("", normalise(demangled))
    base, _, arguments = name.partition("<")
    if found := _XMMA.match(base):
        words = found["types"].split("_")
        kind = "tf32" if "tf32" in found["types"] else words[0][: len(words[0]) // 2] or words[0]
        layout = words[-2] if found["what"] == "gemm" and len(words) > 1 else words[-1]
        split = re.search(r"segment_k_on|segment_k_off|split_k", found["rest"])
        words = [found["sm"], found["what"], kind, layout, found["tile"], split.group(0) if split else ""]
        base = " ".join(word for word in words if word)
    elif "elementwise" in base or base == "reduce_kernel":
        inner = [m.group(0) for m in _FUNCTOR.finditer(arguments)]
        inner = [word for word in inner if not word.startswith(("gpu_", "func_wrapper"))]
        if inner:
            base = f"{base}<{inner[0]}>"
    elif base.rpartition("::")[2] in ("Kernel2", "Kernel"):
        base = arguments.rstrip(">").replace("cutlass_80_", "cutlass ")
    if len(base) <= width:
        return base
    head = (width - 1) * 2 // 3
    return f"{base[:head]}…{base[-(width - 1 - head) :]}"
