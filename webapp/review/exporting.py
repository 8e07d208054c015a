"""Flags as rows of a download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from webapp.review.effects import state_of
from webapp.review.models import Effect, Flag
from webapp.review.selectors import HEAVY_OF_EFFECTS

FLAG_COLUMNS = (
    "flag", "run", "environment", "class_name", "skill", "rollout", "about", "episode", "turn", "first_line", "last_line", "kind",
    "severity", "comment", "effect", "weight", "state", "by", "at", "withdrawn_at",
)  # fmt: skip
_READ = (
    "pk", "run__slug", "run__name", "environment__key", "environment__class_name", "environment__skill", "environment__rollout", "subject",
    "episode__key", "turn", "first_line", "last_line", "kind__key", "severity", "comment", "wish", "weight", "effect", "by__username", "at",
    "withdrawn_at",
)  # fmt: skip


def flag_rows(flags: QuerySet[Flag]) -> Iterator[dict[str, Any]]:
    """Newest first. Turns count from 1, as on pages; a time is ISO 8601; what is not there is None."""
    states = _states(flags)
    severities = dict(Flag.Severity.choices)
    for row in flags.order_by("-at", "-id").values_list(*_READ):  # plain values: there may be many thousands
        (pk, slug, name, key, class_name, skill, rollout, subject, episode, turn, first, last, kind, severity, comment, wish, weight,
         effect, by, at, withdrawn) = row  # fmt: skip
        if withdrawn is not None:
            state = "withdrawn"
        elif effect is not None:
            state = states[effect]
        else:
            state = "note" if wish == Flag.NOTE else "proposed"
        values = (
            pk, slug or name, key, class_name, skill, rollout, subject, episode, None if turn is None else turn + 1, first, last, kind,
            severities[severity], comment, wish, weight, state, by, at.isoformat(), withdrawn.isoformat() if withdrawn else None,
        )  # fmt: skip
        yield dict(zip(FLAG_COLUMNS, values, strict=True))


def _states(flags: QuerySet[Flag]) -> dict[int, str]:
    """What the chip of each of the flags' effects says."""
    effects = Effect.objects.filter(pk__in=flags.order_by().values("effect")).select_related(
        "environment__run", "command", "undo"
    )
    return {effect.pk: state_of(effect).word for effect in effects.defer(*HEAVY_OF_EFFECTS)}
