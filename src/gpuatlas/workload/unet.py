"""The Med-DDPM network: a 3D U-Net of the guided-diffusion lineage.

Parameter names are those of the published checkpoints, so that these load by name. Everything is plain
PyTorch that runs alike on torch 2.0.1 and later (SiLU is PyTorch's, one kernel each way, as in captures of
the published network); what a target changes is in `gpuatlas.workload.targets`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpuatlas.workload.network import NetworkSpec

MAX_PERIOD = 1000.0
"""Longest wavelength of the timestep embedding (the usual 10000 is *not* what Med-DDPM uses)."""


def timestep_embedding(timesteps: Tensor, width: int) -> Tensor:
    """Return the sinusoidal embedding of `timesteps`, cosines before sines.

    Parameters
    ----------
    timesteps
        Shape (batch,), any real type.
    width
        Even number of features.

    Returns
    -------
    Tensor
        Shape (batch, width), float32.
    """
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=timesteps.device)
    frequencies = torch.exp(-math.log(MAX_PERIOD) * steps / half)
    angles = timesteps.float()[:, None] * frequencies
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class GroupNorm32(nn.GroupNorm):
    """GroupNorm over 32 groups, computed in float32 (or more) and returned in the type of its input."""

    def __init__(self, channels: int):
        super().__init__(32, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (batch, channels, ...); shape and type of `x` are kept."""
        return super().forward(_at_least_float32(x)).type(x.dtype)


def _zeroed(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


class ResidualBlock(nn.Module):
    """Two normalised 3³ convolutions with the timestep embedding added in between, and a skip path."""

    def __init__(self, channels: int, out_channels: int, embedding: int):
        super().__init__()
        self.in_layers = nn.Sequential(
            GroupNorm32(channels), nn.SiLU(), nn.Conv3d(channels, out_channels, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding, out_channels))
        self.out_layers = nn.Sequential(
            GroupNorm32(out_channels),
            nn.SiLU(),
            nn.Dropout(0.0),
            _zeroed(nn.Conv3d(out_channels, out_channels, 3, padding=1)),
        )
        self.skip_connection: nn.Module = (
            nn.Identity() if channels == out_channels else nn.Conv3d(channels, out_channels, 1)
        )

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Return (batch, out channels, d, h, w); `embedding` is (batch, embedding width)."""
        hidden = self.in_layers(x)
        shift = self.emb_layers(embedding).type(hidden.dtype)
        hidden = self.out_layers(hidden + shift[:, :, None, None, None])
        return self.skip_connection(x) + hidden  # type: ignore[no-any-return]


class AttentionBlock(nn.Module):
    """Single-head self-attention over all voxels; its activations are recomputed in the backward pass."""

    recompute = True
    """False only where a compiler decides about recomputation (see `gpuatlas.workload.targets`)."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = GroupNorm32(channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = _zeroed(nn.Conv1d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the flattened voxels of (batch, channels, d, h, w); the shape is kept."""
        if self.recompute and torch.is_grad_enabled():
            # No dropout inside, hence no random state to restore.
            return checkpoint(self._attend, x, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]
        return self._attend(x)

    def _attend(self, x: Tensor) -> Tensor:
        batch, channels, *volume = x.shape
        flat = x.reshape(batch, channels, -1)
        query, key, value = self.qkv(self.norm(flat)).chunk(3, dim=1)
        # Scaling both by width^-1/4 keeps half-precision products in range.
        scale = 1 / math.sqrt(math.sqrt(channels))
        logits = torch.einsum("bct,bcs->bts", query * scale, key * scale)
        weights = torch.softmax(_at_least_float32(logits), dim=-1).type(logits.dtype)
        attended = torch.einsum("bts,bcs->bct", weights, value)
        attended = flat + self.proj_out(attended)
        return attended.reshape(batch, channels, *volume)  # type: ignore[no-any-return]


class Downsample(nn.Module):
    """Halve each edge by a 3³ convolution of stride 2."""

    def __init__(self, channels: int):
        super().__init__()
        self.op = nn.Conv3d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, channels, d/2, h/2, w/2)."""
        return self.op(x)  # type: ignore[no-any-return]


class Upsample(nn.Module):
    """Double each edge by trilinear interpolation, then a 3³ convolution."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv3d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, channels, 2d, 2h, 2w)."""
        larger = functional.interpolate(x, scale_factor=2.0, mode="trilinear")
        return self.conv(larger)  # type: ignore[no-any-return]


