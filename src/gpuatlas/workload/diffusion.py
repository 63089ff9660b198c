"""The diffusion process around the network: schedule, loss, ancestral sampling, published checkpoints."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gpuatlas.errors import InputRefused

STEPS = 250
OFFSET = 0.008
PREFIX = "denoise_fn."
"""What a published checkpoint puts before the name of each parameter of the network."""

Predictor = Callable[[Tensor, Tensor], Tensor]


def cosine_betas(steps: int = STEPS) -> Tensor:
    """Return the noise variances of the cosine schedule, float64, shape (steps,), clipped to [0, 0.999].

    The grid is `linspace(0, steps + 1, steps + 1)`, as the published training has it: its end lies one
    whole step beyond the usual one.
    """
    count = steps + 1
    grid = torch.linspace(0, count, count, dtype=torch.float64)
    kept = torch.cos((grid / count + OFFSET) / (1 + OFFSET) * torch.pi / 2) ** 2
    kept = kept / kept[0]
    return (1 - kept[1:] / kept[:-1]).clamp(0, 0.999)


class Diffusion(nn.Module):
    """Coefficients of the diffusion process, as float32 buffers that move with `.to(device)`."""

    noise_scale: Tensor
    signal_scale: Tensor
    inverse_signal: Tensor
    inverse_noise: Tensor
    mean_start: Tensor
    mean_noisy: Tensor
    sigma: Tensor

    def __init__(self, steps: int = STEPS):
        super().__init__()
        self.steps = steps
        betas = cosine_betas(steps)
        kept = torch.cumprod(1 - betas, dim=0)
        before = torch.cat([torch.ones(1, dtype=torch.float64), kept[:-1]])
        variance = betas * (1 - before) / (1 - kept)
        coefficients = {
            "signal_scale": kept.sqrt(),
            "noise_scale": (1 - kept).sqrt(),
            "inverse_signal": (1 / kept).sqrt(),
            "inverse_noise": (1 / kept - 1).sqrt(),
            "mean_start": betas * before.sqrt() / (1 - kept),
            "mean_noisy": (1 - before) * (1 - betas).sqrt() / (1 - kept),
            # The published sampler takes exp(log(variance) / 2) of the variance clipped at 1e-20.
            "sigma": variance.clamp(min=1e-20).sqrt(),
        }
        for name, values in coefficients.items():
            self.register_buffer(name, values.float(), persistent=False)

    def noised(self, image: Tensor, timesteps: Tensor, noise: Tensor) -> Tensor:
        """Return `image` (batch, channels, d, h, w) with `noise` mixed in as at `timesteps` (batch,)."""
        shape = (-1, 1, 1, 1, 1)
        signal = self.signal_scale[timesteps].view(shape)
        return signal * image + self.noise_scale[timesteps].view(shape) * noise

    def loss(
        self, predict: Predictor, image: Tensor, mask: Tensor, timesteps: Tensor, noise: Tensor
    ) -> Tensor:
        """Return mean |noise − prediction|, a scalar on the device.

        Parameters
        ----------
        predict
            The network, or its compiled form: (batch, image + mask channels, d, h, w), (batch,) -> noise.
        image, mask
            In [−1, 1]: (batch, image channels, d, h, w) and (batch, mask channels, d, h, w).
        timesteps
            (batch,), integers in [0, steps).
        noise
            Standard normal, shaped like `image`.
        """
        network_input = torch.cat([self.noised(image, timesteps, noise), mask], dim=1)
        return (noise - predict(network_input, timesteps)).abs().mean()

    @torch.no_grad()
    def sample(
        self,
        predict: Predictor,
        mask: Tensor,
        image_channels: int,
        generator: torch.Generator,
        on_step: Callable[[], object] = lambda: None,
    ) -> Tensor:
        """Draw volumes for `mask` by ancestral sampling.

        Parameters
        ----------
        mask
            (batch, mask channels, d, h, w).
        generator
            On the device of `mask`; equal seeds give equal volumes.
        on_step
            Called after each of the `steps` steps.

        Returns
        -------
        Tensor
            (batch, image channels, d, h, w), float32, about [−1, 1].
        """
        shape = (mask.shape[0], image_channels, *mask.shape[2:])
        volume = torch.randn(shape, generator=generator, device=mask.device)
        for step in range(self.steps - 1, -1, -1):
            timesteps = torch.full((shape[0],), step, device=mask.device, dtype=torch.long)
            noise = predict(torch.cat([volume, mask], dim=1), timesteps).float()
            start = self.inverse_signal[step] * volume - self.inverse_noise[step] * noise
            mean = self.mean_start[step] * start.clamp(-1, 1) + self.mean_noisy[step] * volume
            fresh = torch.randn(shape, generator=generator, device=mask.device) if step else 0.0
            volume = mean + self.sigma[step] * fresh
            on_step()
        return volume


def load_weights(path: Path, network: nn.Module, which: str = "ema") -> None:
    """Load a published checkpoint (or one of our own) into `network`.

    Parameters
    ----------
    path
        A file written by `torch.save`: a dict with `ema` and `model`, each a state dict whose keys of
        the network begin with `denoise_fn.`; other keys (the schedule) are not needed.
    which
        `ema` or `model`.

    Raises
    ------
    InputRefused
        The file is no such checkpoint, or its parameters are missing, unexpected or of another shape;
        the message lists the first few of each.
    """
    held = read_checkpoint(path)
    if not isinstance(held.get(which), dict):
        raise InputRefused(
            f"{path} holds no '{which}' weights (found: {', '.join(map(str, held)) or 'nothing'}); "
            "expected a checkpoint with 'ema' and 'model'."
        )
    weights = {
        key.removeprefix(PREFIX): value for key, value in held[which].items() if str(key).startswith(PREFIX)
    }
    expected = network.state_dict()
    problems = [
        ("missing", [key for key in expected if key not in weights]),
        ("unexpected", [key for key in weights if key not in expected]),
        (
            "of another shape",
            [
                f"{key} {tuple(weights[key].shape)} instead of {tuple(expected[key].shape)}"
                for key in expected
                if key in weights and weights[key].shape != expected[key].shape
            ],
        ),
    ]
    if any(keys for _, keys in problems):
        said = "; ".join(f"{len(keys)} {what}: {_few(keys)}" for what, keys in problems if keys)
        raise InputRefused(f"The '{which}' weights of {path} do not fit the network: {said}.")
    network.load_state_dict(weights)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the dict that `torch.save` wrote to `path`, never executing code from it.

    Raises
    ------
    InputRefused
        The file is cut, no checkpoint, or holds more than tensors and plain values.
    """
    if not path.is_file():
        raise InputRefused(f"There is no checkpoint {path}.")
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputRefused(f"{path} is no readable checkpoint of weights: {reason}") from error
    if not isinstance(held, dict):
        raise InputRefused(f"{path} holds a {type(held).__name__}, not a checkpoint with 'ema' and 'model'.")
    return held


def _few(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
