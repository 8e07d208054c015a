"""What flags add to the list of environments: how many stand, how bad the worst is, what is in force; and a filter by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Count, Max, Q, QuerySet
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from webapp.environments.models import Environment
from webapp.review.effects import state_of
from webapp.review.models import Effect, Flag, FlagKind
from webapp.runs.models import Run

ANY = "any"


def flag_cells(environments: Sequence[Environment]) -> Mapping[int, SafeString]:
    """By environment: number and highest severity of its standing flags, and the effects that are not undone. Two queries."""
    keys = [environment.pk for environment in environments]
    standing = (
        Flag.objects.filter(environment__in=keys, withdrawn_at=None)
        .order_by()
        .values("environment_id")
        .annotate(count=Count("id"), worst=Max("severity"))
    )
    effects: dict[int, list[dict[str, Any]]] = {}
    rows = Effect.objects.filter(environment__in=keys, undone_at=None).select_related(
        "environment__run", "command", "undo"
    )
    for effect in rows.defer("environment__code").order_by("id"):
        shown = {"act": effect.get_act_display(), "weight": effect.weight, "state": state_of(effect)}
        effects.setdefault(effect.environment_id, []).append(shown)
    counts = {row["environment_id"]: row for row in standing}
    return {
        key: SafeString(
            render_to_string(
                "review/_cell.html",
                {
                    "count": counts.get(key, {}).get("count", 0),
                    "severity": Flag.Severity(counts[key]["worst"]) if key in counts else None,
                    "effects": effects.get(key, []),
                },
            ).strip()
        )
        for key in keys
        if key in counts or key in effects
    }


def flag_values(run: Run) -> Mapping[str, str]:
    """ "any", and every kind that a standing flag of the run has."""
    kinds = FlagKind.objects.filter(flags__run=run, flags__withdrawn_at=None).distinct().order_by("position", "id")
    found = {kind.key: kind.label for kind in kinds}
    return {ANY: "flagged", **found} if found else {}


def narrow_by_flag(rows: QuerySet[Environment], value: str) -> QuerySet[Environment]:
    """Environments with a standing flag: of any kind, or of the kind with that key."""
    flags = Flag.objects.filter(Q() if value == ANY else Q(kind__key=value), withdrawn_at=None)
    return rows.filter(pk__in=flags.values("environment"))
