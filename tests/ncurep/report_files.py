"""Where reports to test with are, and how they are taken apart and put together."""

import lzma
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parents[2]
WINDOWS = {
    name: ROOT / f"tests/data/windows/h200/{name}/report.ncu-repz" for name in ("baseline", "opt1", "opt12")
}
CORPUS = sorted((ROOT.parent / "shared/corpus").glob("*.xz"))
"""Reports of many GPUs and versions that may not be published: where they lie beside the checkout."""


def unpack(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        return bytes(stream.read())


def peak_mib() -> int:
    """Return this process's peak of resident memory; getrusage would count what the parent had before exec."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM"))