class Stage(nn.Sequential):
    """Layers in sequence; residual blocks among them also receive the timestep embedding."""

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:  # type: ignore[override]
        """Apply the layers to (batch, channels, d, h, w) in turn."""
        for layer in self:
            x = layer(x, embedding) if isinstance(layer, ResidualBlock) else layer(x)
        return x


class UNet(nn.Module):
    """The noise predictor of Med-DDPM.

    Parameters
    ----------
    spec
        Which of the published configurations to build; weights are initialised from torch's global
        generator (PyTorch's defaults; the last layer of each residual path and the head are zero).
    """

    def __init__(self, spec: NetworkSpec):
        super().__init__()
        self.spec = spec
        width, embedding = spec.width, 4 * spec.width
        self.time_embed = nn.Sequential(
            nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding)
        )

        channels = width
        inputs: list[nn.Module] = [
            Stage(nn.Conv3d(spec.image_channels + spec.mask_channels, channels, 3, padding=1))
        ]
        skips = [channels]
        last = len(spec.multipliers) - 1
        for level, multiplier in enumerate(spec.multipliers):
            for _ in range(spec.blocks):
                layers = self._block(channels, multiplier * width, embedding, level)
                channels = multiplier * width
                inputs.append(Stage(*layers))
                skips.append(channels)
            if level < last:
                inputs.append(Stage(Downsample(channels)))
                skips.append(channels)
        self.input_blocks = nn.ModuleList(inputs)

        self.middle_block = Stage(
            ResidualBlock(channels, channels, embedding),
            AttentionBlock(channels),
            ResidualBlock(channels, channels, embedding),
        )

        outputs: list[nn.Module] = []
        for level in range(last, -1, -1):
            for index in range(spec.blocks + 1):
                multiplied = spec.multipliers[level] * width
                layers = self._block(channels + skips.pop(), multiplied, embedding, level)
                channels = multiplied
                if level and index == spec.blocks:
                    layers = [*layers, Upsample(channels)]
                outputs.append(Stage(*layers))
        self.output_blocks = nn.ModuleList(outputs)

        self.out = nn.Sequential(
            GroupNorm32(channels), nn.SiLU(), _zeroed(nn.Conv3d(channels, spec.image_channels, 3, padding=1))
        )

    def _block(self, channels: int, out_channels: int, embedding: int, level: int) -> Sequence[nn.Module]:
        block = ResidualBlock(channels, out_channels, embedding)
        attends = 2**level == self.spec.attention_factor
        return [block, AttentionBlock(out_channels)] if attends else [block]

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        """Predict the noise.

        Parameters
        ----------
        x
            Noisy volume and condition, concatenated: (batch, image + mask channels, depth, height, width),
            each edge a multiple of `spec.stride`.
        timesteps
            (batch,), integers from 0.

        Returns
        -------
        Tensor
            (batch, image channels, depth, height, width).
        """
        waves = timestep_embedding(timesteps, self.spec.width)
        embedding = self.time_embed(waves.type(self.out[2].weight.dtype))  # type: ignore[arg-type]
        kept = []
        for stage in self.input_blocks:
            x = stage(x, embedding)
            kept.append(x)
        x = self.middle_block(x, embedding)
        for stage in self.output_blocks:
            x = stage(torch.cat([x, kept.pop()], dim=1), embedding)
        return self.out(x)  # type: ignore[no-any-return]
