"""Polling: often while it succeeds, ever more rarely while it does not."""

from __future__ import annotations

from sandbox.patience import Patience


def polled(patience: Patience, frames: int) -> list[bool]:
    """For each frame whether it was polled for; every poll is in vain."""
    tries = []
    for _ in range(frames):
        tries.append(patience.try_now())
        if tries[-1]:
            patience.missed()
    return tries


def test_every_frame_is_polled_for_while_that_succeeds() -> None:
    patience = Patience()
    for _ in range(100):
        assert patience.try_now()
        patience.hit()


def test_in_vain_it_waits_twice_as_long_each_time() -> None:
    tries = polled(Patience(), 1 + 1 + 1 + 2 + 1 + 4 + 1)
    assert tries == [True, False, True, False, False, True, False, False, False, False, True]


def test_it_never_gives_up_and_costs_little() -> None:
    tries = polled(Patience(), 65 * 40)
    assert 35 <= sum(tries) <= 50
    assert any(tries[-65:])


def test_one_success_forgets_all_misses() -> None:
    patience = Patience()
    polled(patience, 200)
    while not patience.try_now():
        pass
    patience.hit()
    assert polled(patience, 3) == [True, False, True]
