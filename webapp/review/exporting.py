"""Flags as rows of a download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from webapp.review.effects import state_of
from webapp.review.models import Flag

FLAG_COLUMNS = (
    "flag", "run", "environment", "class_name", "skill", "rollout", "about", "episode", "turn", "first_line", "last_line", "kind",
    "severity", "comment", "effect", "weight", "state", "by", "at", "withdrawn_at",
)  # fmt: skip


def flag_rows(flags: QuerySet[Flag]) -> Iterator[dict[str, Any]]:
    """Newest first. Turns count from 1, as on pages; a time is ISO 8601; what is not there is None."""
    loaded = flags.select_related(
        "kind",
        "by",
        "run",
        "environment__run",
        "episode",
        "effect__environment__run",
        "effect__command",
        "effect__undo",
    ).defer("environment__code", "effect__environment__code")
    for flag in loaded.order_by("-at", "-id"):
        environment = flag.environment
        values = (
            flag.pk, flag.run.slug or flag.run.name, environment.key, environment.class_name, environment.skill, environment.rollout,
            flag.subject, flag.episode.key if flag.episode else None, flag.turn_number, flag.first_line, flag.last_line, flag.kind.key,
            flag.get_severity_display(), flag.comment, flag.wish, flag.weight, _state(flag), flag.by.get_username() if flag.by else None,
            flag.at.isoformat(), flag.withdrawn_at.isoformat() if flag.withdrawn_at else None,
        )  # fmt: skip
        yield dict(zip(FLAG_COLUMNS, values, strict=True))


def _state(flag: Flag) -> str:
    """What the flag's chip says."""
    if flag.withdrawn_at is not None:
        return "withdrawn"
    if flag.effect is not None:
        return state_of(flag.effect).word
    return "proposed" if flag.is_proposal else "note"
