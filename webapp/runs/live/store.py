"""What followers read: pages of events by cursor, and how a run is right now."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from webapp.runs.models import Event, Run

FRAME_EVENTS = 200
FRAME_CHARS = 256 * 1024
PAYLOAD_CHARS = 64 * 1024  # a misfit event can be huge; sockets carry its size instead


@dataclass(frozen=True, slots=True)
class Frame:
    """Events `first` to `last` without a gap, encoded once for all sockets. `moved` is True when a status change is among them."""

    first: int
    last: int
    text: str
    moved: bool


def frame_after(run_id: int, cursor: int) -> Frame | None:
    """The next frame after ``cursor``; None when there is nothing newer."""
    rows = Event.objects.filter(run_id=run_id, cursor__gt=cursor).order_by("cursor")[:FRAME_EVENTS]
    parts: list[str] = []
    size = 0
    last = cursor
    moved = False
    for event in rows.iterator(chunk_size=FRAME_EVENTS):
        part = _encode(event)
        size += len(part)
        if parts and size > FRAME_CHARS:
            break
        parts.append(part)
        last = event.cursor
        moved = moved or event.kind == "status"
    if not parts:
        return None
    text = f'{{"type":"events","from":{cursor + 1},"to":{last},"events":[{",".join(parts)}]}}'
    return Frame(first=cursor + 1, last=last, text=text, moved=moved)


def _encode(event: Event) -> str:
    payload = json.dumps(event.payload, ensure_ascii=False, separators=(",", ":"))
    problem = event.problem
    if len(payload) > PAYLOAD_CHARS:
        payload = json.dumps({"chars": len(payload)})
        problem = problem or "too large to send"
    head: dict[str, Any] = {
        "c": event.cursor,
        "a": event.attempt,
        "r": event.rollout,
        "k": event.kind,
        "t": event.at.timestamp(),
    }
    if problem:
        head["x"] = problem
    return f'{json.dumps(head, ensure_ascii=False, separators=(",", ":"))[:-1]},"p":{payload}}}'


def last_cursor(run_id: int) -> int | None:
    """The newest cursor of the run; None when there is no such run."""
    return Run.objects.filter(pk=run_id).values_list("last_cursor", flat=True).first()


def status_text(run_id: int) -> str | None:
    """The status frame of the run, encoded; None when the run is gone."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return None
    now = timezone.now()
    return json.dumps(
        {
            "type": "status",
            "status": run.status,
            "cursor": run.last_cursor,
            "attempt": run.attempt,
            "rollout": run.rollout,
            "rollouts_done": run.rollouts_done,
            "total_rollouts": run.total_rollouts,
            "eta_s": run.eta_s,
            "eta_age_s": _age_s(run.eta_at, now),  # it was measured so long ago, and has run down since
            "last_event_age_s": _age_s(run.last_event_at, now),
            "heartbeat_age_s": _age_s(run.heartbeat_at, now),
            "warnings": run.warnings,
            "gap": run.gap,
        }
    )


def _age_s(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else round(max(0.0, (now - moment).total_seconds()), 2)
