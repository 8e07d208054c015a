"""Host side of a zygote: start it, ask it for workers, ask it to kill them, hear of their exits.

Must be used on the event loop's own long-lived thread: the kernel ties the parent-death signal of the zygote to the thread
that started it, so a zygote started from a short-lived thread would be killed when that thread ends.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import importlib.util
import json
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandbox.cgroup import ControlGroup
from sandbox.errors import HostError, SandboxUnavailable
from sandbox.limits import Limits

_BOOTSTRAP = (
    "import sys,types;p=types.ModuleType('sandbox');p.__path__=[sys.argv[1]];sys.modules['sandbox']=p;"
    "sys.path.extend(sys.argv[4:]);from sandbox.inside.zygote import main;main(int(sys.argv[2]),int(sys.argv[3]))"
)
_OPTIONAL_PACKAGES = ("numpy", "math_verify", "sympy", "mpmath", "latex2sympy2_extended", "antlr4")
_MESSAGE_BYTES = 4096
# Requests under way: some hundred small messages fill the control socket, whatever they say.
_FORKS_ASKED = 32
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _package_folders() -> list[str]:
    """Folders that hold the optional packages, found without importing them."""
    folders: list[str] = []
    for name in _OPTIONAL_PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin is not None:
            folder = str(Path(spec.origin).parent.parent)
            if folder not in folders:
                folders.append(folder)
    return folders


def _worker_environment() -> dict[str, str]:
    """The whole environment of zygote and workers: nothing of the host's, hash seed fixed, one numeric thread."""
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", **dict.fromkeys(threads, "1")}


