"""The supervisor's loop on real processes: order, restarts, clean ends, nothing left behind."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.processes import is_alive, processes_mentioning, wait_until
from webapp.stack.console import Console
from webapp.stack.paths import REPOSITORY

# A stack of its own: each service writes its pid to a file when it is up, and says so; `watch` runs until a signal.
STACK = """
import os, signal, sys
from pathlib import Path
from webapp.stack.console import Console
from webapp.stack.service import Service, StopStep
from webapp.stack.supervisor import StopRequested, Supervisor

directory = Path(sys.argv[1])
PROGRAM = "import os, sys; from pathlib import Path; Path(sys.argv[1]).write_text(str(os.getpid())); print('hello', flush=True); "

def service(name, body="signal.pause()", stop=(StopStep(signal.SIGTERM, 5),), deadline_s=20.0):
    file = directory / name
    return Service(
        name=name,
        argv=[sys.executable, "-c", PROGRAM + "import signal; " + body, str(file)],
        ready=lambda pid: file.exists() and file.read_text() == str(pid),
        stop=stop,
        start_deadline_s=deadline_s,
        env=dict(os.environ),
        before_start=lambda: file.unlink(missing_ok=True),
    )

with Supervisor(Console(directory)) as supervisor:
    try:
        BODY
        supervisor.watch()
    except StopRequested:
        print("requested", flush=True)
print("end", flush=True)
"""


class Stack:
    """A supervisor in a process of its own."""

    def __init__(self, directory: Path, body: str) -> None:
        self.directory = directory
        self.mark = f"SUPERVISOR_TEST={directory}"
        script = STACK.replace("BODY", "\n        ".join(body.strip().splitlines()))
        environment = {**os.environ, "SUPERVISOR_TEST": str(directory), "PYTHONPATH": str(REPOSITORY)}
        self.output = directory / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, str(directory)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=REPOSITORY,
            )

    def pid(self, name: str) -> int:
        file = self.directory / name
        wait_until(lambda: file.exists() and file.read_text() != "", what=f"the start of {name}")
        return int(file.read_text())

    def says(self, text: str) -> bool:
        return text in self.output.read_text()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.says(text), what=f"the line {text!r} in:\n{self.output.read_text()}")

    def end(self, number: signal.Signals = signal.SIGINT) -> str:
        self.process.send_signal(number)
        self.process.wait(120)
        return self.output.read_text()


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[list[Stack]]:
    made: list[Stack] = []
    yield made
    for stack in made:
        stack.process.kill()
        stack.process.wait()
        wait_until(lambda: processes_mentioning(stack.mark) == [], what="the end of all processes")  # noqa: B023


def test_services_start_in_order_and_stop_in_reverse(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path, 'supervisor.start(service("first"))\nsupervisor.start(service("second"))')
    stacks.append(stack)
    stack.wait_for("second is up")
    output = stack.end()
    assert stack.process.returncode == 0
    places = [
        output.index(words) for words in ("first is up", "second is up", "second stopped", "first stopped", "end")
    ]
    assert places == sorted(places)
    assert processes_mentioning(stack.mark) == []


def test_a_killed_service_comes_back_with_a_line_about_it(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path, 'supervisor.start(service("one"))')
    stacks.append(stack)
    stack.wait_for("one is up")
    first = stack.pid("one")
    os.kill(first, signal.SIGKILL)
    stack.wait_for("one was ended by SIGKILL; starting it again in 0.5 s")
    stack.wait_for("one is up again (restart 1)")
    assert stack.pid("one") != first


def test_a_service_that_keeps_dying_is_retried_ever_more_slowly(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path, 'supervisor.start(service("one", "import time; time.sleep(0.3); sys.exit(7)"))')
    stacks.append(stack)
    for delay_s in ("0.5", "1.0", "2.0"):
        stack.wait_for(f"one exited with code 7; starting it again in {delay_s} s")


def test_a_service_that_fails_at_first_start_ends_the_start_with_its_last_words(
    tmp_path: Path, stacks: list[Stack]
) -> None:
    stack = Stack(
        tmp_path,
        """
