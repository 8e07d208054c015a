"""Reading the list of runs: search, filters, order, groups, and which runs an act on many would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.core.exceptions import BadRequest
from django.db import DataError, OperationalError, ProgrammingError, transaction
from django.db.models import (
    BooleanField,
    CharField,
    Count,
    ExpressionWrapper,
    F,
    FloatField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Lower
from django.http import Http404

from webapp.accounts.models import User
from webapp.core.limits import statement_limit
from webapp.core.pagination import Page, keyset_page
from webapp.runs.errors import SearchRefused
from webapp.runs.models import MetricPoint, Run, SavedView
from webapp.runs.selectors import Z_95
from webapp.runs.states import ACTIVE, ACTS, AT_REST, Status

ResultT = TypeVar("ResultT")
PAGE_ROWS = 50
SEARCH_LIMIT_MS = 2_000
#: Column of the list -> metric whose newest measured value it shows; an error is that of the rollout the value itself is of.
LIST_METRICS = {
    "win_unhinted": "win_rate/unhinted",
    "win_hinted": "win_rate/hinted",
    "regret": "regret/mean",
    "regret_error": "regret/standard_error",
    "designer_reward": "designer/reward_mean",
    "tokens_per_s": "perf/tokens_per_s_sampled",
}
_ERROR_OF = {"regret_error": "regret"}
#: A filter value that stands for several states.
STATUS_GROUPS: Mapping[str, Sequence[str]] = {"active": (Status.QUEUED, *ACTIVE)}
#: Which runs are shown beside the ones in use.
SHOWN: Mapping[str, Q] = {
    "": Q(archived_at=None, deleted_at=None),
    "archived": Q(archived_at__isnull=False, deleted_at=None),
    "deleted": Q(deleted_at__isnull=False),
    "all": Q(),
}
#: Value of ``sort`` -> what is sorted by; "-" before it turns the order round. Metrics that were not measured come last both ways.
SORTED_BY: Mapping[str, Any] = {
    "name": Lower("name"), "rollouts": F("rollouts_done"), "win": F("win_unhinted"), "regret": F("regret"),
    "designer": F("designer_reward"), "tokens": F("tokens_per_s"),
}  # fmt: skip
_METRIC_SORTS = ("win", "regret", "designer", "tokens")
#: Value of ``group`` -> the text that names a run's group.
GROUPED_BY: Mapping[str, Any] = {
    "preset": F("preset"), "status": F("status"), "owner": Coalesce(F("owner__username"), Value(""), output_field=CharField()),
    "first tag": Coalesce(KT("tags__0"), Value(""), output_field=TextField()),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """What the list is narrowed to; empty text means no narrowing. ``regex``: the search is a pattern."""

    search: str = ""
    regex: bool = False
    status: str = ""
    preset: str = ""
    tag: str = ""
    owner: str = ""
    show: str = ""

    @property
    def is_narrowed(self) -> bool:
        """True when some runs in use may be left out."""
        return bool(self.search or self.status or self.preset or self.tag or self.owner or self.show)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A page of the list, how many runs each group of the whole list has (empty without groups), and how many match in all."""

    page: Page[Run]
    group_counts: dict[str, int]
    total: int


def list_runs(
    *, chosen: RunFilter, sort: str = "", group: str = "", cursor: str = "", size: int = PAGE_ROWS
) -> Listing:
    """Newest first unless ``sort`` says otherwise, each run with the attributes of LIST_METRICS (and ``group_key``).

    Raises BadRequest for a damaged cursor, SearchRefused for a pattern that is wrong or takes too long.
    """
    runs = narrowed(chosen)
    rows, order = _ordered(_with_metrics(runs), sort)
    if group in GROUPED_BY:
        rows = rows.annotate(group_key=GROUPED_BY[group])
        order = ("group_key", *order)

    def read() -> Listing:
        page = keyset_page(rows, order=order, cursor=cursor, size=size)
        counts: dict[str, int] = {}
        if group in GROUPED_BY:
            grouped = (
                runs.annotate(group_key=GROUPED_BY[group]).values("group_key").annotate(runs=Count("id")).order_by()
            )
            counts = {str(row["group_key"]): row["runs"] for row in grouped}
        return Listing(page=page, group_counts=counts, total=sum(counts.values()) if counts else runs.count())

    return _searched(chosen, read, has_cursor=bool(cursor))


