"""Nothing of a sandbox outlives it, and a lost process loses no episode without saying so."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox import EnvironmentFault, HostError, Limits, Opened, Sandbox, Stepped
from sandbox.isolation.tiers import TIERS
from tests.sandbox.conftest import fault_of, open_one, step_one
from tests.sandbox.hostile import REACH
from tests.sandbox.processes import descriptors, processes_of, wait_until
from tests.sandbox.programs import GUESS, environment

ROOT = Path(__file__).parents[2]
HANG = environment(step="sum(range(10**12))")


def _children_apart_from(others: set[int]) -> set[int]:
    return set(processes_of(os.getpid())) - others


@pytest.fixture
def others() -> set[int]:
    """Processes of the sandboxes that other tests keep."""
    return set(processes_of(os.getpid()))


def test_close_leaves_no_process_and_no_descriptor(others: set[int]) -> None:
    before = descriptors()
    for _ in range(3):
        with Sandbox() as box:
            for source in (GUESS, environment(), environment(step="return np.zeros(2), 0.0, False, False, {}")):
                open_one(box, source)
            assert _children_apart_from(others)
        assert wait_until(lambda: not _children_apart_from(others))
    assert descriptors() == before


def test_a_failed_start_leaves_nothing(others: set[int]) -> None:
    before = descriptors()
    with pytest.raises(Exception, match=r"broke|ended|did not start|failed to start"):
        Sandbox(Limits(memory_bytes=1))
    assert wait_until(lambda: not _children_apart_from(others))
    assert descriptors() == before


def test_closing_environments_gives_back_their_processes_and_descriptors(sandbox: Sandbox) -> None:
    sandbox.load(GUESS).close()
    before, processes = descriptors(), len(processes_of(os.getpid()))
    for _ in range(10):
        handle = sandbox.load(GUESS)
        sandbox.reset_many([(handle, 1, 5), (handle, 2, 5)])
        handle.close()
    assert descriptors() == before
    assert wait_until(lambda: len(processes_of(os.getpid())) == processes)


def test_hard_kills_leave_no_process_and_no_descriptor() -> None:
    with Sandbox(Limits(step_soft_s=0.1, step_hard_s=0.3)) as box:
        open_one(box, GUESS)
        before, processes = descriptors(), len(processes_of(os.getpid()))
        for _ in range(3):
            handle = box.load(HANG)
            (opened,) = box.reset_many([(handle, 1, 5)])
            assert isinstance(opened, Opened)
            answer = step_one(box, opened.episode)
            assert isinstance(answer, EnvironmentFault)
            assert answer.kind == "timeout"
            handle.close()
        assert descriptors() == before
        assert wait_until(lambda: len(processes_of(os.getpid())) == processes)


@pytest.mark.parametrize("tier", TIERS)
def test_sigkill_of_the_host_kills_everything_even_a_spinning_worker(tier: str) -> None:
    script = (
        "import sys, threading\n"
        "from sandbox import Sandbox, Limits\n"
        "from tests.sandbox.programs import GUESS, environment\n"
        f"box = Sandbox(Limits(step_soft_s=60, step_hard_s=90), {tier!r}, only=True)\n"
        "(opened,) = box.reset_many([(box.load(environment(step='while True: pass')), 1, 5)])\n"
        "box.load(GUESS)\n"
        "threading.Thread(target=box.step_many, args=([(opened.episode, 'x')],)).start()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert host.stdin is not None
    assert host.stdout is not None
    try:
        if host.stdout.readline() != "ready\n":
            pytest.skip(f"the {tier} tier is not available here")
        assert len(processes_of(host.pid)) >= 3
    finally:
        host.send_signal(signal.SIGKILL)
        host.wait()
        host.stdin.close()
        host.stdout.close()
    assert wait_until(lambda: not processes_of(host.pid), 2.0), processes_of(host.pid)


def test_a_sandbox_made_in_a_thread_that_ends_lives_on() -> None:
    made: list[Sandbox] = []
    thread = threading.Thread(target=lambda: made.append(Sandbox()))
    thread.start()
    thread.join()
    with made[0] as box:
        assert isinstance(step_one(box, open_one(box, GUESS), r"\boxed{0}"), Stepped)


def test_a_forked_child_is_refused_and_harms_nothing(sandbox: Sandbox) -> None:
    episode = open_one(sandbox, GUESS)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sandbox.close()
            sandbox.load(GUESS)
        except HostError as error:
            code = 0 if "forked child" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert isinstance(step_one(sandbox, episode, r"\boxed{0}"), Stepped)


def test_a_sandbox_can_be_made_in_a_forked_child_of_a_threaded_process(sandbox: Sandbox) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with Sandbox() as own:
                code = 0 if isinstance(step_one(own, open_one(own, GUESS), r"\boxed{0}"), Stepped) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("victim", ["workers", "everything"])
def test_processes_killed_from_outside_are_replaced_and_episodes_replayed(victim: str, others: set[int]) -> None:
    with Sandbox() as box:
        started = _children_apart_from(others)
        handle = box.load(GUESS)
        opened = [
            each for each in box.reset_many([(handle, seed, 25) for seed in range(8)]) if isinstance(each, Opened)
        ]
        reference = [step_one(box, each.episode, r"\boxed{500}") for each in opened]
        for round_ in range(3):
            doomed = _children_apart_from(others)
            for pid in sorted(doomed - started) if victim == "workers" else sorted(doomed):
                # The kernel may have been faster: workers die with their zygote.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            answers = box.step_many([(each.episode, r"\boxed{500}") for each in opened])
            for before, after in zip(reference, answers, strict=True):
                assert isinstance(before, Stepped)
                assert isinstance(after, Stepped), (round_, after)
                assert after.observation == before.observation
                assert after.info["turn"] == round_ + 2
        assert box.statistics()["episodes_replayed"] >= 16


def test_more_versions_than_workers_sleep_and_wake() -> None:
    with Sandbox(Limits(max_workers=2)) as box:
        handles = [box.load(GUESS) for _ in range(5)]
        assert box.statistics()["workers"] == 2
        for handle in handles:
            (opened,) = box.reset_many([(handle, 1, 5)])
            assert isinstance(opened, Opened)
            box.end_many([opened.episode])
        assert box.statistics()["workers"] <= 2


def test_when_all_workers_are_busy_the_next_version_waits_and_is_then_refused() -> None:
    with Sandbox(Limits(max_workers=1, room_s=0.5)) as box:
        open_one(box, GUESS)
        with pytest.raises(HostError, match="all 1 workers are busy"):
            box.load(GUESS)


def test_a_hung_environment_does_not_hold_up_another() -> None:
    with Sandbox(Limits(step_soft_s=5, step_hard_s=6)) as box:
        hung, good = open_one(box, HANG), open_one(box, GUESS)
        seen: list[object] = []

        def wait_for_it() -> None:
            try:
                seen.extend(box.step_many([(hung, "x")]))
            except HostError as error:
                seen.append(error)

        thread = threading.Thread(target=wait_for_it)
        thread.start()
        for _ in range(20):
            assert isinstance(step_one(box, good, "x"), Stepped)
        assert not seen
        box.close()
        thread.join(5)
        assert [str(error) for error in seen] == ["the sandbox was closed"]


def test_a_worker_that_goes_on_writing_after_its_reply_is_killed_at_once(quick: Sandbox) -> None:
    forge = (
        "up = frame\nwhile up.f_code.co_name != 'serve': up = up.f_back\n"
        "body = ('[' + str(up.f_locals['number']) + ',[[\"ok\",6,0.0,false,false,{}]]]\\nforged').encode()\n"
        "os.write(fd, len(body).to_bytes(4, 'big') + body)\nimport time\ntime.sleep(0.1)\n"
        "worker._clock.ends_at = None\nwhile True: os.write(fd, b'x' * 65536)"
    )
    before = set(processes_of(os.getpid()))
    episode = open_one(quick, environment(step=REACH + forge))
    assert set(processes_of(os.getpid())) - before
    answer = step_one(quick, episode)
    # A program may fake its own replies: that is no more than its own step could say.
    assert isinstance(answer, Stepped)
    assert answer.observation == "forged"
    assert wait_until(lambda: not set(processes_of(os.getpid())) - before)
    fault = step_one(quick, episode)
    assert isinstance(fault, EnvironmentFault)
    assert fault.kind == "contract"
    assert "bytes nobody asked for" in fault.message


def test_no_environment_variable_of_the_host_reaches_a_worker(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPADEWORK_TEST_SECRET", "hunter2")
    with Sandbox() as box:
        step = "import os\nreturn ' '.join(sorted(os.environ)), 0.0, False, False, {}"
        answer = step_one(box, open_one(box, environment(step=step)))
        assert isinstance(answer, Stepped)
        assert set(answer.observation.split()) <= {
            "LC_ALL", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "PYTHONUTF8",
        }  # fmt: skip


def test_a_fault_in_one_thread_of_callers_is_a_value_in_that_thread_only(quick: Sandbox) -> None:
    fault = fault_of(quick, environment(step="1 / 0"))
    assert fault.message == "ZeroDivisionError: division by zero"


def test_a_worker_killed_while_idle_leaves_no_descriptor() -> None:
    with Sandbox() as box:
        zygotes = set(processes_of(os.getpid()))
        (opened,) = box.reset_many([(box.load(GUESS), 1, 25)])
        assert isinstance(opened, Opened)
        gc.collect()
        gc.disable()  # a descriptor that only the collector would close counts as left
        try:
            before = descriptors()
            for _ in range(5):
                (worker,) = set(processes_of(os.getpid())) - zygotes
                os.kill(worker, signal.SIGKILL)
                assert wait_until(lambda: set(processes_of(os.getpid())) <= zygotes)
                assert isinstance(step_one(box, opened.episode, "\\boxed{1}"), Stepped)
            assert descriptors() == before
        finally:
            gc.enable()


@pytest.mark.parametrize("culprit", [3, 20, 39])
def test_of_many_calls_in_two_frames_only_the_one_that_hangs_is_at_fault(quick: Sandbox, culprit: int) -> None:
    swallow = "while action == 'hang':\n    try:\n        while True: pass\n    except BaseException: pass\n"
    source = environment(step=swallow + "self.n = getattr(self, 'n', 0) + 1\nreturn f'{self.n}', 0.0, False, False, {}")
    handle = quick.load(source)
    opened = quick.reset_many([(handle, seed, 25) for seed in range(40)])
    episodes = [each.episode for each in opened if isinstance(each, Opened)]
    quick.step_many([(episode, "go") for episode in episodes])
    answers = quick.step_many([(e, "hang" if place == culprit else "go") for place, e in enumerate(episodes)])
    faults = {place: answer.kind for place, answer in enumerate(answers) if isinstance(answer, EnvironmentFault)}
    assert faults == {culprit: "timeout"}
    assert {answer.observation for answer in answers if isinstance(answer, Stepped)} == {"2"}
    handle.close()
