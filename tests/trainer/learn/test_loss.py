from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import LossConfig
from trainer.learn.loss import LossSums, LossTokens, grpo_loss, token_weights

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "conformance" / "loss.json").read_text())[
    "grpo_loss"
]


def flat_tokens(case: dict[str, Any]) -> tuple[LossTokens, list[torch.Tensor]]:
    """The case's mask-1 tokens as the loss takes them, and the leaf log-probs of each sample."""
    samples = case["samples"]
    leaves = [torch.tensor(s["new_logprobs"], dtype=torch.float64, requires_grad=True) for s in samples]
    masks = [torch.tensor(s["mask"], dtype=torch.bool) for s in samples]
    weights = token_weights([int(m.sum()) for m in masks], [1.0] * len(samples), len(samples))

    def column(name: str) -> torch.Tensor:
        return torch.cat([torch.tensor(s[name], dtype=torch.float64)[m] for s, m in zip(samples, masks, strict=True)])

    def spread(values: list[float]) -> torch.Tensor:
        return torch.cat(
            [torch.full((int(m.sum()),), v, dtype=torch.float64) for v, m in zip(values, masks, strict=True)]
        )

    new = torch.cat([leaf[m] for leaf, m in zip(leaves, masks, strict=True)])
    tokens = LossTokens(
        new_logps_N=new,
        old_logps_N=column("old_logprobs"),
        sampler_logps_N=column("rollout_logprobs"),
        reference_logps_N=column("reference_logprobs"),
        entropy_N=torch.zeros_like(new),
        advantages_N=spread([s["advantage"] for s in samples]),
        weights_N=spread(weights),
    )
    return tokens, leaves


def config(case: dict[str, Any]) -> LossConfig:
    return LossConfig(**{name: case[name] for name in ("clip_low", "clip_high", "tis_cap", "kl_coef")})


@pytest.mark.parametrize("case", CASES)
def test_loss_metrics_and_gradients_conform(case: dict[str, Any]) -> None:
    tokens, leaves = flat_tokens(case)
    sums = grpo_loss(tokens, config(case))
    sums.total.backward()  # type: ignore[no-untyped-call]
    expected = case["expect_metrics"]
    assert sums.total.item() == pytest.approx(case["expect_loss"], abs=1e-7)
    assert (sums.clip_low + sums.clip_high).item() == pytest.approx(expected["pg_clipfrac"], abs=1e-7)
    assert sums.tis.item() == pytest.approx(expected["tis_clipfrac"], abs=1e-7)
    assert sums.ppo_kl.item() == pytest.approx(expected["ppo_kl"], abs=1e-7)
    assert sums.kl.item() == pytest.approx(expected["kl"], abs=1e-7)
    for leaf, sample in zip(leaves, case["samples"], strict=True):
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        assert gradient.tolist() == pytest.approx(sample["expect_grad_new_logprobs"], abs=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_the_parts_of_a_batch_add_up_to_the_batch(case: dict[str, Any]) -> None:
    tokens, _ = flat_tokens(case)
    whole = grpo_loss(tokens, config(case))
    count = len(tokens.new_logps_N)
    parts = [
        grpo_loss(LossTokens(*(getattr(tokens, f.name)[i : i + 3] for f in fields(LossTokens))), config(case))
        for i in range(0, count, 3)
    ]
    for name in (f.name for f in fields(LossSums)):
        assert sum(getattr(p, name).item() for p in parts) == pytest.approx(getattr(whole, name).item(), abs=1e-12)


def one_token(**values: float) -> LossTokens:
    numbers = {"new": -1.0, "old": -1.0, "sampler": -1.0, "reference": -1.0, "entropy": 0.5, "advantage": 1.0} | values
    new, old, sampler, reference, entropy, advantage = (
        torch.tensor([v], dtype=torch.float64) for v in numbers.values()
    )
    return LossTokens(
        new.requires_grad_(), old, sampler, reference, entropy, advantage, torch.ones(1, dtype=torch.float64)
    )


def test_the_clip_is_asymmetric_and_says_which_side_it_cut() -> None:
    # exp(0.26) = 1.2969 > 1.28: cut for a positive advantage; exp(-0.3) = 0.7408 < 0.8: cut for a negative one.
    high = grpo_loss(one_token(new=-0.74), LossConfig())
    assert (high.policy.item(), high.clip_high.item(), high.clip_low.item()) == (pytest.approx(-1.28), 1.0, 0.0)
    low = grpo_loss(one_token(new=-1.3, advantage=-2.0), LossConfig())
    assert (low.policy.item(), low.clip_high.item(), low.clip_low.item()) == (pytest.approx(1.6), 0.0, 1.0)
    for free in (
        grpo_loss(one_token(new=-1.3), LossConfig()),
        grpo_loss(one_token(new=-0.74, advantage=-1.0), LossConfig()),
    ):
        assert (free.clip_high.item(), free.clip_low.item()) == (0.0, 0.0)


def test_the_importance_weight_is_cut_at_the_cap_and_carries_no_gradient() -> None:
    tokens = one_token(sampler=-3.0)  # exp(2) = 7.39, cut to 2
    sums = grpo_loss(tokens, LossConfig())
    sums.total.backward()  # type: ignore[no-untyped-call]
    assert sums.policy.item() == pytest.approx(-2.0)
    assert tokens.new_logps_N.grad is not None
    assert tokens.new_logps_N.grad.tolist() == pytest.approx([-2.0])


@pytest.mark.parametrize("reference", [300.0, 1000.0, -400.0])
def test_a_reference_far_away_is_clamped_and_stays_finite(reference: float) -> None:
    tokens = one_token(reference=reference)
    sums = grpo_loss(tokens, LossConfig(kl_coef=0.5))
    sums.total.backward()  # type: ignore[no-untyped-call]
    assert sums.kl.item() == 10.0
    assert sums.total.item() == pytest.approx(-1.0 + 5.0)
    assert tokens.new_logps_N.grad is not None
    assert tokens.new_logps_N.grad.tolist() == pytest.approx([-1.0])


def test_the_entropy_bonus_lowers_the_loss() -> None:
    assert grpo_loss(one_token(), LossConfig(entropy_coef=0.1)).total.item() == pytest.approx(-1.0 - 0.05)


def test_rows_of_one_sample_share_its_weight_and_empty_samples_count() -> None:
    # 3 samples: one row of 4 tokens; two rows of a thinking episode, 2 and 5 tokens, half each; one with an empty mask.
    assert token_weights([4, 2, 5, 0], [1.0, 0.5, 0.5, 1.0], 3) == pytest.approx([1 / 12, 1 / 12, 1 / 30, 0.0])
    assert math.fsum([4 / 12, 2 / 12, 5 / 30]) == pytest.approx(2 / 3)
