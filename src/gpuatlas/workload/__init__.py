"""Med-DDPM, the studied workload: the network, its training, and the proof that a target took effect.

Importing this package needs no torch: the command line and the workflow read targets without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuatlas.workload.unet import UNet


def build_network(name: str) -> "UNet":
    """Return the plain, freshly initialised network `name`: what every target starts from.

    Parameters
    ----------
    name
        A key of `gpuatlas.workload.network.NETWORKS`: `whole_head_128`, `small_64` or `brats_192`.

    Raises
    ------
    ConfigError
        No network has this name.
    """
    from gpuatlas.workload.network import network_spec
    from gpuatlas.workload.unet import UNet

    return UNet(network_spec(name))
