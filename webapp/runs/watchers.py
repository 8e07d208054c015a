"""Who wants to know what is taken in of a run and how its status moves; runs know nothing of them (see core/panels.py).

A watcher runs inside the transaction of what it watches: what it writes is there exactly when that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from webapp.runs.models import Event

#: (run id, attempt, events that were just stored).
EventWatcher = Callable[[int, int, Sequence[Event]], None]
#: (run id, the status it moved to, why).
StatusWatcher = Callable[[int, str, str], None]
_events: list[EventWatcher] = []
_statuses: list[StatusWatcher] = []


def watch(*, events: EventWatcher, statuses: StatusWatcher) -> None:
    """Add a watcher; the same one twice changes nothing."""
    if events not in _events:
        _events.append(events)
    if statuses not in _statuses:
        _statuses.append(statuses)


def tell_events(run_id: int, attempt: int, events: Sequence[Event]) -> None:
    """Events of an attempt were stored."""
    for watcher in _events:
        watcher(run_id, attempt, events)


def tell_status(run_id: int, status: str, why: str) -> None:
    """A run's status moved."""
    for watcher in _statuses:
        watcher(run_id, status, why)