def _ordered(runs: QuerySet[Run], sort: str) -> tuple[QuerySet[Run], tuple[str, ...]]:
    key = sort.removeprefix("-")
    if key not in SORTED_BY:
        return runs, ("-created_at", "-id")
    sign = "-" if sort.startswith("-") else ""
    value = SORTED_BY[key]
    if key in _METRIC_SORTS:
        value = Coalesce(value, Value(-math.inf if sign else math.inf), output_field=FloatField())
    return runs.annotate(sort_key=value), (f"{sign}sort_key", "-id")


def matching_ids(*, chosen: RunFilter) -> list[int]:
    """Every run that matches, on whatever page. Raises SearchRefused."""
    return _searched(chosen, lambda: list(narrowed(chosen).order_by("id").values_list("id", flat=True)))


def find_runs(*, text: str, limit: int) -> list[Run]:
    """Runs in use that the list's search finds, those called so first, then newest; name, slug and state only."""
    runs = narrowed(RunFilter(search=text)).only("name", "slug", "status")
    if text:
        called = ExpressionWrapper(Q(name__icontains=text), output_field=BooleanField())
        return list(runs.annotate(is_called=called).order_by("-is_called", "-created_at", "-id")[:limit])
    return list(runs.order_by("-created_at", "-id")[:limit])


def is_there(*, run_id: int) -> bool:
    """Whether the run's pages open: also when it is put aside or deleted, not when it was removed for good."""
    return Run.objects.filter(pk=run_id).exists()


def list_row(*, run_id: int) -> Run:
    """One run as the list shows it. Raises Http404."""
    run = _with_metrics(Run.objects.filter(pk=run_id)).first()
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    return run


def _searched(chosen: RunFilter, read: Callable[[], ResultT], *, has_cursor: bool = False) -> ResultT:
    try:
        with statement_limit(milliseconds=SEARCH_LIMIT_MS) if chosen.regex else transaction.atomic():
            return read()
    except DataError as error:
        if "regular expression" in str(error):
            raise SearchRefused(f"This pattern is not a regular expression: {_first_line(error)}.") from error
        if has_cursor:
            raise BadRequest("This page address is damaged. Open the list again without it.") from error
        raise
    except (ProgrammingError, ValueError) as error:  # the cursor's values are of other types than this order's
        if has_cursor:
            raise BadRequest("This page address is damaged. Open the list again without it.") from error
        raise
    except OperationalError as error:
        if "statement timeout" in str(error):
            seconds = SEARCH_LIMIT_MS // 1000
            raise SearchRefused(
                f"The search took more than {seconds} s and was ended. Use a simpler pattern."
            ) from error
        raise


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].removeprefix("invalid regular expression: ")


def narrowed(chosen: RunFilter) -> QuerySet[Run]:
    """The runs of a filter. Its queries are to run under ``statement_limit`` when the search is a pattern."""
    runs = Run.objects.filter(SHOWN.get(chosen.show, SHOWN[""]))
    if chosen.search:
        how = "iregex" if chosen.regex else "icontains"
        fields = ("name", "slug", "notes", "owner__username", "tags_text")
        runs = runs.annotate(tags_text=Cast("tags", TextField()))
        matches = Q()
        for field in fields:
            matches |= Q(**{f"{field}__{how}": chosen.search})
        runs = runs.filter(matches)
    if chosen.status:
        runs = runs.filter(status__in=STATUS_GROUPS.get(chosen.status, (chosen.status,)))
    if chosen.preset:
        runs = runs.filter(preset=chosen.preset)
    if chosen.tag:
        runs = runs.filter(tags__contains=[chosen.tag])
    if chosen.owner:
        runs = runs.filter(owner__username=chosen.owner)
    return runs


