"""Texts of transcripts that are kept no longer: whose, and removing them. Episodes keep their rows, outcomes, rewards and counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Func, IntegerField, QuerySet, Sum

from webapp.environments.models import Environment
from webapp.episodes.models import Episode, Transcript
from webapp.runs.models import Run

#: Transcripts emptied in one transaction; a run may have hundreds of thousands.
_CHUNK = 2_000
#: Transcripts whose size is asked for before an estimate goes by what it has seen.
_SIZES_READ = 200_000
#: Gives the ids of environments whose episodes keep their texts, whatever the settings.
Keeper = Callable[[], QuerySet[Any]]
_KEEPERS: list[Keeper] = []


def keep_texts_of(keeper: Keeper) -> None:
    """A feature says, from its ``AppConfig.ready``, which environments it points at. Saying it twice changes nothing."""
    if keeper not in _KEEPERS:
        _KEEPERS.append(keeper)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Transcripts with their texts, and what these take in the database."""

    transcripts: int
    bytes: int


def kept_environments(*, run: Run) -> dict[int, str]:
    """Key by id of the run's environments whose episodes keep their texts."""
    kept: dict[int, str] = {}
    for keeper in _KEEPERS:
        kept |= dict(Environment.objects.filter(run=run, pk__in=keeper()).values_list("pk", "key"))
    return kept


def texts_of(*, runs: Collection[int]) -> Texts:
    """What ``remove_texts`` would remove of these runs. Beyond _SIZES_READ transcripts the bytes are an estimate."""
    rows = Transcript.objects.filter(episode__run__in=runs, removed_at=None)
    for keeper in _KEEPERS:
        rows = rows.exclude(episode__environment__in=keeper())
    count = rows.count()
    newest = rows.order_by("-pk").values("pk")[:_SIZES_READ]
    size = _stored_bytes(Transcript.objects.filter(pk__in=newest))
    return Texts(transcripts=count, bytes=size * count // min(count, _SIZES_READ) if count else 0)


def remove_texts(*, run: Run, kept: Collection[int], at: datetime) -> Texts:
    """Empty the transcripts of the run, save those of the ``kept`` environments; what went. Cut short, it is taken up again."""
    count = freed = last = 0
    while True:
        with transaction.atomic():
            due = Transcript.objects.filter(episode__run=run, removed_at=None, pk__gt=last)
            due = due.exclude(episode__environment__in=list(kept)).order_by("pk")
            ids = list(due.values_list("pk", flat=True)[:_CHUNK])
            if not ids:
                return Texts(transcripts=count, bytes=freed)
            rows = Transcript.objects.filter(pk__in=ids, removed_at=None)
            freed += _stored_bytes(rows)
            count += rows.update(turns=[], final_observation="", removed_at=at)
        last = ids[-1]


def removal_dates(*, episodes: Iterable[Episode | None]) -> dict[int, datetime]:
    """By episode when its text was removed; episodes with a text, and those that never had one, are not in it."""
    ids = [episode.pk for episode in episodes if episode is not None]
    rows = Transcript.objects.filter(pk__in=ids, removed_at__isnull=False)
    return {pk: at for pk, at in rows.values_list("pk", "removed_at") if at is not None}


def _stored_bytes(rows: QuerySet[Transcript]) -> int:
    """As stored; the texts themselves are not read."""
    size = Func(F("turns"), function="pg_column_size", output_field=IntegerField()) + Func(
        F("final_observation"), function="pg_column_size", output_field=IntegerField()
    )
    return rows.aggregate(bytes=Sum(size))["bytes"] or 0
