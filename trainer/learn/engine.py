"""The learner interface: one update of the policy on a batch of samples of both roles.

Shapes: T tokens of a row. The four log-probs are always called `new_`, `old_`, `sampler_` and `reference_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

Role = Literal["agent", "designer"]


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One training row: `prompt_ids` are context only; `token_ids`, `mask` and `sampler_logprobs` have the same length T.

    `mask` is 1 on sampled tokens and 0 on observation and template tokens (their sampler log-prob is 0.0 and unused).
    `weight` is the row's share of its sample: 1, or 1/rows for a thinking episode split into turns.
    `sample` identifies the episode or design the row belongs to; `rollout` is the one whose weights sampled it.
    """

    sample: str
    role: Role
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    sampler_logprobs: tuple[float, ...]
    advantage: float
    temperature: float
    rollout: int
    weight: float = 1.0


class Learner(Protocol):
    """What the loop needs from a training engine."""

    def update(self, rows: Sequence[TrainRow], *, rollout: int) -> Mapping[str, float | None]:
        """One policy update (spec 8); returns metrics under the names of `trainer/metrics.py`.

        Raises `trainer.errors.NotFiniteError` when loss or gradient is not finite; weights and optimiser are then unchanged.
        """

    def weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Current weights by Hugging Face parameter name, for `Sampler.load_weights`."""

    def save_model(self, directory: Path) -> None:
        """Write weights, config and tokenizer as an ordinary Hugging Face directory."""

    def state(self) -> dict[str, Any]:
        """Optimiser and generator state: a dict of tensors and plain values that `torch.save` and `weights_only` loading accept."""

    def load_state(self, model_directory: Path, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint written by `save_model` and `state`."""

    def describe(self) -> Mapping[str, Any]: ...

    def close(self) -> None: ...
