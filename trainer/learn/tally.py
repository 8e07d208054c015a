"""Adds up what an update measures, over micro-batches and optimiser steps, into the metrics of `trainer/metrics.py`.

Loss terms, clip shares and the truncated share are means over samples of means over tokens, as the loss itself; entropy, ratio and the
gap between sampler and learner are means over tokens. The gap counts only tokens sampled by the weights the update starts from: on
older samples it would measure their age.
"""

from __future__ import annotations

import math

import torch

from trainer.learn.loss import LossSums, LossTokens
from trainer.learn.ranks import OneRank, Ranks

_WEIGHTED = {
    "loss/total": "total",
    "loss/policy": "policy",
    "loss/kl": "kl",
    "policy/clip_frac_low": "clip_low",
    "policy/clip_frac_high": "clip_high",
    "sampler_gap/tis_frac": "tis",
}


class Tally:
    """`start_step`, `add` for every micro-batch, `finish_step`; then `metrics`, once. Sums are taken over all ranks."""

    def __init__(self, ranks: Ranks | None = None) -> None:
        self._ranks = ranks or OneRank()
        self._steps = 0
        self._total = self._grad_norm = 0.0
        self._weighted = dict.fromkeys(_WEIGHTED, 0.0)
        self._sums = dict.fromkeys(("tokens", "entropy", "ratio", "current", "gap", "gap_k3"), 0.0)
        self._largest = dict.fromkeys(("ratio", "gap"), -math.inf)

    def start_step(self) -> None:
        self._steps += 1
        self._total = 0.0

    def add(self, sums: LossSums, tokens: LossTokens, current_N: torch.Tensor) -> None:
        """Add a micro-batch; `current_N` marks the tokens sampled by the weights the update starts from."""
        for name, attribute in _WEIGHTED.items():
            self._weighted[name] += float(getattr(sums, attribute).detach())
        self._total += float(sums.total.detach())
        ratio = torch.exp(tokens.new_logps_N.detach() - tokens.old_logps_N)
        self._sums["tokens"] += len(ratio)
        self._sums["entropy"] += float(tokens.entropy_N.detach().sum())
        self._sums["ratio"] += float(ratio.sum())
        self._largest["ratio"] = max(self._largest["ratio"], float(ratio.max()))
        gap = (tokens.old_logps_N - tokens.sampler_logps_N)[current_N]
        if len(gap):
            self._sums["current"] += len(gap)
            self._sums["gap"] += float(gap.abs().sum())
            self._largest["gap"] = max(self._largest["gap"], float(gap.abs().max()))
            self._sums["gap_k3"] += float((torch.exp(gap) - 1 - gap).sum())

    def finish_step(self, grad_norm: float) -> float:
        """End of an optimiser step whose gradient, over all ranks, had this norm; returns its loss over all ranks."""
        self._grad_norm += grad_norm
        total = torch.tensor([self._total], dtype=torch.float64)
        self._ranks.add([total])
        return float(total)

    def metrics(self) -> dict[str, float | None]:
        """Means over the steps; None where there was nothing to measure."""
        for sums in (self._weighted, self._sums):
            numbers = torch.tensor(list(sums.values()), dtype=torch.float64)
            self._ranks.add([numbers])
            sums.update(zip(sums, numbers.tolist(), strict=True))
        largest = torch.tensor(list(self._largest.values()), dtype=torch.float64)
        self._ranks.largest(largest)
        ratio_max, gap_max = largest.tolist()
        steps, tokens, current = self._steps, self._sums["tokens"], self._sums["current"]
        values: dict[str, float | None] = {
            name: total / steps if tokens else None for name, total in self._weighted.items()
        }
        return values | {
            "loss/entropy": self._sums["entropy"] / tokens if tokens else None,
            "optim/grad_norm": self._grad_norm / steps if steps else None,
            "policy/ratio_mean": self._sums["ratio"] / tokens if tokens else None,
            "policy/ratio_max": ratio_max if tokens else None,
            "sampler_gap/logp_abs_mean": self._sums["gap"] / current if current else None,
            "sampler_gap/logp_abs_max": gap_max if current else None,
            "sampler_gap/kl_k3": self._sums["gap_k3"] / current if current else None,
        }
