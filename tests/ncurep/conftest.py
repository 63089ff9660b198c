import pytest
from tests.ncurep import both

from gpuatlas.ncurep import chunk


@pytest.fixture(autouse=True)
def both_decoders(monkeypatch):
    """Metrics are read twice in these tests, compiled and with numpy, and compared."""
    monkeypatch.setattr(chunk, "decode_metrics", both.decode_metrics)
    monkeypatch.setattr(chunk, "metrics_end", both.metrics_end)
