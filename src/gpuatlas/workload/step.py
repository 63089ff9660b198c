"""One optimiser step: accumulated passes, then Adam. Training, timing and captures share it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gpuatlas.workload.apply import Prepared
from gpuatlas.workload.diffusion import Diffusion

ACCUMULATE = 2
"""Passes (forward + backward, batch 1) of an optimiser step."""

LEARNING_RATE = 1e-5

PHASE = "gpuatlas::"
"""Prefix of the profiler ranges that mark the phases of a step."""


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark what runs inside as `name` for torch.profiler."""
    with torch.profiler.record_function(PHASE + name):
        yield


class TrainingStep:
    """The state of an optimiser and of the noise, and the passes that advance them.

    Parameters
    ----------
    seed
        Of the generator of timesteps and noise, on the device.
    """

    def __init__(self, prepared: Prepared, seed: int):
        self.prepared = prepared
        self.diffusion = Diffusion().to(prepared.device)
        self.optimizer = torch.optim.Adam(prepared.network.parameters(), lr=LEARNING_RATE)
        self.generator = torch.Generator(prepared.device).manual_seed(seed)

    def one_pass(self, image: Tensor, mask: Tensor) -> Tensor:
        """Run one forward and backward pass, adding to the gradients.

        Parameters
        ----------
        image, mask
            (1, 1, d, h, w) and (1, 2, d, h, w), float32 in [−1, 1], on the device.

        Returns
        -------
        Tensor
            The loss, a scalar that stays on the device.
        """
        with phase("forward"):
            timesteps = torch.randint(
                0,
                self.diffusion.steps,
                (image.shape[0],),
                generator=self.generator,
                device=self.prepared.device,
            )
            noise = torch.randn(image.shape, generator=self.generator, device=self.prepared.device)
            loss = self.diffusion.loss(self.prepared.predict, image, mask, timesteps, noise)
        with phase("backward"):
            (loss / ACCUMULATE).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def update(self) -> None:
        """Apply the accumulated gradients and clear them."""
        with phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def run(self, volumes: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Run one whole step over `ACCUMULATE` (image, mask) pairs; return the mean loss, on the device."""
        losses = [self.one_pass(image, mask) for image, mask in volumes]
        self.update()
        return torch.stack(losses).mean()
