"""Starting the trainer and ending it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings

from trainer.rundir import RunDirectory
from webapp.runs.models import Run
from webapp.runs.supervision.lease import Claim
from webapp.runs.supervision.proctree import Process, family, identify, kill_all
from webapp.stack.spawn import spawn

_GONE_WITHIN_S = 5.0
# The trainer gets what numerics need and nothing else: no database, no broker, no secret key.
_PASSED = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|VIRTUAL_ENV|LD_LIBRARY_PATH|XDG_CACHE_HOME|PYTHON[A-Z]+"
    r"|(CUDA|NVIDIA|NCCL|OMP|MKL|OPENBLAS|TORCH|PYTORCH|HF|TRITON|VLLM|DS|SPADEWORK_SANDBOX)_[A-Z0-9_]+|SPADEWORK_THREADS)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|_KEY$|KEY_FILE$")


def trainer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of our environment the trainer may see."""
    return {
        name: value for name, value in environment.items() if _PASSED.fullmatch(name) and not _SECRET.search(name)
    } | {"PYTHONUNBUFFERED": "1"}


def trainer_arguments(directory: RunDirectory, run: Run) -> list[str]:
    """Arguments of ``python -m trainer``: a first run with its settings, or a resume of what is there."""
    if directory.config.exists():
        return ["resume", str(directory.root)]
    return ["run", str(directory.root), "--config", str(_settings_file(directory, run))]


def needs_fork(directory: RunDirectory, run: Run) -> bool:
    """True while the run's directory has still to be made from a checkpoint of another run."""
    return bool(run.fork_checkpoint) and not directory.config.exists()


def fork_arguments(directory: RunDirectory, run: Run) -> list[str]:
    """Arguments of ``python -m trainer`` that make the directory of a fork, which is then resumed. Raises OSError without a source."""
    if run.parent is None:
        raise FileNotFoundError("the run it was forked from has been removed")
    arguments = ["fork", run.parent.directory, str(directory.root), "--checkpoint", run.fork_checkpoint, "--prepare"]
    return [*arguments, "--config", str(_settings_file(directory, run))]


def fork_log(directory: RunDirectory) -> Path:
    """What the making of a fork printed: beside the directory, which appears at once and whole."""
    return directory.root.with_name(f"{directory.root.name}.fork.log")


def _settings_file(directory: RunDirectory, run: Run) -> Path:
    """The settings as a file beside the run's directory, which the trainer wants empty."""
    requested = directory.root.with_name(f"{directory.root.name}.settings.json")
    requested.parent.mkdir(parents=True, exist_ok=True)
    requested.write_text(json.dumps(run.config, indent=1), encoding="utf-8")
    return requested


class TrainerProcess:
    """A trainer in a session of its own, which the kernel kills when the thread that started it ends."""

    def __init__(self, popen: subprocess.Popen[bytes], process: Process) -> None:
        self._popen = popen
        self.process = process
        self._family = {process}

    @classmethod
    def start(
        cls, claim: Claim, run: Run, *, program: Sequence[str] = (sys.executable, "-m", "trainer")
    ) -> TrainerProcess:
        """Start it. Call from the main thread. Raises OSError.

        The trainer writes log.txt itself; what it says on stderr (tracebacks, the last line of a failure) is appended there too.
        """
        claim.directory.root.mkdir(parents=True, exist_ok=True)
        return cls._spawn([*program, *trainer_arguments(claim.directory, run)], claim.directory.log)

    @classmethod
    def make_fork(
        cls, claim: Claim, run: Run, *, program: Sequence[str] = (sys.executable, "-m", "trainer")
    ) -> TrainerProcess:
        """Start the making of a fork's directory: gigabytes are copied, so it is supervised like a trainer. Raises OSError."""
        return cls._spawn([*program, *fork_arguments(claim.directory, run)], fork_log(claim.directory))

    @classmethod
    def _spawn(cls, command: Sequence[str], log: Path) -> TrainerProcess:
        with log.open("ab") as output:
            popen = spawn(
                command,
                death_signal=signal.SIGKILL,
                env=trainer_environment(os.environ),
                cwd=settings.BASE_DIR,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        return cls(popen, identify(popen.pid) or Process(popen.pid, 0))

    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._popen.poll()

    def wait(self, seconds: float) -> None:
        """Wait that long, or until it ends."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.poll()

    def note_family(self) -> None:
        """Remember which processes belong to it, so that one that leaves its session is still known when it has died."""
        self._family |= family(self.process)

    def ask_to_stop(self) -> None:
        """SIGTERM: stop at the next safe point."""
        self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> set[Process]:
        """SIGKILL it and everything it started; returns what is still there afterwards (normally nothing)."""
        if self._popen.poll() is None:
            self.note_family()
            self._popen.kill()
            self.wait(_GONE_WITHIN_S)
        return kill_all(self._family | family(self.process), within_s=_GONE_WITHIN_S)


def kill_leftovers(pid: int | None, started: int | None) -> set[Process]:
    """The same for a trainer that somebody else on this machine started and left behind."""
    if pid is None or started is None:
        return set()
    return kill_all(family(Process(pid, started)), within_s=_GONE_WITHIN_S)
