"""What the command palette finds here: environments of the run one is on."""

from __future__ import annotations

from django.urls import reverse

from webapp.core.palette import MAX_ENTRIES, Asked, Entry
from webapp.environments.selectors import find_environments


def environments(asked: Asked) -> list[Entry]:
    """Environments whose name or key has the text in it."""
    if asked.run_id is None or not asked.text:
        return []
    rows = find_environments(run_id=asked.run_id, text=asked.text, limit=MAX_ENTRIES + 1)
    return [
        Entry(
            label=row.class_name, url=reverse("runs:environment", args=[asked.run_id, row.key]), detail=row.key,
            status="" if row.state == "active" else row.state,
        )
        for row in rows
    ]  # fmt: skip
