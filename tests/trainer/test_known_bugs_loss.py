"""Bugs other trainers had in loss, advantage and normalisation (N-1 … N-19 of our survey), each tried on this one.

Where the specification decides otherwise than the project that had the bug, the number here is the specification's: a batch is a mean over
samples of means over their own tokens, and a sample whose mask is all zero is still a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.tiny_model import save_tiny_model
from trainer.config import LossConfig, OptimConfig
from trainer.errors import UserError
from trainer.learn.advantage import group_advantages, outcome_reward
from trainer.learn.batch import build_packs
from trainer.learn.engine import TrainRow
from trainer.learn.loss import LossTokens, grpo_loss, token_weights
from trainer.learn.packed import register_packed_attention
from trainer.learn.plain import PlainLearner
from trainer.learn.ranks import OneRank
from trainer.presets import load_preset, with_overrides
from trainer.rollout.dialogue import Row
from trainer.rollout.play import Episode
from trainer.state import Environment, TrainingState
from trainer.update import batch_metrics, make_batch


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


def row(sample: str, mask: Sequence[int], *, advantage: float = 1.0, weight: float = 1.0) -> TrainRow:
    ids = tuple(50 + i for i in range(len(mask)))
    return TrainRow(
        sample, "agent", (10, 11), ids, tuple(mask), tuple(-6.0 * bit for bit in mask), advantage, 1.0, 0, weight
    )


def learner(directory: Path, *, budget: int = 16384, loss: LossConfig | None = None, **optim: float) -> PlainLearner:
    from trainer.weights import load_model

    settings = OptimConfig(**{"learning_rate": 1e-3, "grad_clip": 1e9, "micro_batch_tokens": budget, **optim})
    attention = register_packed_attention()
    model, reference = (load_model(directory, dtype=torch.float64, device="cpu", attention=attention) for _ in "ab")
    return PlainLearner(model, None, loss=loss or LossConfig(), optim=settings, seed=0, reference=reference)


def gradients(trained: PlainLearner) -> list[torch.Tensor]:
    return [p.grad.clone() for p in trained._model.parameters()]


def weights_of_tokens(rows: Sequence[TrainRow], ranks: OneRank | None = None) -> list[float]:
    packs = build_packs(
        rows, budget=1000, rollout=0, all_count=True, dtype=torch.float64, device=torch.device("cpu"), ranks=ranks
    )
    return [w for pack in packs for w in pack.weights_N.tolist()]


def flat(samples: Sequence[Sequence[float]], total_samples: int | None = None, **columns: float) -> LossTokens:
    """Samples given as the losses of their tokens: advantage minus the loss, all log-probs equal unless a column says otherwise."""
    weights = token_weights([len(s) for s in samples], [1.0] * len(samples), total_samples or len(samples))
    values = [v for s in samples for v in s]

    def column(name: str) -> torch.Tensor:
        return torch.full((len(values),), columns.get(name, -1.0), dtype=torch.float64)

    return LossTokens(
        new_logps_N=column("new").requires_grad_(), old_logps_N=column("old"), sampler_logps_N=column("sampler"),
        reference_logps_N=column("reference"), entropy_N=torch.zeros(len(values), dtype=torch.float64),
        advantages_N=-torch.tensor(values, dtype=torch.float64),
        weights_N=torch.tensor([w for s, w in zip(samples, weights, strict=True) for _ in s], dtype=torch.float64),
    )  # fmt: skip


def loss_of(tokens: LossTokens, config: LossConfig | None = None) -> float:
    return grpo_loss(tokens, config or LossConfig()).total.item()


def session(**overrides: Any) -> Any:
    """As much of a session as `make_batch` looks at, without designs that wait."""
    config = with_overrides(load_preset("tiny"), overrides)
    return SimpleNamespace(config=config, state=TrainingState.fresh(config, None))


def episode(environment: str, play: int, reward: float, *, status: str = "lost", words: int = 2) -> Episode:
    """An ended episode with `words` sampled tokens; with none its first observation filled the context."""
    place = Environment(environment, "", 0, "Optimization", "GameEnv", "", None)
    ids = tuple(range(50, 50 + words))
    said = Row((10,), ids, (1,) * words, (-6.0,) * words)
    dialogue: Any = SimpleNamespace(rows=lambda: [said] if words else [], context_ids=(10,))
    return Episode(place, "unhinted", 0, play, 0, dialogue=dialogue, rewards=[reward], status=status)  # type: ignore[arg-type]


def test_n01_the_tokens_of_a_masked_sequence_do_not_count_in_a_denominator(model_directory: Path) -> None:
    # One of two sequences of 4 tokens is truncated and masked. It stays a sample (the specification says so), so the other one's
    # tokens weigh 1/(2 · 4) each; its own 4 tokens would make that 1/8 · 4/8 if they counted.
    assert weights_of_tokens([row("a", (1, 1, 1, 1)), row("b", (0, 0, 0, 0))]) == [0.125] * 4
    assert weights_of_tokens([row("a", (1, 1, 0, 0))]) == [0.5, 0.5]
    trained = learner(model_directory)
    metrics = trained.update([row("a", (0, 0, 0, 0)), row("b", (0, 0))], rollout=0)
    assert (metrics["loss/total"], metrics["optim/grad_norm"]) == (None, 0.0)  # nothing to measure, no NaN
    assert all(torch.isfinite(tensor).all() for _, tensor in trained.weights())


def test_n02_a_rank_with_few_tokens_is_not_over_weighted() -> None:
    # Rank 0: one sample of 2 tokens, loss 1; rank 1: samples of 5 and 1 tokens, losses 4 and 7. Mean of the ranks' means: 3.25.
    first, second = flat([[1.0, 1.0]], 3), flat([[4.0] * 5, [7.0]], 3)
    assert loss_of(first) + loss_of(second) == pytest.approx(4.0)
    # Two real processes: learn/test_ranks.py.


def test_n03_micro_batches_are_not_averaged() -> None:
    # Samples of 1 | 2 | 2 tokens with losses 1 | 2, 6 | 7: their mean is (1 + 4 + 7) / 3. Cut after the first, a mean of means is 3.25.
    whole = flat([[1.0], [2.0, 6.0], [7.0, 7.0]])
    parts = [
        LossTokens(*(getattr(whole, f.name)[a:b] for f in fields(LossTokens))) for a, b in ((0, 1), (1, 3), (3, 5))
    ]
    assert loss_of(whole) == pytest.approx(4.0)
    assert sum(loss_of(part) for part in parts) == pytest.approx(4.0)


def test_n04_a_group_of_one_play_is_refused() -> None:
    with pytest.raises(UserError, match=r"schedule.plays: .*greater than or equal to 2"):
        with_overrides(load_preset("tiny"), {"schedule.plays": 1})


def test_n05_four_micro_batches_give_the_sum_of_their_four_gradients(model_directory: Path) -> None:
    rows = [row(name, (1, 1, 0, 1), advantage=a) for name, a in (("a", 1.0), ("b", -2.0), ("c", 0.5), ("d", 3.0))]
    rows = [replace(r, prompt_ids=tuple(range(10 + i, 50 + i))) for i, r in enumerate(rows)]  # two do not fit 64 tokens
    small = learner(model_directory, budget=64)
    assert len(small._packs(rows, 0)) == 4
    small.update(rows, rollout=0)
    total = [torch.zeros_like(p) for p in small._model.parameters()]
    for one in rows:
        alone = learner(model_directory)
        alone.update([one], rollout=0)
        total = [t + g / 4 for t, g in zip(total, gradients(alone), strict=True)]  # four samples
    for got, expected in zip(gradients(small), total, strict=True):
        assert torch.allclose(got, expected, atol=1e-12)
    assert max(g.abs().max().item() for g in total) > 1e-3


def test_n06_the_aggregation_is_over_samples_first() -> None:
    # 2 tokens of loss 1 and 8 of loss 3: (1 + 3) / 2 = 2; a mean over tokens would be 2.6.
    assert loss_of(flat([[1.0] * 2, [3.0] * 8])) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "rewards", [[float(np.float32(0.9))] * 8, [0.9, float(np.float32(0.9))] * 4, [0.1 + 0.2, 0.3] * 4]
)
def test_n07_equal_rewards_give_exactly_zero_although_float32_does_not(rewards: list[float]) -> None:
    assert float(np.float32(0.9)) != 0.9
    assert group_advantages(rewards) == [0.0] * 8


def test_n08_observation_tokens_carry_no_kl(model_directory: Path) -> None:
    # Reference 0.1 above the policy on 3 model tokens: KL is exp(0.1) - 1 - 0.1, not 3/5 of it because two observation tokens are there.
    weights = weights_of_tokens([row("a", (1, 1, 0, 0, 1))])
    assert weights == pytest.approx([1 / 3] * 3)
    sums = grpo_loss(flat([[0.0] * 3], reference=-0.9), LossConfig(kl_coef=1.0))
    assert sums.kl.item() == pytest.approx(0.1051709180756477 - 0.1)
    # And through the model: what the last observation says moves neither KL nor gradient.
    config, results = LossConfig(kl_coef=0.5), []
    for tail in ((90, 91), (7, 300)):
        trained = learner(model_directory, loss=config)
        with torch.no_grad():
            trained._model.model.norm.weight.mul_(1.3)  # away from the reference
        base = row("a", (1, 1, 1, 0, 0))
        results.append(trained.update([replace(base, token_ids=base.token_ids[:3] + tail)], rollout=0))
    assert results[0]["loss/kl"] == results[1]["loss/kl"] > 1e-3


def test_n09_an_empty_mask_beside_others_is_a_sample_of_loss_zero(model_directory: Path) -> None:
    alone, beside = learner(model_directory), learner(model_directory)
    full = row("a", (1, 1, 1))
    expected = alone.update([full], rollout=0)
    metrics = beside.update([full, row("b", (0, 0, 0))], rollout=0)
    assert metrics["loss/total"] == pytest.approx(expected["loss/total"] / 2, abs=1e-12)
    for got, other in zip(gradients(beside), gradients(alone), strict=True):
        assert torch.isfinite(got).all()
        assert torch.allclose(got, other / 2, atol=1e-12)


def test_n09_an_episode_without_a_reply_is_a_sample_too(model_directory: Path) -> None:
    group = [episode("e", 0, 0.0, status="context_full", words=0), episode("e", 1, 1.0), episode("e", 2, 0.0)]
    batch = make_batch(session(), group, 0)
    assert [(r.sample, r.prompt_ids, r.token_ids) for r in batch.rows if not r.token_ids] == [("e/o0/u/00", (10,), ())]
    assert len(batch.rows) == len(batch.agent_rewards) == 3
    without, beside = learner(model_directory), learner(model_directory)
    without.update([r for r in batch.rows if r.token_ids], rollout=0)
    beside.update(batch.rows, rollout=0)
    for got, other in zip(gradients(beside), gradients(without), strict=True):
        assert torch.allclose(got, other * 2 / 3, atol=1e-7)  # norms compute in fp32


def test_n10_the_loss_changes_none_of_its_inputs() -> None:
    tokens = flat([[1.0, -2.0], [0.5]], new=-1.1, sampler=-0.7, reference=-2.0)
    before = [getattr(tokens, f.name).detach().clone() for f in fields(LossTokens)]
    sums = grpo_loss(tokens, LossConfig(kl_coef=0.3, entropy_coef=0.1))
    sums.total.backward()  # type: ignore[no-untyped-call]
    for f, value in zip(fields(LossTokens), before, strict=True):
        assert torch.equal(getattr(tokens, f.name).detach(), value), f.name


def test_n11_a_reward_of_zero_is_a_reward() -> None:
    assert outcome_reward([1.0, 0.0], terminated=True) == 0.0
    assert episode("e", 0, 0.0).reward == 0.0
    assert episode("e", 0, 0.0, status="env_error").reward is None
    batch = make_batch(session(), [episode("e", 0, 0.0), episode("e", 1, 1.0)], 0)
    assert batch.agent_rewards == [0.0, 1.0]
    assert batch.agent_advantages == pytest.approx([-1.0, 1.0], abs=1e-7)


def test_n12_the_outcome_reaches_the_tokens_of_every_turn_across_observations() -> None:
    # A A O O A, reward on the last action: the advantage is on all three model tokens, and the observation's are not trained.
    (pack,) = build_packs(
        [row("a", (1, 1, 0, 0, 1), advantage=0.75)], budget=100, rollout=0, all_count=False, dtype=torch.float64,
        device=torch.device("cpu"),
    )  # fmt: skip
    assert pack.advantages_N.tolist() == [0.75] * 3
    assert pack.targets_N.tolist() == [50, 51, 54]


def test_n13_a_nan_at_a_masked_position_does_not_leak_and_the_kl_has_a_gradient(model_directory: Path) -> None:
    trained = learner(model_directory)
    poisoned = replace(row("a", (1, 0, 1)), sampler_logprobs=(-6.0, math.nan, -6.0))
    metrics = trained.update([poisoned], rollout=0)
    assert math.isfinite(metrics["loss/total"] or math.nan)
    assert all(torch.isfinite(g).all() for g in gradients(trained))
    tokens = flat([[0.0]], reference=-0.5)
    grpo_loss(tokens, LossConfig(kl_coef=0.1)).total.backward()  # type: ignore[no-untyped-call]
    assert tokens.new_logps_N.grad is not None
    assert tokens.new_logps_N.grad.item() == pytest.approx(0.1 * (1 - math.exp(0.5)))


def test_n14_the_kl_gradient_is_the_estimators_own_and_stops_at_the_clamp() -> None:
    # exp(3) - 1 - 3 = 16.1 is clamped to 10: no gradient there. The importance weight (here cut to 2) does not multiply the KL term.
    far, near = flat([[0.0]], reference=2.0), flat([[0.0]], reference=-0.5, sampler=-9.0)
    for tokens in (far, near):
        grpo_loss(tokens, LossConfig(kl_coef=0.1)).total.backward()  # type: ignore[no-untyped-call]
    assert far.new_logps_N.grad is not None
    assert near.new_logps_N.grad is not None
    assert far.new_logps_N.grad.item() == 0.0
    assert near.new_logps_N.grad.item() == pytest.approx(0.1 * (1 - math.exp(0.5)))


def test_n15_a_group_of_one_survivor_has_no_spread_to_divide_by() -> None:
    # Nothing is whitened over tokens here; over a group the standard deviation is the population's, so one value gives 0 and not NaN.
    assert group_advantages([0.7]) == [0.0]


@pytest.mark.parametrize("count", [4, 8])
def test_n16_more_ranks_than_fit_evenly_change_no_weight(count: int) -> None:
    # There are no padding rows: six rows on four or eight ranks are six rows, and every token still weighs 1/(6 · 2).
    shares = []
    for index in range(count):
        rank = OneRank()
        rank.index, rank.count = index, count
        shares.append(weights_of_tokens([row(name, (1, 1)) for name in "abcdef"], rank))
    assert [w for part in shares for w in part] == pytest.approx([1 / 12] * 12)


def test_n17_a_batch_in_which_every_group_is_all_won_steps_on_a_zero_gradient(model_directory: Path) -> None:
    # Stated rule: the optimiser sees a zero gradient. At first that is weight decay alone: w · (1 - lr · decay).
    batch = make_batch(session(), [episode("e", play, 1.0, status="won") for play in range(4)], 0)
    trained = learner(model_directory, weight_decay=0.5)
    before = {name: tensor.clone() for name, tensor in trained.weights()}
    metrics = trained.update(batch.rows, rollout=0)
    assert (metrics["loss/total"], metrics["optim/grad_norm"]) == (0.0, 0.0)
    assert batch_metrics(batch)["advantage/agent_frac_zero"] == 1.0
    for name, tensor in trained.weights():
        assert torch.allclose(tensor, before[name] * (1 - 1e-3 * 0.5), atol=1e-12), name
    assert trained.describe()["updates"] == 1


def test_n18_each_baseline_is_the_one_its_name_says() -> None:
    played = [episode("e", play, reward) for play, reward in enumerate((0.0, 0.0, 0.0, 1.0))]
    by_group = make_batch(session(**{"advantage.baseline": "group"}), played, 0)
    # Mean 1/4, population standard deviation sqrt(3)/4.
    assert by_group.agent_advantages == pytest.approx([-1 / math.sqrt(3)] * 3 + [math.sqrt(3)], abs=1e-6)
    moving = session(**{"advantage.baseline": "ema", "advantage.ema_decay": 0.5})
    assert make_batch(moving, played, 0).agent_advantages == [0.0, 0.0, 0.0, 1.0]
    assert make_batch(moving, played, 1).agent_advantages == [-0.25, -0.25, -0.25, 0.75]


def test_n19_plays_with_the_same_number_in_two_environments_are_two_groups() -> None:
    batch = make_batch(
        session(), [episode(key, play, reward) for key, rewards in (("r0000-s00", (0.0, 0.0)), ("r0000-s01", (0.0, 1.0)))
                    for play, reward in enumerate(rewards)], 0,
    )  # fmt: skip
    assert batch.agent_advantages == pytest.approx([0.0, 0.0, -1.0, 1.0], abs=1e-7)
    assert len({r.sample for r in batch.rows}) == 4
