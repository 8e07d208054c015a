"""Adds up what an update measures, over micro-batches and optimiser steps, into the metrics of `trainer/metrics.py`.

Loss terms, clip shares and the truncated share are means over samples of means over tokens, as the loss itself; entropy, ratio and the
gap between sampler and learner are means over tokens. The gap counts only tokens sampled by the weights the update starts from: on
older samples it would measure their age.
"""

from __future__ import annotations

import math

import torch

from trainer.learn.loss import LossSums, LossTokens

_WEIGHTED = {
    "loss/total": "total",
    "loss/policy": "policy",
    "loss/kl": "kl",
    "policy/clip_frac_low": "clip_low",
    "policy/clip_frac_high": "clip_high",
    "sampler_gap/tis_frac": "tis",
}


class Tally:
    """`start_step`, `add` for every micro-batch, `finish_step`; then `metrics`."""

    def __init__(self) -> None:
        self._steps = 0
        self._total = self._grad_norm = 0.0
        self._weighted = dict.fromkeys(_WEIGHTED, 0.0)
        self._tokens = self._current = 0
        self._entropy = self._ratio = self._gap = self._gap_k3 = 0.0
        self._ratio_max = self._gap_max = -math.inf

    def start_step(self) -> None:
        self._steps += 1
        self._total = 0.0

    def add(self, sums: LossSums, tokens: LossTokens, current_N: torch.Tensor) -> None:
        """Add a micro-batch; `current_N` marks the tokens sampled by the weights the update starts from."""
        for name, attribute in _WEIGHTED.items():
            self._weighted[name] += float(getattr(sums, attribute).detach())
        self._total += float(sums.total.detach())
        ratio = torch.exp(tokens.new_logps_N.detach() - tokens.old_logps_N)
        self._tokens += len(ratio)
        self._entropy += float(tokens.entropy_N.detach().sum())
        self._ratio += float(ratio.sum())
        self._ratio_max = max(self._ratio_max, float(ratio.max()))
        gap = (tokens.old_logps_N - tokens.sampler_logps_N)[current_N]
        if len(gap):
            self._current += len(gap)
            self._gap += float(gap.abs().sum())
            self._gap_max = max(self._gap_max, float(gap.abs().max()))
            self._gap_k3 += float((torch.exp(gap) - 1 - gap).sum())

    def finish_step(self, grad_norm: float) -> float:
        """End of an optimiser step; returns its loss."""
        self._grad_norm += grad_norm
        return self._total

    def metrics(self) -> dict[str, float | None]:
        """Means over the steps; None where there was nothing to measure."""
        steps, tokens, current = self._steps, self._tokens, self._current
        values: dict[str, float | None] = {
            name: total / steps if tokens else None for name, total in self._weighted.items()
        }
        return values | {
            "loss/entropy": self._entropy / tokens if tokens else None,
            "optim/grad_norm": self._grad_norm / steps if steps else None,
            "policy/ratio_mean": self._ratio / tokens if tokens else None,
            "policy/ratio_max": self._ratio_max if tokens else None,
            "sampler_gap/logp_abs_mean": self._gap / current if current else None,
            "sampler_gap/logp_abs_max": self._gap_max if current else None,
            "sampler_gap/kl_k3": self._gap_k3 / current if current else None,
        }
