"""Random kills of workers and zygotes under load: no wrong reply, no lost episode unreported, nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

from sandbox import EnvironmentFault, EnvironmentHandle, HostError, Limits, Opened, Sandbox, Stepped
from tests.sandbox.processes import descriptors, processes_of, wait_until
from tests.sandbox.programs import GLOBAL_RANDOM, GUESS, MODULE_STATE

# 1,000 rounds (about a quarter of an hour) before a release; the suite needs only to see that the parts hold together.
ROUNDS = int(os.environ.get("SPADEWORK_CHAOS_ROUNDS", "2"))
ENVIRONMENTS, EPISODES, STEPS = (24, 32, 10) if ROUNDS > 10 else (6, 16, 10)
SOURCES = (GUESS, GLOBAL_RANDOM, MODULE_STATE)


def _transcripts(box: Sandbox, versions: int, episodes: int, steps: int) -> list[list[str] | None]:
    """Observations per episode, None for one that ended in a reported error."""
    handles: list[EnvironmentHandle] = []
    try:
        for place in range(versions):
            handles.append(box.load(SOURCES[place % len(SOURCES)]))
        requests = [(handle, seed, 25) for handle in handles for seed in range(episodes)]
        opened = box.reset_many(requests)
        texts: list[list[str] | None] = [[each.observation] if isinstance(each, Opened) else None for each in opened]
        for turn in range(steps):
            live = [place for place, text in enumerate(texts) if text is not None]
            action = f"\\boxed{{{1000 + turn}}}"
            pairs = [(each.episode, action) for place in live if isinstance(each := opened[place], Opened)]
            for place, answer in zip(live, box.step_many(pairs), strict=True):
                text = texts[place]
                assert text is not None
                if isinstance(answer, Stepped):
                    text.append(answer.observation)
                else:
                    assert isinstance(answer, EnvironmentFault)
                    texts[place] = None
        return texts
    finally:
        for handle in handles:
            handle.close()


@pytest.mark.slow
def test_random_kills_give_no_wrong_reply_and_leave_nothing() -> None:
    before = descriptors()
    others = set(processes_of(os.getpid()))
    generator = random.Random(7)
    with Sandbox(Limits(max_workers=64)) as box:
        expected = _transcripts(box, ENVIRONMENTS, EPISODES, STEPS)
        assert None not in expected
        reported = lost = 0
        for _ in range(ROUNDS):
            done = threading.Event()
            killed = [0]

            def kill_sometimes(done: threading.Event = done, killed: list[int] = killed) -> None:
                while not done.wait(generator.uniform(0.03, 0.25)):
                    victims = sorted(set(processes_of(os.getpid())) - others)
                    # Not while there is little but a zygote that is starting: three of those in a row end the round.
                    if len(victims) > 4 and killed[0] < 6:
                        killed[0] += 1
                        try:
                            os.kill(generator.choice(victims), signal.SIGKILL)
                        except ProcessLookupError:
                            continue

            killer = threading.Thread(target=kill_sometimes)
            killer.start()
            try:
                seen = _transcripts(box, ENVIRONMENTS, EPISODES, STEPS)
            except HostError as error:
                # Three kills of one worker or zygote in a row: reported, not guessed.
                assert "killed from outside" in str(error) or "in 3 attempts" in str(error)
                reported += 1
                continue
            finally:
                done.set()
                killer.join()
            for place, text in enumerate(seen):
                lost += text is None
                assert text is None or text == expected[place]
        print(
            f"{ROUNDS} rounds: {reported} ended in a reported error, {lost} episodes were reported lost, {box.statistics()}"
        )
    assert wait_until(lambda: set(processes_of(os.getpid())) <= others)
    assert wait_until(lambda: descriptors() == before)
