"""The zygote: preloads one flavour, then forks a sealed worker on every request. It never sees generated source.

Control messages are single datagrams on a sequenced-packet socket (a stream would merge them): host to zygote
`{"op": "fork", "id": n}` with two descriptors (worker socket, progress page) or `{"op": "kill", "pid": p}`;
zygote to host `{"ready": …}`, `{"id": n, "pid": p}`, `{"exit": p, "status": s}`.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
from array import array
from typing import Any

from sandbox.inside import modules, self_test
from sandbox.inside.worker import Settings, Worker
from sandbox.isolation import seccomp, tiers
from sandbox.isolation.kernel import IsolationError, call, fork
from sandbox.protocol import encode_frame

_MESSAGE_BYTES = 4096
_POOL_BYTES = 16_384


class Zygote:
    """Owns the control socket and the children."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        """`settings` comes from the host: limits, flavour, tier."""
        self._control = control
        self._settings = settings
        self._children: set[int] = set()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._worker = Worker(Settings(**settings["worker"]))
        self.keep: list[bytes] = []
        self._sealed = settings["tier"] != tiers.UNSANDBOXED
        self._filter = seccomp.worker_filter(seccomp.this_architecture()) if self._sealed else b""
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - pathlib adds nothing here
            self._own_bytes = int(statm.read().split()[0]) * mmap.PAGESIZE
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib adds nothing here
        if threads > 1:
            raise IsolationError(
                f"a preloaded module has started threads ({threads} in all), so workers cannot be forked safely"
            )

    def serve(self) -> None:
        """Until the host closes the control socket or dies."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while True:
            ready = {number for number, _ in poller.poll()}
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._serve_one():
                return

    def _serve_one(self) -> bool:
        data, ancillary, _, _ = self._control.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(2 * 4))
        if not data:
            return False
        descriptors = array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
        message = json.loads(data)
        if message["op"] == "fork":
            try:
                pid = self._fork(list(descriptors))
            except OSError as error:
                # No process or no memory left: this worker is not to be had, the others live on.
                self._send({"id": message["id"], "error": os.strerror(error.errno or 0)})
            else:
                self._send({"id": message["id"], "pid": pid})
        elif message["op"] == "kill" and message["pid"] in self._children:
            # Our own unreaped child, so the number cannot have been reused.
            os.kill(message["pid"], signal.SIGKILL)
        return True

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            self._send({"exit": pid, "status": os.waitstatus_to_exitcode(status)})

    def _fork(self, descriptors: list[int]) -> int:
        own_pid = os.getpid()
        try:
            pid = fork()
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        if pid == 0:
            code = 70
            try:
                worker = self._become_worker(descriptors, own_pid)
                worker.serve()
                code = 0
            except IsolationError as error:
                os.write(descriptors[0], encode_frame({"failed": str(error)}))
            finally:
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)
        self._children.add(pid)
        return pid

    def _become_worker(self, descriptors: list[int], zygote_pid: int) -> Worker:
        """In the child: put on every layer, test them, say so."""
        signal.set_wakeup_fd(-1)
        call("signal", int(signal.SIGCHLD), int(signal.SIG_DFL), what="default action for the end of a child")
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)
        for standard in (0, 1, 2):
            os.dup2(self._nowhere, standard)
        os.close(self._nowhere)
        self._control.close()
        channel, page = descriptors
        progress = mmap.mmap(page, mmap.PAGESIZE)
        os.close(page)
        seccomp.die_with_parent(zygote_pid)
        self._limit_resources()
        worker = self._worker
        worker.attach(channel, progress)
        if not self._sealed:
            worker.send({"self_test": {}})
            return worker
        seccomp.no_new_privileges()
        seccomp.install(self._filter)
        worker.send({"self_test": self_test.run(socket, sys.executable, zygote_pid)})
        return worker

    def _limit_resources(self) -> None:
        memory = self._own_bytes + int(self._settings["memory_bytes"])
        files = int(self._settings["open_files"])
        for which, value in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_NOFILE, files),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(which, (value, value))


def _fill_holes() -> list[bytes]:
    """Objects that take up the free places in Python's partly used memory pools, one pool's worth for each size.

    A worker then puts its own objects into fresh pages, side by side, instead of copying a shared page for each few of
    them: half a megabyte less private memory in every worker (`make bench`).
    """
    header = sys.getsizeof(b"")
    return [bytes(size - header) for size in range(48, 513, 16) for _ in range(_POOL_BYTES // size)]


def main(control_descriptor: int, host_pid: int) -> None:
    """Entry point: read the settings, preload, report ready, serve."""
    seccomp.die_with_parent(host_pid)
    control = socket.socket(fileno=control_descriptor)
    # Ctrl-C in a terminal reaches the whole foreground group; the host decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(control.recv(_MESSAGE_BYTES))
    missing = modules.preload(settings["flavour"])
    zygote = Zygote(control, settings)
    parent = os.getppid()
    layers = tiers.enter(settings["tier"])
    # Here and not in every worker: what a worker lets go of dirties memory that it shares with the others.
    modules.close_imports()
    seccomp.die_with_parent(0 if settings["tier"] == "namespaces" else parent)
    if settings["tier"] != tiers.UNSANDBOXED:
        seccomp.install(seccomp.zygote_filter(seccomp.this_architecture()))
        layers.append("filtered zygote")
    gc.collect()
    zygote.keep = _fill_holes()
    gc.freeze()
    control.send(json.dumps({"ready": settings["flavour"], "missing": missing, "layers": layers}).encode())
    zygote.serve()
