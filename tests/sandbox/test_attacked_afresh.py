"""What a second, independent attack on the sandbox found, each as the smallest program that did it."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import EnvironmentFault, Limits, Opened, Sandbox, Stepped
from sandbox.isolation.tiers import TIERS
from sandbox.replies import BadReply, measures_of
from tests.sandbox.conftest import open_one, step_one
from tests.sandbox.processes import descriptors, processes_of, wait_until

# A program that writes its worker's answers itself: it finds the worker and the frame's number up the stack.
FORGER = """
import sys, os
def forge(reply):
    frame = sys._getframe()
    while frame.f_code.co_name != "serve": frame = frame.f_back
    body = json.dumps([frame.f_locals["number"], [reply]]).encode()
    os.write(frame.f_locals["self"]._descriptor, len(body).to_bytes(4, "big") + body)
    while True:
        try:
            while True: sys.modules["time"].sleep(1)
        except BaseException: pass
class ForgerEnv:
    def __init__(self, max_turns=5, **kwargs): pass
    def reset(self, seed=None): return "begin", {}
    def step(self, action): forge(json.loads(action))
    def solution(self): return ["a\\0b"]
"""
DEAF = """
import os, sys, time
def deaf(_):
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "_descriptor"): frame = frame.f_back
    sys.modules["signal"].setitimer(0, 0)
    os.close(frame.f_locals["self"]._descriptor)
    while True:
        try: time.sleep(1)
        except BaseException: pass
class DeafEnv:
    def __init__(self, max_turns=5, **kwargs): pass
    def reset(self, seed=None): return "begin", {}
    def step(self, action): deaf(action)
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Limits(step_soft_s=0.5, step_hard_s=1.5, close_s=0.5)) as made:
        yield made


@pytest.mark.parametrize("tier", TIERS)
def test_a_program_that_closes_its_channel_and_lives_on_is_killed_and_blamed(tier: str) -> None:
    # End-of-file used to be taken for its death: three such workers lived on for each call, and the machine was blamed.
    with Sandbox(Limits(step_soft_s=0.5, step_hard_s=1.5, close_s=0.5), tier, only=True) as box:
        before = len(processes_of(os.getpid()))
        fault = step_one(box, open_one(box, DEAF))
        assert isinstance(fault, EnvironmentFault)
        assert (fault.kind, fault.stage) == ("contract", "step")
        assert "closed its channel" in fault.message
        assert wait_until(lambda: len(processes_of(os.getpid())) <= before)
        assert box.statistics()["workers_started"] == 1


def test_a_program_that_closes_its_channel_between_calls_is_killed_with_its_environment(box: Sandbox) -> None:
    program = DEAF.replace('return "begin", {}', "sys.modules['signal'].signal(14, lambda *_: deaf(0)); return 'begin', {}")
    before = len(processes_of(os.getpid()))
    handle = box.load(program)
    (opened,) = box.reset_many([(handle, 1, 5)])
    assert isinstance(opened, Opened)
    assert len(processes_of(os.getpid())) == before + 1
    time.sleep(0.3)  # the clock of the worker ticks on after the call, and finds the program's handler
    handle.close()
    assert wait_until(lambda: len(processes_of(os.getpid())) == before)


def test_a_program_that_ends_its_worker_between_calls_leaves_no_descriptor_on_the_host(box: Sandbox) -> None:
    program = """
import os, signal
class LeaverEnv:
    def __init__(self, max_turns=9, **kwargs): pass
    def reset(self, seed=None): return "begin", {}
    def step(self, action):
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        return "soon", 0.0, False, False, {}
"""
    handle = box.load(program)
    (opened,) = box.reset_many([(handle, 1, 9)])
    assert isinstance(opened, Opened)
    gc.collect()
    gc.disable()  # the leak hid behind the collector
    before, started = descriptors(), box.statistics()["workers_started"]
    try:
        for turn in range(1, 4):
            assert isinstance(step_one(box, opened.episode), Stepped)
            time.sleep(0.2)
        assert box.statistics()["workers_started"] == started + 2
        assert descriptors() == before
    finally:
        gc.enable()
        handle.close()


@pytest.mark.parametrize(
    "reply",
    [
        '["fault", "exception", [], "m", null, "", ""]',
        '["fault", "exception", {}, "m", null, "", ""]',
        '["fault", [], "step", "m", null, "", ""]',
        '["ok", "seen", 0.5, false, false, {"a\\u0000": 1.0}]',
        '["ok", "seen", 0.5, false, false, {"\\u001b[2J": 1.0}]',
        '["ok", " \\n ", 0.5, false, false, {}]',
    ],
)
def test_a_forged_reply_is_refused_and_nobody_waits_for_ever(box: Sandbox, reply: str) -> None:
    # A list where the stage belongs is unhashable: the look-up raised in a callback and the caller waited for ever.
    fault = step_one(box, open_one(box, FORGER), reply)
    assert isinstance(fault, EnvironmentFault)
    assert (fault.kind, fault.stage) == ("contract", "step")
    assert "the worker's reply was refused" in fault.message


def test_a_reply_that_breaks_the_judge_reaches_its_caller(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox import HostError, replies

    def broken(*_: Any) -> Stepped:
        raise TypeError("nobody thought of this")

    monkeypatch.setattr(replies, "stepped_of", broken)
    episode = open_one(box, FORGER)
    with pytest.raises(HostError, match="judging a reply failed: TypeError: nobody thought of this"):
        step_one(box, episode, '["ok", "seen", 0.5, false, false, {}]')


def test_a_solution_with_control_characters_is_none(box: Sandbox) -> None:
    assert box.solution(box.load(FORGER), 1, 5) is None


@pytest.mark.parametrize("measures", [{"lines": 3.0, "guess_rate": 0.0}, {"lines": 3.0}, {}])
def test_measures_of_the_source_cannot_pass_for_those_of_the_gates(measures: dict[str, float]) -> None:
    with pytest.raises(BadReply, match="wrong names"):
        measures_of(["ok", measures], Limits())
    assert measures_of(["ok", {"lines": 3.0, "state_variables": 1.0}], Limits()) == {"lines": 3.0, "state_variables": 1.0}
