"""The GRPO loss (spec 8) as one pure function over flat tokens. Only mask-1 tokens come here, so there is no padding to get wrong.

Per token: -min(ratio · A, clip(ratio, 1 - low, 1 + high) · A) · min(cap, exp(old - sampler)), plus KL and entropy terms. Each token carries
its weight in the batch (`token_weights`), so sums over any split of the tokens add up to the same loss, metrics and gradient.

Shapes: N mask-1 tokens of any number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainer.config import LossConfig

_KL_CLAMP = 10.0
# exp(20) is far beyond the clamp, and stopping there keeps an infinite exponential from turning a zero gradient into NaN.
_LOG_RATIO_CLAMP = 20.0


@dataclass(frozen=True, slots=True)
class LossTokens:
    """Mask-1 tokens with everything the loss needs. All `[N]`; only `new_logps_N` (and `entropy_N`, if it counts) carry a gradient."""

    new_logps_N: torch.Tensor
    old_logps_N: torch.Tensor
    sampler_logps_N: torch.Tensor
    reference_logps_N: torch.Tensor | None
    entropy_N: torch.Tensor
    advantages_N: torch.Tensor
    weights_N: torch.Tensor


@dataclass(frozen=True, slots=True)
class LossSums:
    """Weighted sums, 0-dimensional tensors; over all tokens of a batch each is a mean over samples of the mean over their tokens.

    `total` is what to call backward on. `kl` is the KL term before its coefficient, `clip_low` / `clip_high` the share of tokens whose
    gradient the lower / upper clip took away, `tis` the share whose importance weight was cut, `ppo_kl` the mean of old - new.
    """

    total: torch.Tensor
    policy: torch.Tensor
    kl: torch.Tensor
    entropy: torch.Tensor
    clip_low: torch.Tensor
    clip_high: torch.Tensor
    tis: torch.Tensor
    ppo_kl: torch.Tensor


def token_weights(mask_counts: Sequence[int], row_weights: Sequence[float], samples: int) -> list[float]:
    """The weight of each mask-1 token of each row: row weight / (samples · the row's mask-1 tokens); 0 for a row without any.

    `samples` counts every real sample of the batch, those without a mask-1 token included.
    """
    return [
        weight / (samples * count) if count else 0.0 for count, weight in zip(mask_counts, row_weights, strict=True)
    ]


def grpo_loss(tokens: LossTokens, config: LossConfig) -> LossSums:
    """Loss and metrics of some tokens of a batch; add the sums of the parts to have those of the batch."""
    new, old, weights, advantages = tokens.new_logps_N, tokens.old_logps_N, tokens.weights_N, tokens.advantages_N
    ratio = torch.exp(new - old)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    importance = torch.exp(old - tokens.sampler_logps_N).detach()
    policy = (weights * torch.maximum(plain, clipped) * importance.clamp(max=config.tis_cap)).sum()
    total = policy
    kl = torch.zeros_like(policy)
    if tokens.reference_logps_N is not None:
        gap = (tokens.reference_logps_N - new).clamp(max=_LOG_RATIO_CLAMP)
        kl = (weights * (torch.exp(gap) - 1 - gap).clamp(-_KL_CLAMP, _KL_CLAMP)).sum()
        if config.kl_coef:
            total = total + config.kl_coef * kl
    entropy = (weights * tokens.entropy_N).sum()
    if config.entropy_coef:
        total = total - config.entropy_coef * entropy
    with torch.no_grad():
        cut = clipped > plain
        low, high = cut & (ratio < 1), cut & (ratio > 1)
        return LossSums(
            total=total,
            policy=policy.detach(),
            kl=kl.detach(),
            entropy=entropy.detach(),
            clip_low=(weights * low).sum(),
            clip_high=(weights * high).sum(),
            tis=(weights * (importance > config.tis_cap)).sum(),
            ppo_kl=(weights * (old - new)).sum(),
        )
