from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch

from trainer.rollout.prefixes import PrefixStore
from trainer.rollout.sampling import UniformStream, draw
from trainer.rollout.threads import choose_threads, thread_candidates

LOG = [math.log(p) for p in (0.5, 0.25, 0.25)]


def test_a_uniform_number_picks_the_token_whose_share_of_the_line_it_falls_in() -> None:
    numbers = torch.tensor([0.0, 0.49, 0.51, 0.74, 0.76, 0.9999])
    tokens, logps = draw(torch.tensor([LOG] * 6), torch.ones(6), numbers)
    assert tokens.tolist() == [0, 0, 1, 1, 2, 2]
    assert logps.tolist() == pytest.approx([LOG[t] for t in tokens.tolist()])


def test_temperature_one_half_squares_the_odds() -> None:
    # 0.5, 0.25, 0.25 squared and normalised: 2/3, 1/6, 1/6.
    tokens, logps = draw(torch.tensor([LOG, LOG]), torch.tensor([0.5, 0.5]), torch.tensor([0.66, 0.67]))
    assert tokens.tolist() == [0, 1]
    assert logps.tolist() == pytest.approx([math.log(2 / 3), math.log(1 / 6)])


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]] * 3)
    tokens, _ = draw(logits, torch.ones(3), torch.tensor([0.0, 0.5, 1 - 2**-24]))
    assert tokens.tolist() == [1, 3, 3]


def test_uniform_numbers_depend_only_on_seed_and_place() -> None:
    forward, backward = UniformStream(5), UniformStream(5)
    assert [backward[i] for i in (700, 3, 0)] == [[forward[i] for i in range(701)][i] for i in (700, 3, 0)]
    assert UniformStream(6)[0] != forward[0]
    assert 0 <= UniformStream(2**63 - 1)[0] < 1


def kv(tokens: int) -> torch.Tensor:
    return torch.arange(float(tokens)).expand(2, 1, 1, tokens).unsqueeze(-1).contiguous()  # 8 bytes a token


def test_a_stored_sequence_is_found_by_its_longest_common_beginning() -> None:
    store = PrefixStore(10_000)
    store.add(tuple(range(40)), kv(40))
    store.add((*range(20), 99, *range(20)), kv(41))
    found, shared = store.find((*range(35), 7, 7), longest=36)
    assert (shared, None if found is None else found.shape[3]) == (35, 40)
    assert store.find((*range(20), 99, 5, 5, 5), longest=23)[1] in (20, 21)
    assert store.find(range(40), longest=30)[1] == 30
    assert store.find((1, *range(1, 40)), longest=39) == (None, 0)
    assert store.find(range(15), longest=15) == (None, 0)


def test_a_continued_sequence_replaces_the_one_it_continues_and_the_budget_holds() -> None:
    store = PrefixStore(8 * 100)
    store.add(tuple(range(40)), kv(40))
    store.add(tuple(range(60)), kv(60))
    assert store.stored_bytes == 8 * 60
    store.add(tuple(range(1000, 1030)), kv(30))
    store.find(range(60), longest=60)
    store.add(tuple(range(2000, 2040)), kv(40))
    assert store.stored_bytes == 8 * 100
    assert store.find(range(1000, 1030), longest=30) == (None, 0)
    assert store.find(range(60), longest=60)[1] == 60
    store.add(tuple(range(3000, 3200)), kv(200))
    assert store.stored_bytes == 8 * 100
    store.clear()
    assert (store.stored_bytes, store.find(range(60), longest=60)) == (0, (None, 0))


def test_the_thread_choice_is_one_of_the_candidates_and_leaves_the_setting_alone() -> None:
    before = torch.get_num_threads()
    assert choose_threads([1, 2]) in (1, 2)
    assert choose_threads([1]) == 1
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="positive"):
        choose_threads([])


def test_thread_candidates_end_with_all_cores_of_the_process() -> None:
    candidates = thread_candidates()
    assert candidates[0] == 1
    assert candidates[-1] == len(os.sched_getaffinity(0))
    assert candidates == sorted(set(candidates))


def test_passive_waiting_is_set_only_before_torch_is_loaded() -> None:
    script = (
        "import os, sys\n"
        "from trainer.rollout.openmp import wait_passively\n"
        "assert 'torch' not in sys.modules\n"
        "assert wait_passively() and os.environ['OMP_WAIT_POLICY'] == 'passive' and os.environ['GOMP_SPINCOUNT'] == '7'\n"
        "sys.modules['torch'] = sys\n"
        "assert not wait_passively()\n"
    )
    environment = {**os.environ, "GOMP_SPINCOUNT": "7"}
    environment.pop("OMP_WAIT_POLICY", None)
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)
