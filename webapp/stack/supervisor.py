"""The supervisor's loop: starts services in order, shows their lines, restarts what dies, stops in reverse.

One thread only. That keeps the parent-death signal true (it follows the thread that forked) and leaves nothing to lock.
"""

import ctypes
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from webapp.stack.console import Console
from webapp.stack.errors import StackError
from webapp.stack.leftovers import children_of, command_of
from webapp.stack.paths import REPOSITORY
from webapp.stack.running import LineReader, Running, State, exit_text
from webapp.stack.service import Service
from webapp.stack.spawn import spawn

_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.25
_STARTING_TICK_S = 0.03
_STRAY_GRACE_S = 5.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(Exception):
    """A stop signal arrived while something was being started."""


class Supervisor:
    """Owns processes. Use as a context manager in the main thread: leaving it stops everything."""

    def __init__(self, console: Console, *, on_change: Callable[[Sequence[Running]], None] = lambda _all: None) -> None:
        """`on_change` is told after every change of state (it writes what `status` reads)."""
        self._console = console
        self._on_change = on_change
        self._tiers: list[list[Running]] = []
        self._selector = selectors.DefaultSelector()
        self._commands: set[int] = set()
        self._stop_requests = 0
        self._cleanup = ExitStack()

    def __enter__(self) -> "Supervisor":
        self._cleanup.enter_context(self._signals())
        # Processes whose parent was killed become our children, so that they can be ended too.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self.stop()
        finally:
            self._cleanup.close()
            self._selector.close()

    @property
    def running(self) -> list[Running]:
        """Every process under supervision, in start order."""
        return [one for tier in self._tiers for one in tier]

    def start(self, *services: Service) -> None:
        """Start services together and wait until all answer.

        Raises:
            StackError: one ended or did not answer in time.
            StopRequested: a stop signal arrived.
        """
        tier = [Running(service) for service in services]
        self._tiers.append(tier)
        for one in tier:
            self._launch(one)
        while any(one.state is not State.UP for one in tier):
            self._pump(_STARTING_TICK_S)
            if self._stop_requests:
                raise StopRequested
            for one in tier:
                self._watch_start(one)

    def run(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str], deadline_s: float, secret: bool = False
    ) -> list[str]:
        """Run a command to its end while the services go on; returns the lines it wrote, shown too unless `secret`.

        Raises:
            StackError: it failed or took too long; the text holds its last line.
            StopRequested: a stop signal arrived.
        """
        process = spawn(argv, env=env, cwd=REPOSITORY, stdout=subprocess.PIPE)
        self._commands.add(process.pid)
        assert process.stdout is not None
        lines: list[str] = []
        closed = False
        reader = LineReader(process.stdout.fileno())
        self._selector.register(process.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + deadline_s
        try:
            while process.poll() is None or not closed:
                self._pump(_STARTING_TICK_S)
                fresh, closed = reader.read()
                lines += fresh
                for line in fresh if not secret else ():
                    self._console.line(name, line)
                if self._stop_requests:
                    raise StopRequested
                if time.monotonic() > deadline:
                    raise StackError(f"{name} did not finish within {deadline_s:.0f} s; its lines are above")
        finally:
            self._selector.unregister(process.stdout)
            process.stdout.close()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._commands.discard(process.pid)
        if process.returncode != 0:
            said = next((line for line in reversed(lines) if line.strip()), exit_text(process.returncode))
            raise StackError(f"{name} failed: {said.strip()}")
        return lines

    def watch(self) -> None:
        """Keep everything running until a stop signal arrives."""
        while not self._stop_requests:
            self._pump(_TICK_S)
            for one in self.running:
                self._keep_up(one)

    def stop(self) -> None:
        """Stop everything, last started first, and end whatever the processes left behind."""
        for tier in reversed(self._tiers):
            requests_before = self._stop_requests
            endings = {one: one.stopping() for one in tier}
            while endings:
                for one, ending in list(endings.items()):
                    if self._stop_requests > max(requests_before, 1):
                        one.escalate()
                    if next(ending, StopIteration) is StopIteration:
                        del endings[one]
                        if one.process is not None:
                            self._console.say(f"{one.service.name} stopped")
                        self._changed()
                if endings:
                    self._pump(_STARTING_TICK_S)
            for one in tier:
                self._drain(one)
        self._tiers.clear()
        self._end_strays()

    def _launch(self, one: Running) -> None:
        self._forget(one)
        one.start()
        assert one.process is not None
        assert one.process.stdout is not None
        self._selector.register(one.process.stdout, selectors.EVENT_READ, one)
        self._changed()

    def _launch_again(self, one: Running) -> None:
        try:
            self._launch(one)
        except OSError as error:  # no memory for a fork, no room for a file: may pass
            delay_s = one.mark_lost()
            self._console.say(f"{one.service.name} cannot be started ({error}); trying again in {delay_s:.1f} s")

    def _watch_start(self, one: Running) -> None:
        """A first start: any trouble is final."""
        if one.state is not State.STARTING:
            return
        assert one.process is not None
        returncode = one.process.poll()
        if returncode is None and one.service.ready(one.process.pid):
            self._came_up(one)
        elif returncode is not None:
            self._drain(one)
            raise StackError(
                f"{one.service.name} {exit_text(returncode)} while starting; its last lines:\n{self._tail(one)}"
            )
        elif one.is_late():
            raise StackError(
                f"{one.service.name} did not answer within {one.service.start_deadline_s:.0f} s; its last lines:\n{self._tail(one)}"
            )

    def _keep_up(self, one: Running) -> None:
        """A running stack: what ends is started again."""
        if one.state is State.WAITING:
            if time.monotonic() >= one.retry_at:
                self._launch_again(one)
            return
        assert one.process is not None
        returncode = one.process.poll()
        if returncode is not None:
            self._drain(one)
            delay_s = one.mark_lost()
            self._console.say(f"{one.service.name} {exit_text(returncode)}; starting it again in {delay_s:.1f} s")
            self._changed()
        elif one.state is State.STARTING and one.service.ready(one.process.pid):
            self._came_up(one)
        elif one.is_late():
            self._console.say(
                f"{one.service.name} does not answer after {one.service.start_deadline_s:.0f} s; killing it"
            )
            one.kill_group()

    def _came_up(self, one: Running) -> None:
        took_s = one.mark_up()
        again = f" again (restart {one.restarts})" if one.restarts else ""
        self._console.say(f"{one.service.name} is up{again} after {took_s:.1f} s")
        self._changed()

    def _tail(self, one: Running) -> str:
        return self._console.tail(one.service.name) or "(it wrote nothing)"

    def _pump(self, timeout_s: float) -> None:
        """Wait for something to happen, show new lines, collect ended orphans."""
        for key, _events in self._selector.select(timeout_s):
            if isinstance(key.data, Running):
                self._show_lines(key.data)
            elif isinstance(key.data, socket.socket):
                with suppress(BlockingIOError):
                    key.data.recv(512)
        self._collect_orphans()

    def _show_lines(self, one: Running) -> bool:
        if one.reader is None:
            return True
        lines, closed = one.reader.read()
        for line in lines:
            self._console.line(one.service.name, line)
        if closed:
            self._forget(one)
        return closed or not lines

    def _drain(self, one: Running) -> None:
        """Show what an ended process wrote last, without waiting for a grandchild that still holds the pipe."""
        while not self._show_lines(one):
            pass
        self._forget(one)

    def _forget(self, one: Running) -> None:
        if one.reader is not None and one.process is not None and one.process.stdout is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(one.process.stdout)
        one.close()

    def _changed(self) -> None:
        self._on_change(self.running)

    def _collect_orphans(self) -> None:
        """Reap adopted processes that have ended; our own children are left to their Popen objects."""
        ours = {one.pid for one in self.running} | self._commands
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _end_strays(self) -> None:
        """End adopted processes that outlived their parents."""
        deadline = time.monotonic() + _STRAY_GRACE_S
        told: set[int] = set()
        while strays := children_of(os.getpid()):
            for pid in strays:
                command = command_of(pid).decode(errors="replace")
                with suppress(ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG)[0] == pid:
                        continue  # had ended already
                if pid not in told:
                    told.add(pid)
                    self._console.say(f"ending a left-over process: {command[:100]} ({pid})")
                    os.kill(pid, signal.SIGTERM)
                elif time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
            self._selector.select(_STARTING_TICK_S)
            if time.monotonic() > deadline + _STRAY_GRACE_S:
                self._console.say(
                    f"could not end the left-over processes {sorted(strays)}: they do not react to SIGKILL"
                )
                return

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Count stop signals, and have every signal wake the loop."""
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        self._selector.register(receiver, selectors.EVENT_READ, receiver)
        old_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        wanted = [
            number for number in _STOP_SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        old = {number: signal.signal(number, self._on_stop_signal) for number in wanted}  # nohup's choice is respected
        old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            signal.set_wakeup_fd(old_descriptor)
            receiver.close()
            sender.close()

    def _on_stop_signal(self, number: int, _frame: object) -> None:
        self._stop_requests += 1
