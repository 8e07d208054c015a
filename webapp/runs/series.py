"""Metrics as series for charts: the line that holds, and the abandoned tails of older attempts as ghosts.

A long series is thinned on the server: every bucket keeps its lowest and highest point, so a single spike among 400,000 points is
drawn every time and at the same place. What was not measured stays a gap; what was measured and is no number (NaN, infinite) is a
gap with a mark, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import BadRequest
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from webapp.core.pagination import MAX_PAGE_ROWS, Page, decode_cursor, keyset_page
from webapp.runs.models import Attempt, Event, MetricPoint, Run

Point = tuple[int, float | None]
MAX_POINTS = 1200
MAX_NAMES = 80
MAX_MARKS = 1000

#: (attempt, rollout) -> seconds since the run's first metrics.
Times = Mapping[tuple[int, int], float]


@dataclass(slots=True)
class Series:
    """One metric: points of the surviving line, and per older attempt the tail that a resume left behind."""

    name: str
    points: list[Point] = field(default_factory=list)
    ghosts: dict[int, list[Point]] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)  # rollout -> the attempt whose point holds
    marks: list[tuple[int, str]] = field(default_factory=list)  # (rollout, "nan", "inf" or "-inf")

    def as_json(self, max_points: int, times: Times | None = None) -> dict[str, Any]:
        """``x``, ``y``, ``marks`` [[x, what]], ``ghosts``; counts before thinning: ``total``, ``missing`` (gaps), ``not_positive``,
        ``not_finite`` {what: count}.

        With ``times``, ``t`` (seconds, None where unknown) stands beside ``x`` in the line and in each ghost {attempt, x, y}.
        """
        shown = thin(self.points, max_points)
        body: dict[str, Any] = {
            "x": [x for x, _ in shown],
            "y": [y for _, y in shown],
            "total": len(self.points),
            "missing": sum(1 for _, y in self.points if y is None),
            "not_positive": sum(1 for _, y in self.points if y is not None and y <= 0),
            "marks": self.marks[:: max(1, len(self.marks) // MAX_MARKS)],
            "not_finite": dict(Counter(what for _, what in self.marks)),
            "ghosts": [],
        }
        if times is not None:
            body["t"] = [times.get((self.attempts[x], x)) for x, _ in shown]
        for attempt, points in sorted(self.ghosts.items()):
            tail = thin(points, max_points)
            ghost: dict[str, Any] = {"attempt": attempt, "x": [x for x, _ in tail], "y": [y for _, y in tail]}
            if times is not None:
                ghost["t"] = [times.get((attempt, x), times.get((self.attempts.get(x, 0), x))) for x, _ in tail]
            body["ghosts"].append(ghost)
        return body


@dataclass(frozen=True, kw_only=True)
class Clock:
    """When each (attempt, rollout) was reported, in seconds since ``start`` (Unix seconds); downtime between attempts is included."""

    start: float | None
    times: Times


def read_clock(*, run: Run) -> Clock:
    """The clock of a run's rollouts; ``start`` is None before the first report."""
    rows = (
        Event.objects.filter(run=run, kind="metrics", rollout__isnull=False, attempt__isnull=False)
        .order_by("cursor")
        .values_list("attempt", "rollout", "at")
    )
    times: dict[tuple[int, int], float] = {}
    start: float | None = None
    for attempt, rollout, at in rows:
        start = at.timestamp() if start is None else start
        times[(int(attempt or 0), int(rollout or 0))] = round(at.timestamp() - start, 3)
    return Clock(start=start, times=times)