supervisor.start(service("good"))
bad = service("bad", "print('no such table', flush=True); sys.exit(3)")
supervisor.start(Service(**{**bad.__dict__, "ready": lambda pid: False}))
""",
    )
    stacks.append(stack)
    stack.process.wait(120)
    output = stack.output.read_text()
    assert "StackError: bad exited with code 3 while starting; its last lines:" in output
    assert "no such table" in output.partition("last lines:")[2]
    assert "good stopped" in output
    assert processes_mentioning(stack.mark) == []


def test_a_service_that_never_answers_is_given_up_at_its_deadline(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(
        tmp_path,
        'mute = service("mute", deadline_s=1.0)\nsupervisor.start(Service(**{**mute.__dict__, "ready": lambda pid: False}))',
    )
    stacks.append(stack)
    stack.process.wait(120)
    assert "StackError: mute did not answer within 1 s; its last lines:" in stack.output.read_text()


def test_a_service_that_ignores_its_stop_signals_is_killed(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(
        tmp_path,
        'supervisor.start(service("deaf", "[signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; [signal.pause() for _ in iter(int, 1)]", '
        "stop=(StopStep(signal.SIGTERM, 0.5), StopStep(signal.SIGINT, 0.5))))",
    )
    stacks.append(stack)
    stack.wait_for("deaf is up")
    pid = stack.pid("deaf")
    stack.end()
    assert not is_alive(pid)
    assert stack.process.returncode == 0


def test_a_second_interrupt_does_not_wait_for_the_grace(tmp_path: Path, stacks: list[Stack]) -> None:
    body = "signal.signal(15, lambda *_: print('asked to stop', flush=True)); [signal.pause() for _ in iter(int, 1)]"
    stack = Stack(
        tmp_path, f'supervisor.start(service("deaf", {json.dumps(body)}, stop=(StopStep(signal.SIGTERM, 600),)))'
    )
    stacks.append(stack)
    stack.wait_for("deaf is up")
    stack.process.send_signal(signal.SIGINT)
    stack.wait_for("asked to stop")
    stack.end()
    assert stack.process.returncode == 0


def test_killing_the_supervisor_leaves_nothing(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path, 'supervisor.start(service("one"), service("two"))')
    stacks.append(stack)
    stack.wait_for("two is up")
    pids = [stack.pid("one"), stack.pid("two")]
    stack.end(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)), within_s=30, what="the end of both")


def test_what_a_service_left_behind_in_another_session_is_ended_too(tmp_path: Path, stacks: list[Stack]) -> None:
    body = "import subprocess; child = subprocess.Popen(['/bin/sleep', '600'], start_new_session=True); "
    body += "Path(sys.argv[1] + '.child').write_text(str(child.pid)); signal.pause()"
    stack = Stack(tmp_path, f'supervisor.start(service("one", {json.dumps(body)}))')
    stacks.append(stack)
    stray = stack.pid("one.child")
    stack.wait_for("one is up")
    output = stack.end()
    assert not is_alive(stray)
    assert f"ending a left-over process: /bin/sleep 600 ({stray})" in output


def test_a_command_that_fails_says_why(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(
        tmp_path,
        """
command = [sys.executable, "-c", "print(1); raise SystemExit('the database is read-only')"]
supervisor.run("migrate", command, env=dict(os.environ), deadline_s=20)
""",
    )
    stacks.append(stack)
    stack.process.wait(120)
    assert "StackError: migrate failed: the database is read-only" in stack.output.read_text()


def test_a_command_that_hangs_is_ended_at_its_deadline(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(tmp_path, 'supervisor.run("migrate", ["/bin/sleep", "600"], env=dict(os.environ), deadline_s=0.5)')
    stacks.append(stack)
    stack.process.wait(120)
    assert "StackError: migrate did not finish within 0 s" in stack.output.read_text()
    assert processes_mentioning(stack.mark) == []


def test_a_secret_command_shows_nothing(tmp_path: Path, stacks: list[Stack]) -> None:
    stack = Stack(
        tmp_path,
        """
got = supervisor.run("link", [sys.executable, "-c", "print('hush')"], env=dict(os.environ), deadline_s=20, secret=True)
print("got" if got == ["hush"] else f"wrong {got}", flush=True)
""",
    )
    stacks.append(stack)
    stack.wait_for("got")
    assert "hush" not in stack.end()
    assert not (tmp_path / "link.log").exists()


def test_log_lines_cannot_steer_the_terminal(tmp_path: Path) -> None:
    output = io.StringIO()
    console = Console(tmp_path, output=output)
    console.line("gpu", "model wrote \x1b[2J\x9b31m and \u202eevil\u202c\ttab é")
    assert output.getvalue() == "gpu       | model wrote \\x1b[2J\\x9b31m and \\u202eevil\\u202c\ttab é\n"
    console.close()


def test_log_files_do_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.stack.console._LOG_LIMIT_BYTES", 1000)
    console = Console(tmp_path, output=io.StringIO())
    for number in range(200):
        console.line("web", f"line {number}")
    console.close()
    assert (tmp_path / "web.log").stat().st_size < 1200
    assert (tmp_path / "web.log.1").stat().st_size < 1200
    assert "line 199" in (tmp_path / "web.log").read_text()
