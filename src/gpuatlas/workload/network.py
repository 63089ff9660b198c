"""The three published configurations of the network, as data. Readable without torch."""

from dataclasses import dataclass

from gpuatlas.config import nearest
from gpuatlas.errors import ConfigError


@dataclass(frozen=True)
class NetworkSpec:
    """One configuration of the Med-DDPM U-Net.

    Attributes
    ----------
    image_size
        Edge in voxels that the configuration was published for; any edge divisible by `stride` works.
    image_channels, mask_channels
        Channels of the noisy volume (also those of the output) and of the condition.
    width
        Channels of the first level; the timestep embedding is as wide.
    multipliers
        Channels of each level, as multiples of `width`.
    blocks
        Residual blocks a level (the way up has one more).
    attention_factor
        The down-sampling factor at which levels attend; the middle block always attends.
    """

    name: str
    image_size: int
    image_channels: int
    mask_channels: int
    width: int
    multipliers: tuple[int, ...]
    blocks: int
    attention_factor: int

    @property
    def stride(self) -> int:
        """The total down-sampling factor: edges must be multiples of it."""
        return int(2 ** (len(self.multipliers) - 1))


NETWORKS = {
    spec.name: spec
    for spec in (
        NetworkSpec("whole_head_128", 128, 1, 2, 64, (1, 1, 2, 3, 4), 1, 8),
        NetworkSpec("small_64", 64, 1, 2, 32, (1, 2, 3, 4), 1, 4),
        # 192 // 16 = 12 is no power of two, so only the middle block attends.
        NetworkSpec("brats_192", 192, 4, 4, 64, (1, 1, 2, 3, 4), 2, 12),
    )
}


def network_spec(name: str) -> NetworkSpec:
    """Return the configuration `name`, or raise `ConfigError` naming the nearest one."""
    if name not in NETWORKS:
        raise ConfigError(f"There is no network '{name}'{nearest(name, NETWORKS)}")
    return NETWORKS[name]


def check_size(spec: NetworkSpec, size: int) -> None:
    """Raise `ConfigError` unless volumes of edge `size` fit the network."""
    if size < spec.stride or size % spec.stride:
        raise ConfigError(
            f"Size {size} does not fit network '{spec.name}': choose a multiple of {spec.stride} voxels."
        )
