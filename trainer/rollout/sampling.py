"""Drawing tokens: inverse-CDF sampling from the tempered distribution, each request from its own generator.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

import torch

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
    token is never drawn: `right=True` picks the first token whose CDF exceeds the number, and the number stays below the total.
    """
    logps_BV = torch.log_softmax(logits_BV.float() / temperature_B[:, None], dim=-1)
    cdf_BV = logps_BV.exp().cumsum(dim=-1)
    tokens_B1 = torch.searchsorted(cdf_BV, (uniform_B * cdf_BV[:, -1])[:, None], right=True)
    tokens_B1 = tokens_B1.clamp_(max=logits_BV.shape[-1] - 1)
    return tokens_B1[:, 0], logps_BV.gather(1, tokens_B1)[:, 0]
