"""Writer of the event log: append and flush every line, fsync where a rollout ends, repair a torn tail on reopening."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from trainer.errors import InfrastructureError, LimitError, TrainerError
from trainer.events import KINDS, Payload
from trainer.rundir import RunDirectory

_KIND_OF = {model: kind for kind, model in KINDS.items()}


class EventLog:
    """Events of one attempt. `seq` is gapless from 1; one file per rollout; every line is whole once `emit` returns."""

    def __init__(
        self, run: RunDirectory, attempt: int, *, rollout: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the attempt's log; continues after its last whole line when it exists. `rollout` names the first file."""
        self._run = run
        self._attempt = attempt
        self._clock = clock
        self._file: FileIO | None = None
        self._file_rollout = -1
        self._rollout: int | None = None
        self._first_rollout = rollout
        self.listeners: list[Callable[[str, Mapping[str, Any], int | None], None]] = []
        run.events(attempt).mkdir(parents=True, exist_ok=True)
        self.seq = repair(run, attempt)

    @property
    def rollout(self) -> int | None:
        return self._rollout

    def enter_rollout(self, rollout: int) -> None:
        """Events from here on belong to this rollout."""
        self._rollout = rollout

    def emit(self, payload: Payload) -> None:
        """Write one event. Raises `LimitError` when the disk is full, `InfrastructureError` for other write errors."""
        kind = _KIND_OF[type(payload)]
        values = payload.model_dump(mode="json")
        line = {"seq": self.seq + 1, "time": self._clock(), "rollout": self._rollout, "kind": kind, "payload": values}
        data = json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            _write_whole(self._open(), data)
        except OSError as error:
            raise disk_error(error, "the event log") from error
        self.seq += 1
        for listener in self.listeners:
            listener(kind, values, self._rollout)

    def sync(self) -> None:
        """Force everything written to the disk."""
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise disk_error(error, "the event log") from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._file_rollout = -1

    def _open(self) -> FileIO:
        number = self._first_rollout if self._rollout is None else self._rollout
        number = max(number, self._file_rollout)  # an event without rollout stays in the file in use
        if self._file is None or number != self._file_rollout:
            self.sync()
            self.close()
            self._file = self._run.event_file(self._attempt, number).open("ab", buffering=0)
            self._file_rollout = number
        return self._file


def _write_whole(file: FileIO, data: bytes) -> None:
    """Write all of it, or take back what was written: a line that does not fit must not spoil the one after it."""
    before = file.seek(0, os.SEEK_END)
    try:
        left = memoryview(data)
        while left:
            left = left[file.write(left) or 0 :]
    except OSError:
        file.truncate(before)
        raise


def disk_error(error: OSError, what: str) -> TrainerError:
    """The error of the right owner for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return LimitError(
            f"no space left while writing {what}{_at(error)}: free some space and resume; the last checkpoint is whole"
        )
    return InfrastructureError(f"cannot write {what}{_at(error)}: {error.strerror or error}")


def write_refusal(error: BaseException) -> OSError | None:
    """The kernel's refusal behind an error of a library that wraps it (torch, safetensors); None when it is something else."""
    if isinstance(error, TrainerError):
        return None
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError):
            return link
        link = link.__cause__ or link.__context__
    told = re.search(r"os error (\d+)", str(error))
    return OSError(int(told[1]), os.strerror(int(told[1]))) if told else None


def _at(error: OSError) -> str:
    return f" ({error.filename})" if error.filename else ""


def finite(value: float | None) -> float | None:
    """The value, or None when it is not a finite number: the log never holds anything else."""
    return value if value is not None and math.isfinite(value) else None


def event_files(run: RunDirectory, attempt: int) -> list[Path]:
    """Files of an attempt in the order they were written."""
    return sorted(run.events(attempt).glob("[0-9]*.jsonl"))


def attempts(run: RunDirectory) -> list[int]:
    """Numbers of all attempts so far, in order."""
    if not run.attempts.is_dir():
        return []
    return sorted(int(p.name) for p in run.attempts.iterdir() if p.name.isdigit())


def repair(run: RunDirectory, attempt: int) -> int:
    """Cut a torn last line off the attempt's log; returns the seq of its last whole event, 0 for none."""
    files = event_files(run, attempt)
    if not files:
        return 0
    last = files[-1]
    data = last.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with last.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    for file_path in reversed(files):
        lines = file_path.read_bytes().splitlines()
        if lines:
            return int(json.loads(lines[-1])["seq"])
    return 0


def read_events(run: RunDirectory, attempt: int) -> Iterator[dict[str, Any]]:
    """All whole events of an attempt in order. A torn last line is left out."""
    for path in event_files(run, attempt):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(line)
