"""What the review dashboard counts: flags per kind over time, by skill, what waits for somebody. Withdrawn flags do not count."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import Count, QuerySet
from django.db.models.functions import TruncDay, TruncWeek
from django.utils import timezone

from webapp.accounts.models import User
from webapp.environments.models import Environment
from webapp.review.models import Effect, Flag, FlagKind
from webapp.review.selectors import FlagFilter, ShownFlag, list_flags, narrowed

#: Span in the address → days of a bucket, buckets.
SPANS = {"day": (1, 28), "week": (7, 26)}
BAR_WIDTH, BAR_GAP, BAR_HEIGHT = 10, 2, 24  # units of the drawing


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bucket of one kind, with its place in the drawing."""

    start: date
    count: int
    x: float
    y: float
    height: float


@dataclass(frozen=True, kw_only=True)
class KindOverTime:
    """Flags of a kind, oldest bucket first; ``total`` counts those of the span, ``ever`` all."""

    kind: FlagKind
    bars: list[Bar]
    total: int
    ever: int


@dataclass(frozen=True, kw_only=True)
class SkillRow:
    """A skill: its environments that hold, how many have a flag, and the kinds, the most frequent first."""

    skill: str
    environments: int
    flagged: int
    kinds: list[tuple[FlagKind, int]]

    @property
    def share(self) -> float | None:
        """Share of environments with a flag; None without environments."""
        return self.flagged / self.environments if self.environments else None


def standing(*, run: int | None = None) -> QuerySet[Flag]:
    """Flags that were not withdrawn, of every run that is not deleted or of one."""
    return narrowed(FlagFilter(state="open", run=run))


def bucket_starts(*, span: str, today: date) -> list[date]:
    """First days of the buckets, oldest first; weeks start on Monday. Raises KeyError for an unknown span."""
    days, count = SPANS[span]
    newest = today - timedelta(days=today.weekday()) if days == 7 else today
    return [newest - timedelta(days=days * back) for back in range(count - 1, -1, -1)]


def flags_over_time(
    *, span: str, run: int | None = None, now: datetime | None = None
) -> tuple[list[KindOverTime], int]:
    """Kinds that have flags, the most frequent of the span first, and the highest count of a bucket, which all bars are scaled by."""
    starts = bucket_starts(span=span, today=(now or timezone.now()).date())
    trunc = TruncWeek if span == "week" else TruncDay
    counts: dict[int, Counter[date]] = defaultdict(Counter)
    ever: Counter[int] = Counter()
    rows = (
        standing(run=run)
        .annotate(bucket=trunc("at"))
        .values_list("kind_id", "bucket")
        .annotate(n=Count("id"))
        .order_by()
    )
    for kind, bucket, count in rows:
        ever[kind] += count
        if bucket.date() >= starts[0]:
            counts[kind][bucket.date()] += count
    highest = max((count for buckets in counts.values() for count in buckets.values()), default=0)
    found = [
        KindOverTime(
            kind=kind,
            bars=[_bar(index, start, counts[kind.pk][start], highest) for index, start in enumerate(starts)],
            total=sum(counts[kind.pk].values()),
            ever=ever[kind.pk],
        )
        for kind in FlagKind.objects.filter(pk__in=ever)
    ]
    return sorted(found, key=lambda one: (-one.total, -one.ever, one.kind.position)), highest


def _bar(index: int, start: date, count: int, highest: int) -> Bar:
    height = BAR_HEIGHT * count / highest if highest else 0.0
    return Bar(start=start, count=count, x=index * BAR_WIDTH, y=round(BAR_HEIGHT - height, 2), height=round(height, 2))


def flags_by_skill(*, run: int | None = None) -> list[SkillRow]:
    """Skills with flags or environments, the largest share of flagged environments first."""
    environments = Environment.objects.filter(superseded=False, run__deleted_at=None)
    if run is not None:
        environments = environments.filter(run_id=run)
    totals = dict(environments.values_list("skill").annotate(n=Count("id")).values_list("skill", "n").order_by())
    flags = standing(run=run).filter(environment__superseded=False)
    flagged = dict(
        flags.values_list("environment__skill")
        .annotate(n=Count("environment", distinct=True))
        .values_list("environment__skill", "n")
        .order_by()
    )
    kinds = {kind.pk: kind for kind in FlagKind.objects.all()}
    by_kind: dict[str, list[tuple[FlagKind, int]]] = defaultdict(list)
    for skill, kind, count in (
        flags.values_list("environment__skill", "kind_id").annotate(n=Count("id")).order_by("-n", "kind_id")
    ):
        by_kind[skill].append((kinds[kind], count))
    rows = [
        SkillRow(skill=skill, environments=total, flagged=flagged.get(skill, 0), kinds=by_kind.get(skill, []))
        for skill, total in totals.items()
    ]
    return sorted(rows, key=lambda row: (-(row.share or 0.0), row.skill))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Key figures of the dashboard."""

    flags: int
    environments: int
    proposals: int
    effects: int


def figures(*, run: int | None = None) -> Standing:
    """How much stands, waits and holds."""
    flags = standing(run=run)
    effects = Effect.objects.filter(undone_at=None, environment__run__deleted_at=None)
    if run is not None:
        effects = effects.filter(environment__run_id=run)
    return Standing(
        flags=flags.count(),
        environments=flags.aggregate(n=Count("environment", distinct=True))["n"],
        proposals=narrowed(FlagFilter(state="proposed", run=run)).count(),
        effects=effects.count(),
    )


def waiting_proposals(*, reader: User, run: int | None, limit: int) -> list[ShownFlag]:
    """The newest wishes that nobody has put into effect."""
    return list_flags(chosen=FlagFilter(state="proposed", run=run), reader=reader, size=limit)[1]


def newest_flags(*, reader: User, run: int | None, limit: int) -> list[ShownFlag]:
    """The newest flags that stand."""
    return list_flags(chosen=FlagFilter(state="open", run=run), reader=reader, size=limit)[1]
