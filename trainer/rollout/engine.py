"""The sampler interface: prompts in as token ids, sampled token ids and their log-probs out.

Every engine samples from the tempered distribution and returns log-probs of exactly that distribution (spec 8). A request carries its
own seed, so what it draws does not depend on which other requests share its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One generation. `prompt_ids` must be non-empty; `max_new_tokens` ≥ 1; sampling stops after any of `stop_ids` (kept in the reply)."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    seed: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """`token_ids` and `logprobs` align; `finish` is "stop" when the last token is a stop id, else "length"."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]


class SamplerError(Exception):
    """One request could not be generated. Becomes the episode status `sampler_error`, never a reward."""


class Sampler(Protocol):
    """What the loop needs from a generation engine."""

    context_tokens: int

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sampled | SamplerError]:
        """Generate all requests; answers in the order given. Requests with a common prompt share its prefill."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over the learner's weights and drop every cache built from older ones."""

    def describe(self) -> Mapping[str, Any]:
        """Engine facts for the event log: name, device, dtype, threads, parameters."""

    def close(self) -> None: ...
