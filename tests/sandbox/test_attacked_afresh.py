"""What a second, independent attack on the sandbox found, each as the smallest program that did it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import EnvironmentFault, GuessRule, HostError, Limits, Opened, Sandbox, SandboxHost, Stepped, replies
from sandbox.gates import _shows
from sandbox.inside.zygote import Zygote
from sandbox.isolation.tiers import TIERS
from sandbox.replies import BadReply, measures_of
from sandbox.zygote_link import ZygoteLink
from tests.sandbox.conftest import QUICK, open_one, step_one
from tests.sandbox.processes import descriptors, processes_of, wait_until
from tests.sandbox.programs import GUESS

# A program that writes its worker's answers itself: it finds the worker and the frame's number up the stack.
FORGER = """
import sys, os
def forge(reply):
    frame = sys._getframe()
    while frame.f_code.co_name != "serve": frame = frame.f_back
    seen = b""
    if type(reply) is list and len(reply) > 3 and reply[0] == "ok" and type(reply[1]) is str:
        seen, reply[1] = reply[1].encode(), len(reply[1])
    body = json.dumps([frame.f_locals["number"], [reply]]).encode() + b"\\n" + seen
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
    program = DEAF.replace(
        'return "begin", {}', "sys.modules['signal'].signal(14, lambda *_: deaf(0)); return 'begin', {}"
    )
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
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        return "soon", 0.0, False, False, {}
"""
    handle = box.load(program)
    (opened,) = box.reset_many([(handle, 1, 9)])
    assert isinstance(opened, Opened)
    living = len(processes_of(os.getpid()))
    gc.collect()
    gc.disable()  # the leak hid behind the collector
    before, started = descriptors(), box.statistics()["workers_started"]
    try:
        for _ in range(3):
            assert isinstance(step_one(box, opened.episode), Stepped)
            assert wait_until(lambda: len(processes_of(os.getpid())) == living - 1)
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


def test_a_reply_of_very_many_values_is_refused_before_it_is_parsed(box: Sandbox) -> None:
    """A megabyte of empty lists takes the host twenty to parse, and holds up everybody else."""
    source = FORGER.replace("forge(json.loads(action))", "forge([[]] * int(action))")
    answer = step_one(box, open_one(box, source), "60000")
    assert isinstance(answer, EnvironmentFault)
    assert answer.kind == "contract"
    assert "more values than the calls can have" in str(answer)


def test_a_reply_that_breaks_the_judge_reaches_its_caller(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert measures_of(["ok", {"lines": 3.0, "state_variables": 1.0}], Limits()) == {
        "lines": 3.0,
        "state_variables": 1.0,
    }


@pytest.mark.parametrize("tier", TIERS)
def test_a_program_learns_nothing_of_another_process(tier: str) -> None:
    # Where the process namespace is shared, these calls told which processes exist and how much time they had used.
    program = f"""
import os, resource, time
class WatcherEnv:
    def __init__(self, max_turns=5, **kwargs): pass
    def reset(self, seed=None): return "begin", {{}}
    def step(self, action):
        seen = []
        for pid in (os.getppid(), {os.getpid()}):
            for ask in (lambda: os.sched_getaffinity(pid), lambda: time.clock_gettime((~pid << 3) | 2),
                        lambda: time.clock_getres((~pid << 3) | 2), lambda: resource.prlimit(pid, resource.RLIMIT_AS)):
                try: seen.append(ask())
                except PermissionError: pass
        own = os.sched_getaffinity(0), time.process_time(), time.thread_time(), resource.getrlimit(resource.RLIMIT_AS)
        return f"{{seen}} {{all(own)}}", 0.0, False, False, {{}}
"""
    with Sandbox(QUICK, tier, only=True) as box:
        answer = step_one(box, open_one(box, program))
        assert isinstance(answer, Stepped)
        assert answer.observation == "[] True"


_LONG = """
class LongEnv:
    def __init__(self, max_turns=5, **kwargs): pass
    def reset(self, seed=None):
        self.turn = 0
        return f"{random.Random(seed).random()} " + WORDS + r"\\boxed{" + "\\u2026" * 15000 + "}", {}
    def step(self, action):
        self.turn += 1
        return f"{self.turn} {action[:20]!r}" + WORDS + r"\\boxed{" + "\\u2026" * 15000 + "}", 0.0, False, self.turn > 4, {}
    def solution(self): return ["x" * 100_000]
