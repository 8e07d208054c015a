"""What the command palette finds here: runs, and the pages of the run one is on."""

from __future__ import annotations

from django.urls import reverse

from webapp.core.palette import MAX_ENTRIES, Asked, Entry, matching
from webapp.runs.models import Run
from webapp.runs.page import TABS
from webapp.runs.selectors_list import find_runs, is_there

NEWEST_SHOWN = 5


def tabs(asked: Asked) -> list[Entry]:
    """The tabs of the run on whose page it was asked; none for a run that is not there any more."""
    if asked.run_id is None or not is_there(run_id=asked.run_id):
        return []
    return matching(asked.text, [Entry(label=label, url=reverse(url, args=[asked.run_id])) for _, label, url in TABS])


def newest(asked: Asked) -> list[Entry]:
    """Some of the newest runs, before anything is typed."""
    return [] if asked.text else [_entry(run) for run in find_runs(text="", limit=NEWEST_SHOWN)]


def runs(asked: Asked) -> list[Entry]:
    """Runs that the search of the list finds."""
    return [_entry(run) for run in find_runs(text=asked.text, limit=MAX_ENTRIES + 1)] if asked.text else []


def _entry(run: Run) -> Entry:
    return Entry(label=run.name, url=reverse("runs:page", args=[run.pk]), detail=run.slug or "", status=run.status)
