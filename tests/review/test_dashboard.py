"""The review dashboard: counts over time and by skill, what waits, downloads of flags, and what an empty one says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from webapp.environments.models import Environment
from webapp.review import services
from webapp.review.models import Flag
from webapp.review.selectors_dashboard import BAR_HEIGHT, bucket_starts, figures, flags_by_skill, flags_over_time
from webapp.review.services import Pointer, Wish

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)  # a Monday


@pytest.fixture
def placed(environment: Any, person: Any, kind: Any) -> Callable[..., Flag]:
    """``placed("crash", days_ago=3, on=…)``: a flag of that age."""

    def place(key: str, *, days_ago: float = 0, on: Any = None, role: str = "reviewer", **options: Any) -> Flag:
        target = on or environment
        flag = services.place_flag(actor=person(role), environment_id=target.pk, kind_id=kind(key).pk, **options)
        Flag.objects.filter(pk=flag.pk).update(at=NOW - timedelta(days=days_ago))
        return flag

    return place


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_buckets_are_days_up_to_today_and_weeks_that_start_on_monday() -> None:
    days = bucket_starts(span="day", today=date(2026, 11, 30))
    assert (len(days), days[0], days[-1]) == (28, date(2026, 11, 3), date(2026, 11, 30))
    weeks = bucket_starts(span="week", today=date(2026, 12, 2))
    assert (len(weeks), weeks[0], weeks[-2], weeks[-1]) == (
        26,
        date(2026, 6, 8),
        date(2026, 11, 23),
        date(2026, 11, 30),
    )


def test_kinds_over_time_share_one_scale_and_the_most_frequent_comes_first(placed: Any) -> None:
    for days_ago in (0, 0.1, 0.2, 27):
        placed("crash", days_ago=days_ago)
    placed("hang", days_ago=1)
    placed("hang", days_ago=400)
    rows, highest = flags_over_time(span="day", now=NOW)
    assert highest == 3
    assert [(row.kind.key, row.total, row.ever) for row in rows] == [("crash", 4, 4), ("hang", 1, 2)]
    crash, hang = rows
    assert [bar.count for bar in crash.bars] == [1, *[0] * 26, 3]
    assert (crash.bars[-1].height, crash.bars[-1].y) == (BAR_HEIGHT, 0)
    assert (hang.bars[-2].count, hang.bars[-2].height, hang.bars[-2].y) == (1, 8.0, 16.0)


def test_weeks_gather_their_days(placed: Any) -> None:
    for days_ago in (0, 1, 7, 7.5):  # Monday; Sunday before; the Monday and Sunday a week earlier
        placed("crash", days_ago=days_ago)
    rows, highest = flags_over_time(span="week", now=NOW)
    assert [bar.count for bar in rows[0].bars[-3:]] == [1, 2, 1]
    assert highest == 2


def test_withdrawn_flags_do_not_count_anywhere(placed: Any, run: Any) -> None:
    flag = placed("crash")
    services.withdraw_flag(actor=flag.by, flag_id=flag.pk)
    assert flags_over_time(span="day", now=NOW) == ([], 0)
    assert figures() == figures(run=run.pk)
    assert (figures().flags, figures().environments) == (0, 0)
    assert all(row.flagged == 0 for row in flags_by_skill())


def test_skills_are_ordered_by_their_share_of_flagged_environments(placed: Any, run: Any) -> None:
    everything = list(run.environments.filter(superseded=False).order_by("rollout", "slot"))
    Environment.objects.filter(run=run).update(skill="Logic")
    Environment.objects.filter(pk=everything[0].pk).update(skill="Planning")
    placed("crash", on=everything[0])
    placed("hang", on=everything[0])
    placed("crash", on=everything[0])
    placed("crash", on=everything[1])
    planning, logic = flags_by_skill(run=run.pk)
    assert (planning.skill, planning.environments, planning.flagged, planning.share) == ("Planning", 1, 1, 1.0)
    assert [(kind.key, count) for kind, count in planning.kinds] == [("crash", 2), ("hang", 1)]
    others = len(everything) - 1
    assert (logic.environments, logic.flagged, logic.share) == (others, 1, pytest.approx(1 / others))


def test_figures_count_what_stands_waits_and_holds(placed: Any, run: Any) -> None:
    placed("crash", wish=Wish(act="quarantine"))
    placed("hang", role="operator", wish=Wish(act="quarantine"))
    placed("shortcut", role="operator", wish=Wish(act="quarantine"))
    placed("trivial")
    found = figures(run=run.pk)
    assert (found.flags, found.environments, found.proposals, found.effects) == (4, 1, 1, 1)
    assert figures(run=run.pk + 1).flags == 0


def test_the_page_opens_for_viewers_and_narrows_to_a_run(placed: Any, run: Any, as_role: Any, ingested: Any) -> None:
    placed("crash", comment="divides by zero")
    address = reverse("review:list")
    assert [as_role(role).get(address).status_code for role in ("anonymous", "", "viewer", "reviewer", "admin")] == [
        302,
        403,
        200,
        200,
        200,
    ]
    viewer = as_role("viewer")
    assert "divides by zero" in text(viewer.get(address))
    other = ingested(seed=11)
    assert "divides by zero" not in text(viewer.get(f"{address}?run={other.pk}"))
    assert viewer.get(f"{address}?run=x").status_code == 400
    assert "26 weeks by week" in text(viewer.get(f"{address}?span=week"))
    assert "4 weeks by day" in text(viewer.get(f"{address}?span=nonsense"))


def test_the_navigation_leads_there_for_everybody(viewer: Client, run: Any) -> None:
    assert 'href="/review/"' in text(viewer.get("/runs/"))


def test_an_empty_dashboard_says_what_to_do_by_role(viewer: Client, as_role: Any, run: Any) -> None:
    assert "Make a queue" not in text(viewer.get(reverse("review:list")))
    assert "Nothing flagged yet" in text(viewer.get(reverse("review:list")))
    assert "Make a queue" in text(as_role("reviewer").get(reverse("review:list")))


def test_a_proposal_is_put_into_effect_from_the_dashboard(placed: Any, operator: Client) -> None:
    flag = placed("crash", wish=Wish(act="quarantine"))
    address = reverse("review:list")
    assert "Put into effect" in text(operator.get(address))
    assert operator.post(reverse("review:put_into_effect", args=[flag.pk]), {"back": address})["Location"] == address
    seen = text(operator.get(address))
    assert "Put into effect" not in seen
    assert "waits for the supervisor" in seen


def test_flags_for_download_follow_the_filter_and_their_cells_are_safe(
    placed: Any, run: Any, viewer: Client, environment: Any
) -> None:
    episode = run.episodes.filter(environment=environment).first()
    Environment.objects.filter(pk=environment.pk).update(class_name='=HYPERLINK("http://x","y")')
    placed(
        "crash",
        comment="+cmd|' /C calc'!A0",
        subject="turn",
        pointer=Pointer(episode_id=episode.pk, turn=0),
        severity=3,
    )
    placed("hang", role="operator", wish=Wish(act="down_weight", weight=0.5))
    withdrawn = placed("trivial")
    services.withdraw_flag(actor=withdrawn.by, flag_id=withdrawn.pk)

    rows = list(csv.DictReader(io.StringIO(viewer.get(reverse("review:flags_csv")).content.decode(), newline="")))
    by_kind = {row["kind"]: row for row in rows}
    crash = by_kind["crash"]
    assert (crash["class_name"], crash["comment"]) == ('\'=HYPERLINK("http://x","y")', "'+cmd|' /C calc'!A0")
    assert (crash["about"], crash["turn"], crash["severity"], crash["state"]) == ("turn", "1", "critical", "note")
    assert (by_kind["hang"]["effect"], by_kind["hang"]["weight"], by_kind["hang"]["state"]) == (
        "down_weight",
        "0.5",
        "asked",
    )
    assert by_kind["trivial"]["state"] == "withdrawn"

    only = viewer.get(f"{reverse('review:flags_jsonl')}?kind=hang").content.decode().splitlines()
    (row,) = [json.loads(line) for line in only]
    assert (row["kind"], row["weight"], row["first_line"]) == ("hang", 0.5, None)
    assert viewer.get(reverse("review:flags_csv"))["Content-Disposition"] == 'attachment; filename="flags.csv"'