def thin(points: Sequence[Point], limit: int) -> list[Point]:
    """At most ``limit`` points (at least 4) in order: first, last, and of every bucket between them the lowest and the highest.

    A bucket without any number keeps one gap, so a hole in the data stays a hole.
    """
    limit = max(4, limit)
    if len(points) <= limit:
        return list(points)
    inner = points[1:-1]
    buckets = (limit - 2) // 2
    kept: list[Point] = [points[0]]
    for index in range(buckets):
        bucket = inner[index * len(inner) // buckets : (index + 1) * len(inner) // buckets]
        numbers = [(y, x) for x, y in bucket if y is not None]
        if not numbers:
            kept.extend(bucket[:1])
            continue
        ends = {
            min(numbers)[1]: min(numbers)[0],
            max(numbers, key=lambda pair: (pair[0], -pair[1]))[1]: max(numbers)[0],
        }
        kept.extend(sorted(ends.items()))
    kept.append(points[-1])
    return kept


def read_series(*, run: Run, names: Sequence[str], first: int | None = None, last: int | None = None) -> list[Series]:
    """The named metrics of a run in the order of ``names``; a metric that was never reported is an empty series.

    With ``first`` and ``last`` only rollouts from the one to the other.
    """
    series = {name: Series(name) for name in names[:MAX_NAMES]}
    left = Attempt.objects.filter(run=run, superseded_from__isnull=False).values_list("number", "superseded_from")
    ends: dict[int, int | None] = dict(left)
    stretch = Q() if first is None else Q(rollout__gte=first)
    stretch &= Q() if last is None else Q(rollout__lte=last)
    rows = (
        MetricPoint.objects.filter(stretch, run=run, name__in=list(series), rollout__isnull=False)
        .order_by("name", "rollout", "attempt")
        .values_list("name", "rollout", "attempt", "value", "superseded", "mark")
    )
    for name, rollout, attempt, value, superseded, mark in rows:
        assert rollout is not None  # filtered above
        one = series[name]
        if superseded:
            one.ghosts.setdefault(attempt, []).append((rollout, value))
            continue
        one.points.append((rollout, value))
        one.attempts[rollout] = attempt
        if mark:
            one.marks.append((rollout, mark))
    for one in series.values():
        _join_ghosts(one, ends)
    return list(series.values())


def _join_ghosts(series: Series, ends: dict[int, int | None]) -> None:
    """Start every ghost at the last point before it, so that it leaves the line where the resume left it."""
    for attempt, tail in series.ghosts.items():
        end = ends.get(attempt)
        left_at = tail[0][0] if end is None else min(end, tail[0][0])
        before = [point for point in series.points if point[1] is not None and point[0] < left_at]
        if before:
            tail.insert(0, before[-1])


def metric_names(*, run: Run) -> list[str]:
    """Every metric the run has reported, sorted. Jumps from name to name in the index: a DISTINCT would read every point."""
    table = MetricPoint._meta.db_table
    with transaction.atomic(), connection.cursor() as cursor:
        # For a run its statistics do not know yet PostgreSQL expects one point, and would read and sort all of them for each name.
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(
            f"""
            WITH RECURSIVE names AS (
                (SELECT name FROM {table} WHERE run_id = %(run)s ORDER BY name LIMIT 1)
                UNION ALL
                SELECT (SELECT name FROM {table} WHERE run_id = %(run)s AND name > names.name ORDER BY name LIMIT 1)
                FROM names WHERE names.name IS NOT NULL
            )
            SELECT name FROM names WHERE name IS NOT NULL
            """,  # noqa: S608 - the table's own name
            {"run": run.pk},
        )
        names = [name for (name,) in cursor.fetchall()]
        cursor.execute("SET LOCAL enable_sort = on")  # for what else a surrounding transaction reads
        return names


def rollouts_of(*, run: Run, cursor: str, size: int) -> tuple[Page[MetricPoint], list[dict[str, Any]]]:
    """Rollouts of the line that holds, first to last, each with all its metrics. Raises BadRequest for a damaged cursor."""
    points = MetricPoint.objects.filter(run=run, superseded=False, rollout__isnull=False)
    heads = _heads(points, run=run, after=_rollout_in(cursor), limit=min(size, MAX_PAGE_ROWS) + 1)
    page = keyset_page(MetricPoint.objects.filter(pk__in=heads), order=("rollout",), cursor=cursor, size=size)
    rows: dict[int | None, dict[str, Any]] = {
        point.rollout: {"rollout": point.rollout, "attempt": point.attempt, "metrics": {}, "not_finite": {}}
        for point in page.rows
    }
    attempts = {point.attempt for point in page.rows}
    for point in points.filter(attempt__in=attempts, rollout__in=list(rows)).order_by("name"):
        row = rows[point.rollout]
        row["metrics"][point.name] = point.value
        if point.mark:
            row["not_finite"][point.name] = point.mark
    return page, list(rows.values())


def _heads(points: QuerySet[MetricPoint], *, run: Run, after: int | None, limit: int) -> list[int]:
    """Of each of the rollouts after that one the first point, ``limit`` of every attempt.

    Attempt by attempt the index that keeps points unique serves them in order, so a page reads its own points and not the whole run's.
    """
    if after is not None:
        points = points.filter(rollout__gt=after)
    heads: dict[int | None, int] = {}
    for attempt in range(run.attempt + 1):
        firsts = points.filter(attempt=attempt).order_by("rollout", "name").distinct("rollout")
        for rollout, head in firsts.values_list("rollout", "pk")[:limit]:
            heads.setdefault(rollout, head)
    return list(heads.values())


def _rollout_in(cursor: str) -> int | None:
    """The rollout that a page starts after, None on the first. Raises BadRequest for a damaged cursor."""
    value = decode_cursor(cursor, length=1)[0] if cursor else None
    if cursor and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadRequest("This page address is damaged. Open the list again without it.")
    return value