def _with_metrics(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Each run with the attributes of LIST_METRICS, and ``regret_half``: half the width of the 95 % interval of its regret."""
    newest = {
        column: Subquery(
            _points_of(column, run=OuterRef("pk")).order_by("-rollout").values("value")[:1], output_field=FloatField()
        )
        for column in LIST_METRICS
    }
    return runs.select_related("owner").annotate(**newest, regret_half=F("regret_error") * Z_95)


def _points_of(column: str, *, run: Any) -> QuerySet[MetricPoint]:
    """Measured points of a column of the run that ``run`` refers to."""
    points = MetricPoint.objects.filter(run=run, name=LIST_METRICS[column], superseded=False, value__isnull=False)
    if column not in _ERROR_OF:
        return points
    newest = _points_of(_ERROR_OF[column], run=OuterRef(run)).order_by("-rollout")
    return points.filter(rollout=Subquery(newest.values("rollout")[:1]))


@dataclass(frozen=True, kw_only=True)
class RunFacets:
    """Values that occur, for the filter menus."""

    statuses: list[str]
    presets: list[str]
    tags: list[str]
    owners: list[str]


def run_facets() -> RunFacets:
    """States, presets, tags and owners of all runs, each sorted."""
    tags = {
        tag
        for row in Run.objects.exclude(tags=[]).values_list("tags", flat=True)
        for tag in row
        if isinstance(tag, str)
    }
    owners = Run.objects.exclude(owner=None).values_list("owner__username", flat=True).distinct()
    return RunFacets(
        statuses=sorted(Run.objects.values_list("status", flat=True).distinct()),
        presets=sorted(Run.objects.exclude(preset="").values_list("preset", flat=True).distinct()),
        tags=sorted(tags),
        owners=sorted(str(owner) for owner in owners),
    )


def saved_views(*, user: User) -> list[SavedView]:
    """The person's views of the list, by name."""
    return list(SavedView.objects.filter(user=user).order_by("name"))


def can_be(act: str, *, tag: str = "") -> Q:
    """Which runs an act on many changes. Raises KeyError for an act that is not of :data:`BULK_ACTS`."""
    return {
        "tag": ~Q(tags__contains=[tag]) & Q(deleted_at=None),
        "untag": Q(tags__contains=[tag]) & Q(deleted_at=None),
        "archive": Q(status__in=ACTS["archive"], archived_at=None, deleted_at=None),
        "restore": Q(archived_at__isnull=False) | Q(deleted_at__isnull=False),
        "delete": Q(status__in=ACTS["delete"], deleted_at=None),
        "stop": Q(status__in=ACTS["stop"], deleted_at=None),
    }[act]


BULK_ACTS: Final = ("tag", "untag", "archive", "restore", "delete", "stop")


@dataclass(frozen=True, kw_only=True)
class BulkPlan:
    """What an act would do: how many runs were chosen, which it would change, and why the others stay as they are."""

    chosen: int
    changed: list[int]
    names: list[str]  # of the first of them
    refusals: list[str]


def plan_of(*, act: str, run_ids: Sequence[int], tag: str = "", names: int = 12) -> BulkPlan:
    """What the act would do to these runs now. Raises KeyError for an act that is not of :data:`BULK_ACTS`."""
    chosen = Run.objects.filter(pk__in=run_ids)
    total = chosen.count()
    changed = list(chosen.filter(can_be(act, tag=tag)).order_by("id").values_list("id", "name"))
    others = total - len(changed)
    live = chosen.exclude(status__in=AT_REST).count() if act in ("archive", "delete") else 0
    refusals = []
    if live:
        refusals.append(f"{live} live or in the queue: stop {'it' if live == 1 else 'them'} first")
    if others - live > 0:
        refusals.append(f"{others - live} {_already(act)}")
    return BulkPlan(
        chosen=total, changed=[pk for pk, _ in changed], names=[name for _, name in changed[:names]], refusals=refusals
    )


def _already(act: str) -> str:
    return {
        "tag": "have the tag already or are deleted", "untag": "do not have the tag or are deleted",
        "archive": "archived or deleted already", "restore": "neither archived nor deleted", "delete": "deleted already",
        "stop": "not running and not in the queue",
    }[act]  # fmt: skip
