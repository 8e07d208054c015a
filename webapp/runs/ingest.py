"""Run directory → Postgres, in order and exactly once, whoever does it and however often it is killed.

One transaction per batch claims cursors, moves the attempt's position by a conditional update that must change its row, inserts the
events and turns them into rows. Two ingesters of the same run cannot both move the same position; the loser reads afresh.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from django.db import DatabaseError, transaction

from trainer.rundir import RunDirectory
from webapp.runs import journal, watchers
from webapp.runs.copying import insert_events
from webapp.runs.eventlog import Batch, Line, Position, read_batch
from webapp.runs.models import Attempt, Event, Run
from webapp.runs.projection import HANDLERS, RUN_FIELDS
from webapp.runs.recording import Recording
from webapp.runs.storable import storable_text

_PROBLEM_CHARS = 500


class _PositionMoved(Exception):
    """Another ingester was faster."""


class Ingester:
    """Follows the event log of one run. Keeps its position in memory; the one in the database decides."""

    def __init__(self, *, run_id: int, directory: Path) -> None:
        self._run_id = run_id
        self._directory = RunDirectory(directory)
        self._positions: dict[int, Position] = {}
        self._drained: set[int] = set()

    def poll(self) -> int:
        """Take in at most one batch of what is new; the number of events taken. Raises OSError, DatabaseError."""
        numbers = attempt_numbers(self._directory)
        for number in numbers:
            if number in self._drained:
                continue
            taken = self._poll_attempt(number)
            if taken:
                return taken
            if number != numbers[-1]:  # a later attempt existed before the read, so this log is complete
                self._drained.add(number)
        return 0

    def drain(self) -> int:
        """Take in everything that is there; the number of events taken."""
        total = 0
        while taken := self.poll():
            total += taken
        return total

    def _poll_attempt(self, number: int) -> int:
        position = self._positions.get(number)
        if position is None:
            position = _stored_position(self._run_id, number)
        self._positions[number] = position
        batch = read_batch(self._directory.events(number), position)
        taken = len(batch.lines) + batch.repeated
        if not taken:
            return 0
        try:
            _store(self._run_id, number, position, batch)
        except _PositionMoved:
            del self._positions[number]
            return 1  # not ours, but something moved: look again
        self._positions[number] = batch.position
        return taken


def attempt_numbers(directory: RunDirectory) -> list[int]:
    """Numbers of the attempts that have a folder, ascending."""
    try:
        return sorted(
            int(path.name) for path in directory.attempts.iterdir() if path.name.isascii() and path.name.isdigit()
        )
    except FileNotFoundError:
        return []


def _stored_position(run_id: int, number: int) -> Position:
    attempt = Attempt.objects.filter(run_id=run_id, number=number).first()
    return Position(attempt.ingest_file, attempt.ingest_offset, attempt.ingest_seq) if attempt else Position()


@transaction.atomic
def _store(run_id: int, number: int, start: Position, batch: Batch) -> None:
    first = journal.claim_cursors(run_id=run_id, count=len(batch.lines))
    Attempt.objects.bulk_create([Attempt(run_id=run_id, number=number)], ignore_conflicts=True)
    end = batch.position
    moved = Attempt.objects.filter(
        run_id=run_id, number=number, ingest_file=start.file, ingest_offset=start.offset, ingest_seq=start.seq
    ).update(ingest_file=end.file, ingest_offset=end.offset, ingest_seq=end.seq)
    if moved != 1:
        raise _PositionMoved
    run = Run.objects.get(pk=run_id)
    run.attempt = max(run.attempt, number)
    recording = Recording(run=run, attempt=Attempt.objects.get(run_id=run_id, number=number))
    events = _record(recording, batch.lines)
    for cursor, event in enumerate(events, start=first):
        event.cursor = cursor
    insert_events(events)
    watchers.tell_events(run_id, number, events)
    run.last_event_at = max((line.at for line in batch.lines), default=run.last_event_at)
    run.gap = run.gap or bool(batch.gaps)
    run.save(update_fields=["attempt", "last_event_at", "gap", *RUN_FIELDS])
    _warn_about(run_id, number, batch, events)
    transaction.on_commit(lambda: journal.poke(run_id))


def _warn_about(run_id: int, number: int, batch: Batch, events: list[Event]) -> None:
    where = f"attempt {number}"
    for first, last in batch.gaps:
        span = f"event {first} is" if first == last else f"events {first} to {last} are"
        journal.warn(
            run_id=run_id, message=f"{span} missing from the event log: what is shown is not everything", where=where
        )
    if batch.repeated:
        journal.warn(run_id=run_id, message=f"{batch.repeated} events came a second time and were ignored", where=where)
    misfits = [event for event in events if event.problem]
    if misfits:
        message = f"{len(misfits)} events could not be turned into rows; the first: {misfits[0].problem}"
        journal.warn(run_id=run_id, message=message, where=where)


def _record(recording: Recording, lines: list[Line]) -> list[Event]:
    """Rows for all lines; when the database refuses one, line by line, so that only the refused one stays without rows."""
    before = copy.copy(recording.run.__dict__)
    try:
        with transaction.atomic():
            events = [_record_line(recording, line) for line in lines]
            recording.flush()
            return events
    except DatabaseError as error:
        if not _is_refusal(error):
            raise
        recording.run.__dict__.update(before)
    careful = Recording(run=recording.run, attempt=Attempt.objects.get(pk=recording.attempt.pk))
    return [_record_carefully(careful, line) for line in lines]


def _record_carefully(recording: Recording, line: Line) -> Event:
    before = copy.copy(recording.run.__dict__)
    try:
        with transaction.atomic():
            event = _record_line(recording, line)
            recording.flush()
            return event
    except DatabaseError as error:
        if not _is_refusal(error):
            raise
        recording.run.__dict__.update(before)
        recording.reset()
        problem = f"the database refused it: {storable_text(str(error))[:_PROBLEM_CHARS]}"
        return _event(recording, line, line.payload, problem)


def _is_refusal(error: DatabaseError) -> bool:
    """True when the database refused the data (out of range, not unique, over a limit) rather than failed itself."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    return state[:2] in ("22", "23", "54")


def _record_line(recording: Recording, line: Line) -> Event:
    handler = HANDLERS.get(line.kind)
    if line.model is None or handler is None:
        return _event(recording, line, line.payload, line.problem)
    return _event(recording, line, handler(recording, line, line.model), "")


def _event(recording: Recording, line: Line, payload: dict[str, Any], problem: str) -> Event:
    return Event(
        run=recording.run,
        attempt=recording.attempt.number,
        seq=line.seq,
        rollout=line.rollout,
        kind=line.kind,
        at=line.at,
        payload=payload,
        problem=problem,
    )
