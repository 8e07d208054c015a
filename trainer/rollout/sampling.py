"""Drawing tokens: inverse-CDF sampling from the tempered distribution, each request from its own generator.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from trainer.rollout.engine import Sampled, SampleRequest, SamplerError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

_CHUNK = 256


class UniformStream:
    """Uniform numbers in [0, 1) of one request: the i-th number depends only on the seed and i, never on batch mates."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._numbers: list[float] = []

    def __getitem__(self, i: int) -> float:
        while i >= len(self._numbers):
            self._numbers += torch.rand(_CHUNK, generator=self._generator).tolist()
        return self._numbers[i]


def draw(
    logits_BV: torch.Tensor, temperature_B: torch.Tensor, uniform_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token per row; returns (tokens_B, logprobs_B), the log-probs being those of softmax(logits / temperature).

    Inverting the CDF costs a tenth of `torch.multinomial` on the CPU and lets every row use its own uniform number. A zero-probability
    token is never drawn: `right=True` picks the first token whose CDF exceeds the number, and the number stays below the total. So the
    logarithm is taken of one probability, and it is finite.
    """
    p_BV = torch.softmax(logits_BV.float() / temperature_B[:, None], dim=-1)
    cdf_BV = p_BV.cumsum(dim=-1)
    tokens_B1 = torch.searchsorted(cdf_BV, (uniform_B * cdf_BV[:, -1])[:, None], right=True)
    tokens_B1 = tokens_B1.clamp_(max=logits_BV.shape[-1] - 1)
    return tokens_B1[:, 0], p_BV.gather(1, tokens_B1)[:, 0].log()


def room_for(request: SampleRequest, context_tokens: int) -> int | SamplerError:
    """How many tokens the request may get: its own limit, or fewer at the end of the context; an error when there is no room."""
    room = context_tokens - len(request.prompt_ids)
    if not request.prompt_ids or request.max_new_tokens < 1 or room < 1:
        return SamplerError(
            f"a prompt of {len(request.prompt_ids)} tokens and {request.max_new_tokens} new ones do not fit a context of "
            f"{context_tokens} tokens"
        )
    return min(request.max_new_tokens, room)


def finished(
    token_ids: Sequence[int], logprobs: Sequence[float], stop: frozenset[int], limit: int
) -> Sampled | SamplerError | None:
    """The answer of a sequence whose newest token is the last of `token_ids`; None while it goes on."""
    if not math.isfinite(logprobs[-1]):
        return SamplerError(f"logits are not finite at new token {len(token_ids)}")
    if token_ids[-1] in stop:
        return Sampled(tuple(token_ids), tuple(logprobs), "stop")
    if len(token_ids) >= limit:
        return Sampled(tuple(token_ids), tuple(logprobs), "length")
    return None
