"""Passing people's commands on to the trainer: table → control.jsonl."""

from __future__ import annotations

import json
import os
from pathlib import Path

from django.db.models import Q
from django.utils import timezone

from webapp.runs.models import Command
from webapp.runs.supervision.lease import Claim


class Relay:
    """Appends commands to the run's control file, each once, even when a supervisor died between writing and noting it."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._path = claim.directory.control
        self._written = _ids_in(self._path)

    def pass_on(self) -> int:
        """Write what is waiting; the number of commands passed on. Raises OSError, DatabaseError."""
        mine = Q(attempt=None) | Q(attempt=self._claim.attempt)
        waiting = list(
            Command.objects.filter(mine, run_id=self._claim.run_id, sent_at=None).order_by("created_at", "id")
        )
        if not waiting:
            return 0
        lines = [_line(command) for command in waiting if str(command.pk) not in self._written]
        if lines:
            _append(self._path, "".join(lines).encode())
        ids = [command.pk for command in waiting]
        self._written.update(str(identity) for identity in ids)
        Command.objects.filter(pk__in=ids).update(sent_at=timezone.now())
        return len(waiting)


def close_unanswered(claim: Claim) -> None:
    """The attempt is over: commands meant for it alone that it never answered will not be carried out."""
    open_commands = Command.objects.filter(
        run_id=claim.run_id, attempt__lte=claim.attempt, acknowledged_at=None, accepted=None
    )
    open_commands.exclude(action="stop").update(accepted=False, message="the attempt ended before it was carried out")
    open_commands.filter(action="stop").update(accepted=True, message="the attempt has ended")


def _line(command: Command) -> str:
    entry = {
        "id": str(command.pk),
        "time": command.created_at.timestamp(),
        "attempt": command.attempt,
        "action": command.action,
        "environment": command.environment,
        "weight": command.weight,
        "reason": command.reason,
    }
    return json.dumps(entry) + "\n"


def _append(path: Path, data: bytes) -> None:
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as file:
        file.write(b"\n" + data if torn else data)
        file.flush()
        os.fsync(file.fileno())


def _ids_in(path: Path) -> set[str]:
    if not path.exists():
        return set()
    found = set()
    for raw in path.read_bytes().splitlines():
        try:
            found.add(str(json.loads(raw)["id"]))
        except (ValueError, KeyError, TypeError):
            continue  # a line torn when a supervisor died; its command is still unsent and comes again
    return found