WORDS = " ".join(["w" * 40] * 100)
"""


def test_a_program_that_makes_the_player_write_too_much_is_judged_and_not_the_machine(box: Sandbox) -> None:
    # 15,000 placeholders filled with words of 40 letters, and a solution that is too long once it is boxed.
    report = box.examine(_LONG)
    outcomes = {stage.stage: stage.outcome for stage in report.stages}
    assert (outcomes["not-guessable"], outcomes["solvable"]) == ("passed", "failed")


def test_many_programs_loaded_at_the_same_time_keep_to_the_number_of_workers() -> None:
    most = 0
    stop = threading.Event()
    others = set(processes_of(os.getpid()))

    def watch() -> None:
        nonlocal most
        while not stop.is_set():
            most = max(most, len(set(processes_of(os.getpid())) - others))
            time.sleep(0.02)

    async def load_all() -> None:
        host = SandboxHost(Limits(max_workers=2), "landlock", only=True)
        await host.start()
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            await asyncio.gather(*(host.load(GUESS) for _ in range(12)))
        finally:
            stop.set()
            watcher.join()
            await host.close()

    asyncio.run(load_all())
    assert most <= 1 + 2 + 1  # the zygote, two workers, one that is just being reaped


def test_a_zygote_that_cannot_fork_says_so_and_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, "no process left")

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote = Zygote.__new__(Zygote)
    zygote._control = theirs
    monkeypatch.setattr("sandbox.inside.zygote.fork", full)

    async def ask() -> None:
        ours.setblocking(False)
        link = ZygoteLink(None, ours, "plain", "sealed")  # type: ignore[arg-type]
        asked = asyncio.ensure_future(link.fork())
        await asyncio.sleep(0)
        before = descriptors()
        assert zygote._serve_one()
        assert descriptors() == before
        with pytest.raises(HostError, match="the zygote cannot fork: Resource temporarily unavailable"):
            await asked
        asyncio.get_running_loop().remove_reader(ours.fileno())

    asyncio.run(ask())
    ours.close()
    theirs.close()


def test_many_requests_at_once_do_not_fill_the_control_socket() -> None:
    # Three hundred loads at the same time: some were told that no worker could be had, as if the machine were at fault.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)

    async def ask() -> int:
        link = ZygoteLink(None, ours, "plain", "sealed")  # type: ignore[arg-type]
        asked = [asyncio.ensure_future(link.fork()) for _ in range(300)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in asked)
        for _ in range(1000):
            link.kill(7)  # more than fit: the zygote must not be destroyed for it
        found = 0
        with contextlib.suppress(BlockingIOError):
            while theirs.recv(4096).startswith(b'{"op": "fork"'):
                found += 1
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        asyncio.get_running_loop().remove_reader(ours.fileno())
        return found

    assert asyncio.run(ask()) == 32
    ours.close()
    theirs.close()


def test_calls_that_race_with_close_from_several_threads_end_in_an_answer_or_a_typed_error() -> None:
    outcomes: list[str] = []

    def load(box: Sandbox) -> None:
        try:
            outcomes.append(box.load(GUESS).class_name)
        except BaseException as error:  # noqa: BLE001
            outcomes.append(type(error).__name__)

    for _ in range(3):
        box = Sandbox(QUICK, "landlock", only=True)
        threads = [threading.Thread(target=load, args=(box,), daemon=True) for _ in range(4)]
        threads += [threading.Thread(target=box.close, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
    assert len(outcomes) == 12
    assert set(outcomes) <= {"GuessEnv", "HostError"}


def test_requests_may_be_any_iterable_and_senseless_numbers_are_told(box: Sandbox) -> None:
    handle = box.load(GUESS)
    opened = box.reset_many((handle, seed, 5) for seed in (1, 2))  # type: ignore[arg-type]
    assert [type(answer) for answer in opened] == [Opened, Opened]
    with pytest.raises(HostError, match=r"seed must be an int in .* not one of 19932 bits"):
        box.reset_many([(handle, 10**6000, 5)])


@pytest.mark.parametrize(
    "wrong", [{"batch_items": 1.5}, {"open_files": 2.0}, {"room_s": math.inf}, {"load_s": math.nan}]
)
def test_a_limit_that_would_break_the_host_later_is_refused(wrong: dict[str, Any]) -> None:
    # Half a call to a frame raised in a callback, and the caller waited for ever.
    with pytest.raises(ValueError, match=f"Limits.{next(iter(wrong))} must be a"):
        Limits(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"seeds": 0}, {"seeds": -1}, {"seeds": True}, {"largest_rate": math.nan}, {"largest_rate": 1.5}]
)
def test_a_guess_rule_that_judges_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"GuessRule.{next(iter(wrong))} must"):
        GuessRule(**wrong)


@pytest.mark.parametrize(
    ("observation", "action", "shown"),
    [("say word now", "word", True), ("say sword now", "word", False), ("swords, word", r"\boxed{word}", True),
     ("a_word", "word", False), ("word", "word", True), ("7", "7", False), ("", "word", False)],
)  # fmt: skip
def test_a_shown_answer_is_found_as_a_whole_word(observation: str, action: str, shown: bool) -> None:
    assert _shows(observation, [action]) is shown
