"""Commands from the supervisor: read from control.jsonl at safe points, answered with `command` events (SIGTERM counts as stop)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.errors import Cancelled
from trainer.eventlog import EventLog
from trainer.events import (
    CommandAcknowledged,
    EnvironmentStateChanged,
    EnvironmentWeighted,
    MemoryRemoved,
    MemoryRestored,
    RunStateChanged,
)
from trainer.rundir import RunDirectory
from trainer.state import TrainingState

_PAUSE_POLL_S = 0.2
_MAX_LINE_BYTES = 1_000_000
Action = Literal[
    "pause", "resume", "stop", "checkpoint", "quarantine", "release", "down_weight", "purge_memory", "restore_memory"
]
_LONGEST_KEY = 200  # no file system takes more than 255 bytes; ours have nine
_FOR_THE_RUN = {"quarantine", "release", "down_weight", "purge_memory", "restore_memory"}


class Command(BaseModel):
    """One line of control.jsonl.

    `environment` is a key ("r0004-s03") and names what is judged; memory records go by the key of their environment.
    Pause, resume, stop and checkpoint are for one attempt: the one named, or, where none is, the one going on when the line is written.
    `weight` belongs to `down_weight`: above 0, at most 1. From the rollout of the answer on, the advantages of every sample that comes
    from the environment (its unhinted episodes, and its design when that is trained) are multiplied by it after they were normalised;
    group statistics, sample counts and metrics of rewards stay as they are. 1 restores it; to leave an environment out, quarantine it.
    """

    model_config = ConfigDict(extra="ignore")

    id: str
    time: float = 0.0
    attempt: int | None = None
    action: Action
    environment: str | None = None
    weight: float | None = None
    reason: str = ""


class StopRequest:
    """Whether the run is to stop at the next safe point, and why."""

    def __init__(self) -> None:
        self.reason = ""

    def ask(self, reason: str) -> None:
        """Ask for it; the first reason counts. Safe to call from a signal handler."""
        self.reason = self.reason or reason


class Control:
    """Reads new commands and carries them out.

    `save_now` writes a checkpoint of the last finished rollout when none is there; whoever owns the checkpoints sets it.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        attempt: int,
        log: EventLog,
        state: TrainingState,
        stop: StopRequest,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._attempt = attempt
        self._log = log
        self._state = state
        self.save_now: Callable[[], str] = lambda: "there is nothing to save yet"
        self._sleep = sleep
        self._clock = clock
        self._stop = stop
        self.paused_s = 0.0  # spent paused in this attempt
        self._paused = False
        # What an attempt before this one was told is read again from its checkpoint on; only judgements still hold.
        self._told_before = run.control.stat().st_size if attempt > 1 and run.control.is_file() else 0

    def safe_point(self) -> None:
        """Handle what has come in. Blocks while paused. Raises `Cancelled` when the run is to stop."""
        self._read_commands()
        if self._paused:
            self._wait_while_paused()
        if self._stop.reason:
            raise Cancelled(self._stop.reason)

    def running_s(self) -> float:
        """A clock that stands still while the run is paused."""
        return self._clock() - self.paused_s

    def _wait_while_paused(self) -> None:
        started = self._clock()
        while self._paused and not self._stop.reason:
            self._sleep(_PAUSE_POLL_S)
            self._read_commands()
        self.paused_s += self._clock() - started

    def _read_commands(self) -> None:
        for line, is_old in self._new_lines():
            try:
                command = Command.model_validate(json.loads(line))
            except (ValueError, ValidationError, RecursionError):
                self._acknowledge(_best_id(line), "unknown", False, "not a command this version understands")
                continue
            is_mine = command.attempt == self._attempt or (command.attempt is None and not is_old)
            if not is_mine and command.action not in _FOR_THE_RUN:
                continue  # meant for another attempt
            self._carry_out(command)

    def _new_lines(self) -> list[tuple[bytes, bool]]:
        """Whole lines written since the last look, each with whether it was there before this attempt; the offset moves past them."""
        if not self._run.control.is_file():
            return []
        with self._run.control.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < self._state.control_offset:  # another file than the one that was read so far
                self._state.control_offset = 0
                self._told_before = self._told_before if self._told_before <= size else 0
            file.seek(self._state.control_offset)
            data = file.read(_MAX_LINE_BYTES)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _MAX_LINE_BYTES:
            whole = len(data)  # a line longer than any command: skip it
        place = self._state.control_offset
        self._state.control_offset += whole
        lines = []
        for line in data[:whole].split(b"\n"):
            if line.strip():
                lines.append((line, place < self._told_before))
            place += len(line) + 1
        return lines

    def _carry_out(self, command: Command) -> None:
        match command.action:
            case "pause":
                self._acknowledge(
                    command.id, command.action, not self._paused, "already paused" if self._paused else ""
                )
                self._change_pause(True, command.reason)
            case "resume":
                self._acknowledge(command.id, command.action, self._paused, "" if self._paused else "not paused")
                self._change_pause(False, command.reason)
            case "stop":
                self._acknowledge(command.id, command.action, True, "")
                self._log.emit(RunStateChanged(state="stopping", reason=command.reason))
                self._stop.ask(command.reason or "stopped on request")
            case "checkpoint":
                self._acknowledge(command.id, command.action, True, self.save_now())
            case "quarantine" | "release":
                self._change_quarantine(command)
            case "down_weight":
                self._change_weight(command)
            case "purge_memory":
                self._purge(command)
            case "restore_memory":
                self._restore(command)

    def _change_pause(self, paused: bool, reason: str) -> None:
        if paused == self._paused:
            return
        self._paused = paused
        self._log.emit(RunStateChanged(state="paused" if paused else "running", reason=reason))
        self._log.sync()

    def _change_quarantine(self, command: Command) -> None:
        key = self._known_key(command)
        if key is None:
            return
        out = key in self._state.quarantined
        if command.action == "quarantine":
            self._acknowledge(command.id, command.action, not out, "already quarantined" if out else "")
            if not out:
                self._state.quarantined[key] = command.reason
                self._log.emit(EnvironmentStateChanged(environment=key, state="quarantined", reason=command.reason))
                if self._state.memory.remove(key):
                    self._log.emit(MemoryRemoved(environment=key, reason="quarantined"))
            return
        self._acknowledge(command.id, command.action, out, "" if out else "not quarantined")
        if out:
            del self._state.quarantined[key]
            self._log.emit(
                EnvironmentStateChanged(environment=key, state=self._state_after_release(key), reason=command.reason)
            )

    def _change_weight(self, command: Command) -> None:
        key, weight = self._known_key(command), command.weight
        if key is None:
            return
        if weight is None or not 0 < weight <= 1:
            self._acknowledge(
                command.id, command.action, False, f"weight must be above 0 and at most 1, and is {weight}"
            )
            return
        same = weight == self._state.training_weight(key)
        self._acknowledge(command.id, command.action, not same, f"its weight already is {weight:g}" if same else "")
        if not same:
            self._state.weights[key] = weight
            self._log.emit(EnvironmentWeighted(environment=key, weight=weight, reason=command.reason))

    def _purge(self, command: Command) -> None:
        """Take a record out of the memory; it is kept aside in the state, so that it can be put back."""
        key = self._known_key(command)
        if key is None:
            return
        found = self._state.memory.purge(key)
        why = "" if found else f"the memory holds no record of {key}"
        self._acknowledge(command.id, command.action, found, why)
        if found:
            self._log.emit(MemoryRemoved(environment=key, reason="purged"))

    def _restore(self, command: Command) -> None:
        key = self._known_key(command)
        if key is None:
            return
        try:
            removed = self._state.memory.restore(key)
        except ValueError as error:
            self._acknowledge(command.id, command.action, False, str(error))
            return
        self._acknowledge(command.id, command.action, True, "")
        self._log.emit(MemoryRestored(environment=key, reason=command.reason))
        for old in removed:
            self._log.emit(MemoryRemoved(environment=old.environment, reason="oldest"))

    def _state_after_release(self, key: str) -> Literal["active", "barred", "retired"]:
        if key in self._state.barred:
            return "barred"
        return "active" if any(e.key == key for e in self._state.environments) else "retired"

    def _known_key(self, command: Command) -> str | None:
        """The command's environment; None, after refusing the command, when this run has no such environment."""
        key = command.environment or ""
        # Every environment of the run has its folder; the name is checked before it becomes part of a path.
        if len(key) <= _LONGEST_KEY and key.replace("-", "").isalnum() and self._run.environment(key).is_dir():
            return key
        self._acknowledge(command.id, command.action, False, f"this run has no environment {key!r}")
        return None

    def _acknowledge(self, command: str, action: str, accepted: bool, message: str) -> None:
        self._log.emit(
            CommandAcknowledged(
                command=command, action=action, accepted=accepted, message=message, effective_rollout=self._log.rollout
            )
        )
        self._log.sync()


def _best_id(line: bytes) -> str:
    """The id of a line that is no command, as far as it has one."""
    try:
        value = cast("dict[str, Any]", json.loads(line))
        return str(value["id"])[:100]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
