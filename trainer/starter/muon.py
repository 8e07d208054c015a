"""Muon in float32: momentum whose matrix updates are made orthogonal before they are applied.

Written for this recipe because `torch.optim.Muon` iterates in bfloat16, which is eight times slower on CPUs without bfloat16
instructions. Shapes: N matrices of one shape [R, C]. Method: Jordan et al., "Muon: an optimizer for hidden layers", 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def orthogonal(matrices_NRC: torch.Tensor) -> torch.Tensor:
    """Each matrix with its singular values moved near 1, by a quintic Newton-Schulz iteration."""
    wide = matrices_NRC.shape[-2] <= matrices_NRC.shape[-1]
    x = matrices_NRC if wide else matrices_NRC.transpose(-2, -1)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.transpose(-2, -1)
        x = a * x + (b * gram + c * gram @ gram) @ x
    done: torch.Tensor = x if wide else x.transpose(-2, -1)
    return done


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; the step is scaled to the size an AdamW step has, so one learning rate serves both."""

    def __init__(self, params: Iterable[torch.Tensor], *, lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update from the gradients; `closure` is not supported."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for alike in shapes.values():
                self._step_alike(alike, group)

    def _step_alike(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        directions = []
        for parameter in parameters:
            state = self.state[parameter]
            average = state.setdefault("average", torch.zeros_like(parameter))
            gradient = parameter.grad
            assert gradient is not None
            average.lerp_(gradient, 1 - momentum)
            directions.append(gradient.lerp(average, momentum))
        updates_NRC = orthogonal(torch.stack(directions))
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, updates_NRC, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update, alpha=-group["lr"] * scale)
