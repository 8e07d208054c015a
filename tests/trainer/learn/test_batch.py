from __future__ import annotations

import pytest
import torch

from trainer.learn.batch import build_packs, check_rows, plan_packs, split_minibatches
from trainer.learn.engine import TrainRow

CPU = torch.device("cpu")


def row(
    sample: str, *, prompt: int = 2, mask: tuple[int, ...] = (1, 1), advantage: float = 1.0, weight: float = 1.0
) -> TrainRow:
    count = len(mask)
    return TrainRow(
        sample, "agent", tuple(range(10, 10 + prompt)), tuple(range(50, 50 + count)), mask,
        tuple(-1.0 * bit for bit in mask), advantage, 0.7, 3, weight,
    )  # fmt: skip


def test_packs_fill_the_budget_longest_first_and_a_longer_row_is_alone() -> None:
    assert plan_packs([3, 9, 4, 2, 30], 9) == [[4], [1], [2, 0, 3]]
    assert plan_packs([], 9) == []


def test_targets_are_the_mask_1_tokens_and_are_predicted_by_the_token_before() -> None:
    packs = build_packs(
        [row("a", mask=(1, 0, 1, 0)), row("b", prompt=1, mask=(1, 1))],
        budget=100, rollout=3, all_count=False, dtype=torch.float64, device=CPU,
    )  # fmt: skip
    assert len(packs) == 1
    pack = packs[0]
    # Row a without its last masked token: 10 11 50 51 52; row b: 10 50 51.
    assert pack.pack.token_ids_T.tolist() == [10, 11, 50, 51, 52, 10, 50, 51]
    assert pack.pack.positions_T.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert pack.pack.bounds == (0, 5, 8)
    assert pack.before_N.tolist() == [1, 3, 5, 6]
    assert pack.targets_N.tolist() == [50, 52, 50, 51]
    assert pack.weights_N.tolist() == [0.25] * 4
    assert pack.current_N.all()


def test_rows_that_cannot_move_a_weight_are_packed_apart_and_empty_masks_not_at_all() -> None:
    rows = [row("a"), row("b", advantage=0.0), row("c", mask=(0, 0))]
    live, idle = build_packs(rows, budget=100, rollout=4, all_count=False, dtype=torch.float64, device=CPU)
    assert (live.has_gradient, idle.has_gradient) == (True, False)
    assert live.weights_N.tolist() == pytest.approx([1 / 6, 1 / 6])
    assert not live.current_N.any()
    (both,) = build_packs(rows, budget=100, rollout=4, all_count=True, dtype=torch.float64, device=CPU)
    assert len(both.targets_N) == 4


def test_minibatches_keep_the_rows_of_a_sample_together() -> None:
    rows = [row(name, weight=0.5) for name in "abcdefg" for _ in range(2)]
    parts = split_minibatches(rows, 3, torch.Generator().manual_seed(1))
    assert sorted(len(part) for part in parts) == [4, 4, 6]
    for part in parts:
        assert all([r.sample for r in part].count(r.sample) == 2 for r in part)
    assert split_minibatches(rows, 3, torch.Generator().manual_seed(1)) == parts
    assert len(split_minibatches(rows, 64, torch.Generator())) == 7
    assert split_minibatches([], 3, torch.Generator()) == []


def test_the_same_key_in_both_roles_is_two_samples() -> None:
    design = TrainRow("a", "designer", (1,), (2,), (1,), (-1.0,), 1.0, 0.6, 0)
    (pack,) = build_packs([row("a"), design], budget=100, rollout=3, all_count=False, dtype=torch.float64, device=CPU)
    assert sorted(pack.weights_N.tolist()) == pytest.approx([0.25, 0.25, 0.5])


def test_misaligned_rows_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="row of broken"):
        check_rows([TrainRow("broken", "agent", (1,), (2, 3), (1,), (-1.0, -1.0), 1.0, 1.0, 0)])
