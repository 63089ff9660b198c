"""gpuatlas: training performance across GPU generations, kernel by kernel."""

__version__ = "0.1.0"
