from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainer.learn.rank_process import two_updates
from tests.trainer.learn.test_plain_learner import largest_difference, random_rows
from trainer.learn.batch import build_packs
from trainer.learn.ranks import OneRank, share


def test_items_go_to_the_rank_with_least_the_costliest_first() -> None:
    # 9 | 7; 5 to the second (12), 4 to the first (13), 1 to the second (13).
    assert share([4, 9, 1, 7, 5], 2) == [[1, 0], [3, 4, 2]]
    assert share([3], 3) == [[0], [], []]
    assert share([], 2) == [[], []]


class _Rank(OneRank):
    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_every_row_is_on_one_rank_and_weighs_the_same_on_any_number_of_ranks(count: int) -> None:
    options = {"budget": 1000, "rollout": 4, "all_count": False, "dtype": torch.float64, "device": torch.device("cpu")}
    whole = build_packs(random_rows(), **options)
    parts = [build_packs(random_rows(), **options, ranks=_Rank(i, count)) for i in range(count)]
    assert sorted(w for packs in parts for p in packs for w in p.weights_N.tolist()) == sorted(
        w for p in whole for w in p.weights_N.tolist()
    )
    if count <= 3:  # eight live rows in a budget that one pack would fit: every rank gets some
        assert all(any(p.has_gradient for p in packs) for packs in parts)


def test_two_processes_with_gloo_compute_what_one_computes(model_directory: Path, tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.learn.rank_process", model_directory, tmp_path, str(rank), "2"],
            cwd=Path(__file__).parents[3], stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        _, complaint = process.communicate(timeout=120)
        assert process.returncode == 0, complaint
    alone = two_updates(model_directory, None)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert 0 < first["rows_seen"] < alone["rows_seen"]
    assert first["rows_seen"] + second["rows_seen"] == alone["rows_seen"]
    for together in (first, second):
        assert largest_difference(together["weights"], alone["weights"]) < 1e-6
        assert largest_difference(together["gradient"], alone["gradient"]) < 1e-6
        for got, expected in zip(together["metrics"], alone["metrics"], strict=True):
            assert got.keys() == expected.keys()
            for name, value in expected.items():
                assert got[name] == pytest.approx(value, abs=1e-6), name
    # The third update had one row: one rank did nothing, and both hold the same gradient.
    assert largest_difference(first["gradient"], second["gradient"]) == 0.0
    assert max(gradient.abs().max().item() for gradient in first["gradient"].values()) > 1e-3