class ZygoteLink:
    """One running zygote of one flavour in one tier."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, flavour: str, tier: str) -> None:
        """Use `start`."""
        self._process = process
        self._control = control
        self.flavour = flavour
        self.tier = tier
        self.alive = True
        self.missing: list[str] = []
        self.layers: list[str] = []
        self.group: ControlGroup | None = None
        self.in_flight = 0
        """Frames its workers owe an answer to."""
        self._loop = asyncio.get_running_loop()
        self._next_id = 0
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._forks: dict[int, asyncio.Future[int]] = {}
        self._fork_places = asyncio.Semaphore(_FORKS_ASKED)
        self._exits: dict[int, asyncio.Future[int | None]] = {}
        self._loop.add_reader(control.fileno(), self._on_message)

    @property
    def pid(self) -> int:
        """Process number of the zygote (or its launcher) as the host sees it."""
        return self._process.pid

    @classmethod
    async def start(cls, flavour: str, tier: str, limits: Limits, group: ControlGroup | None = None) -> ZygoteLink:
        """Start a zygote and wait until it has preloaded; raises `SandboxUnavailable` with its own words if it fails."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [str(Path(__file__).parent), str(theirs.fileno()), str(os.getpid()), *_package_folders()]
        try:
            process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-c", _BOOTSTRAP, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_worker_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise SandboxUnavailable(f"cannot start the interpreter {sys.executable}: {error}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        link = cls(process, ours, flavour, tier)
        # It waits for its settings, so nothing of it is outside the group.
        link.group = group if group is not None and group.add(process.pid) else None
        try:
            ours.send(json.dumps(_settings(flavour, tier, limits)).encode())
            answer = await asyncio.wait_for(link._ready, limits.spawn_s)
        except (TimeoutError, HostError, OSError) as error:
            late = f"no answer in {limits.spawn_s:g} s"
            words = await link.close(limits.close_s) or (late if isinstance(error, TimeoutError) else str(error))
            raise SandboxUnavailable(f"the {tier} tier did not start: {words}") from error
        except BaseException:
            await link.close(limits.close_s)
            raise
        link.missing = [str(name) for name in answer.get("missing", [])]
        link.layers = [str(name) for name in answer.get("layers", [])]
        if link.group is not None:
            link.layers.append(link.group.layer)
        return link

    def _on_message(self) -> None:
        while self.alive:
            try:
                data = self._control.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lost()
                return
            message = json.loads(data)
            if "ready" in message and not self._ready.done():
                self._ready.set_result(message)
            elif "error" in message:
                refused = self._forks.pop(message["id"], None)
                if refused is not None and not refused.done():
                    refused.set_exception(HostError(f"the zygote cannot fork: {message['error']}"))
            elif "id" in message:
                self._exits[message["pid"]] = self._loop.create_future()
                future = self._forks.pop(message["id"], None)
                if future is not None and not future.done():
                    future.set_result(message["pid"])
            elif "exit" in message:
                exit_future = self._exits.get(message["exit"])
                if exit_future is not None and not exit_future.done():
                    exit_future.set_result(message["status"])

    def _lost(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        error = HostError("the zygote ended unexpectedly")
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._forks.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved here, so that nobody waiting for it means no warning
        for exit_future in self._exits.values():
            if not exit_future.done():
                exit_future.set_result(None)
        self._forks.clear()

    async def fork(self) -> tuple[int, socket.socket, mmap.mmap]:
        """A new worker: its number in the zygote's eyes, our end of its socket, its progress page."""
        async with self._fork_places:
            return await self._ask_for_fork()

    async def _ask_for_fork(self) -> tuple[int, socket.socket, mmap.mmap]:
        if not self.alive:
            raise HostError("the zygote has ended")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mapping: mmap.mmap | None = None
        page = os.memfd_create("sandbox-progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(page, mmap.PAGESIZE)
            # Without the seals a worker could shrink the page under the host's mapping.
            fcntl.fcntl(page, fcntl.F_ADD_SEALS, _SEALS)
            mapping = mmap.mmap(page, mmap.PAGESIZE, prot=mmap.PROT_READ)
            self._next_id += 1
            number = self._next_id
            future: asyncio.Future[int] = self._loop.create_future()
            self._forks[number] = future
            request = json.dumps({"op": "fork", "id": number}).encode()
            rights = array.array("i", [theirs.fileno(), page])
            self._control.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as error:
            ours.close()
            if mapping is not None:
                mapping.close()
            raise HostError(f"cannot ask the zygote for a worker: {error}") from error
        finally:
            theirs.close()
            os.close(page)
        try:
            pid = await future
        except BaseException:
            ours.close()
            mapping.close()
            raise
        ours.setblocking(False)
        return pid, ours, mapping

    def kill(self, pid: int) -> None:
        """Ask for SIGKILL of one worker; its end-of-file is the confirmation."""
        if not self.alive:
            self.destroy()
            return
        try:
            self._control.send(json.dumps({"op": "kill", "pid": pid}).encode())
        except BlockingIOError:
            # The control socket is full: no reason to end every other worker.
            self._loop.call_later(0.01, self.kill, pid)
        except OSError:
            self.destroy()

    def destroy(self) -> None:
        """SIGKILL the zygote; the kernel then kills every worker of it."""
        if self._process.poll() is None:
            self._process.kill()

    async def exit_status(self, pid: int, wait_s: float) -> int | None:
        """Exit code (negative: signal) of a worker, or None when nobody could tell in `wait_s` seconds."""
        future = self._exits.get(pid)
        if future is None:
            return None
        try:
            return await asyncio.wait_for(asyncio.shield(future), wait_s)
        except TimeoutError:
            return None
        finally:
            if future.done():
                self._exits.pop(pid, None)

    async def close(self, wait_s: float) -> str:
        """End the zygote and its workers; returns what it wrote to standard error (capped)."""
        self._lost()
        deadline = self._loop.time() + wait_s
        while self._process.poll() is None and self._loop.time() < deadline - wait_s / 2:
            await asyncio.sleep(0.002)  # it leaves by itself at end-of-file of the control socket
        self.destroy()
        while self._process.poll() is None and self._loop.time() < deadline:
            await asyncio.sleep(0.002)
        words = b""
        if self._process.stderr is not None and not self._process.stderr.closed:
            os.set_blocking(self._process.stderr.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                words = self._process.stderr.read(4096) or b""
            self._process.stderr.close()
        if self._process.returncode is None:
            raise HostError(f"the zygote {self._process.pid} did not die within {wait_s:g} s")
        lines = words.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("sandbox.isolation.kernel.IsolationError: ") if lines else ""


def _settings(flavour: str, tier: str, limits: Limits) -> dict[str, Any]:
    """The one configuration message to a zygote."""
    return {
        "flavour": flavour,
        "tier": tier,
        "memory_bytes": limits.memory_bytes,
        "open_files": limits.open_files,
        "worker": {
            "step_soft_s": limits.step_soft_s,
            "load_s": limits.load_s,
            "observation_chars": limits.observation_chars,
            "stdout_bytes": limits.stdout_bytes,
            "traceback_chars": limits.traceback_chars,
            "info_entries": limits.info_entries,
            "reward_abs": limits.reward_abs,
            "solution_actions": limits.solution_actions,
            "action_chars": limits.action_chars,
            "frame_bytes": limits.frame_bytes(),
        },
    }
