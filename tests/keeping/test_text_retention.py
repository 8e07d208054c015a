"""Transcripts and printed logs after a run's end: what goes, what stays, and what pages say about it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from webapp.accounts.models import AuditEntry, User
from webapp.episodes.models import Episode, Transcript
from webapp.pools.models import Pool, PoolItem
from webapp.review.models import Flag, FlagKind, Queue, QueueItem, Review
from webapp.runs.housekeeping import purge
from webapp.runs.ingest import Ingester
from webapp.runs.models import Retention, Run

pytestmark = pytest.mark.django_db

PAGE = "/keeping/retention/"
FIGURES = (
    "key", "arm", "offset", "play", "seed", "status", "reward", "turns", "prompt_tokens", "total_tokens", "trained_tokens", "fault",
    "elapsed_s", "superseded",
)  # fmt: skip


@pytest.fixture
def ended(ingested: Callable[..., Any], settings: Any, tmp_path: Path) -> Callable[..., Run]:
    """A completed run of some days ago, with its directory among ours unless ``ours`` is False."""
    settings.SPADEWORK_HOME = tmp_path
    (tmp_path / "runs").mkdir()

    def make(*, days: int = 20, ours: bool = True, **options: Any) -> Run:
        run: Run = ingested(finish="completed", status="completed", **options)
        if ours:
            run.directory = str(Path(run.directory).rename(tmp_path / "runs" / f"run-{run.pk}"))
        run.finished_at = timezone.now() - timedelta(days=days)
        run.save()
        return run

    return make


def said(run: Run) -> list[str]:
    """Everything that was said in the run's episodes, as its event log has it."""
    texts = []
    for path in sorted(Path(run.directory).glob("attempts/*/events/*.jsonl")):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == "episode":
                for turn in event["payload"]["turns"]:
                    texts += [turn["observation"], turn["reply"], turn["action"] or ""]
                texts.append(event["payload"]["final_observation"])
    return [text for text in texts if text]


def with_text(run: Run) -> Any:
    return Transcript.objects.filter(episode__run=run, removed_at=None)


def figures(run: Run) -> list[Any]:
    return list(Episode.objects.filter(run=run).order_by("attempt", "key").values_list(*FIGURES))


def test_texts_go_after_a_confirmation_that_says_how_much_and_every_figure_stays(
    as_role: Callable[[str], Client], ended: Callable[..., Run]
) -> None:
    run, admin = ended(resume_from=2), as_role("admin")
    before, count = figures(run), Transcript.objects.count()
    page_before = admin.get(f"/runs/{run.pk}/environments/r0000-s00/").context["offsets"]
    asked = admin.post(PAGE, {"transcript_days": "14"})
    plan = asked.context["plan"]
    assert (plan.transcripts, plan.transcript_bytes > 0, plan.event_log_bytes > 0) == (count, True, True)
    assert f"the texts of {count} transcripts" in asked.content.decode()
    assert not Retention.objects.exists()
    admin.post(PAGE, {"transcript_days": "14", "confirmed": asked.context["digest"]})
    assert AuditEntry.objects.get(action="retention.changed").detail == {"transcript_days": [None, 14]}
    assert said(run)
    purge()
    assert not with_text(run).exists()
    assert Transcript.objects.filter(turns=[], final_observation="").count() == count
    assert said(run) == []
    assert figures(run) == before
    assert admin.get(f"/runs/{run.pk}/environments/r0000-s00/").context["offsets"] == page_before
    detail = AuditEntry.objects.get(action="run.texts_purged").detail
    assert (detail["transcripts"], detail["environments_kept"]) == (count, 0)
    assert detail["database_bytes"] == plan.transcript_bytes
    assert detail["event_log_bytes"] > 0
    purge()
    assert AuditEntry.objects.filter(action="run.texts_purged").count() == 1
    assert admin.get(PAGE).context["now"].is_nothing


def test_a_log_without_texts_is_the_same_run_when_it_is_read_again(ended: Callable[..., Run]) -> None:
    run = ended()
    before = figures(run)
    Retention.objects.create(pk=1, transcript_days=14)
    purge()
    again = Run.objects.create(
        name="again", slug="again", config=run.config, seed=7, total_rollouts=4, directory=run.directory
    )
    Ingester(run_id=again.pk, directory=Path(run.directory)).drain()
    again.refresh_from_db()
    assert figures(again) == before
    assert not again.gap
    assert again.warnings == 0
    rewards = [[turn["reward"] for turn in one.turns] for one in Transcript.objects.filter(episode__run=again)]
    assert any(reward for turns in rewards for reward in turns)
    assert Ingester(run_id=run.pk, directory=Path(run.directory)).drain() == 0


def test_pages_of_an_episode_say_when_its_text_went_and_what_remains(
    as_role: Callable[[str], Client], ended: Callable[..., Run]
) -> None:
    run, viewer = ended(), as_role("viewer")
    Retention.objects.create(pk=1, transcript_days=14)
    purge()
    day = f"{timezone.now():%-d %B %Y}"
    episode = Episode.objects.filter(run=run, offset=0, environment__hint_state="ok", turns__gt=0).first()
    assert episode is not None
    base = f"/runs/{run.pk}"
    page = viewer.get(f"{base}/episodes/{episode.pk}/").content.decode()
    assert f"was removed by retention on {day}" in page
    assert f"{episode.turns} turn" in page
    assert "ended before the agent could act" not in page
    other = Episode.objects.filter(run=run).exclude(pk=episode.pk).first()
    for address in (
        f"{base}/pairs/{episode.environment_key}/{episode.play}/",
        f"{base}/beside/?left={episode.pk}&right={other.pk}",  # type: ignore[union-attr]
    ):
        assert viewer.get(address).content.decode().count(f"was removed by retention on {day}") == 2
    assert f"removed the texts of this run's transcripts on {day}" in viewer.get(
        f"{base}/episodes/"
    ).content.decode().replace("&#x27;", "'")
    raw = json.loads(viewer.get(f"{base}/episodes/{episode.pk}/raw/").content)
    assert (raw["turns"], raw["text_removed_at"][:10]) == ([], f"{timezone.now():%Y-%m-%d}")
    api = viewer.get(f"/api/v1/runs/{run.pk}/episodes/{episode.pk}/").json()
    assert (api["turns"], api["more"], bool(api["text_removed_at"])) == ([], False, True)
    gone = viewer.get(f"{base}/episodes/{episode.pk}/raw/?turn=0&part=reply")
    assert gone.status_code == 404


def test_what_people_pointed_at_keeps_its_text_in_the_database_and_in_the_log(ended: Callable[..., Run]) -> None:
    run = ended(rollouts=9, environments=4)
    person = User.objects.create_user("ana")
    flagged, labelled, waiting, pooled, put_aside, *plain = list(run.environments.order_by("key"))
    Flag.objects.create(
        run=run, environment=flagged, subject="environment", kind=FlagKind.objects.all()[0], withdrawn_at=timezone.now()
    )
    queue = Queue.objects.create(name="closed", run=run, closed_at=timezone.now())
    item = QueueItem.objects.create(queue=queue, environment=labelled, score=1.0)
    Review.objects.create(item=item, place=0, reviewer=person, given_at=timezone.now())
    QueueItem.objects.create(queue=queue, environment=put_aside, score=1.0)
    QueueItem.objects.create(queue=Queue.objects.create(name="open", run=run), environment=waiting, score=1.0)
    PoolItem.objects.create(pool=Pool.objects.create(name="pool"), environment=pooled)
    kept = {flagged.key, labelled.key, waiting.key, pooled.key}
    assert plain
    total = with_text(run).count()
    Retention.objects.create(pk=1, transcript_days=14)
    purge()
    assert set(with_text(run).values_list("episode__environment_key", flat=True)) == kept
    left = with_text(run).count()
    assert 0 < left < total
    assert AuditEntry.objects.get(action="run.texts_purged").detail["environments_kept"] == 4
    in_log = said(run)
    for transcript in with_text(run):
        assert all(turn["reply"] in in_log for turn in transcript.turns)
    assert sum(bool(turn["reply"]) for one in with_text(run) for turn in one.turns) * 2 <= len(in_log)


def test_the_log_of_a_run_elsewhere_and_runs_at_work_or_young_stay(ended: Callable[..., Run]) -> None:
    foreign, young, busy, kept = ended(ours=False), ended(days=3), ended(), ended()
    Run.objects.filter(pk=busy.pk).update(status="running")
    purge()  # nothing is set: for ever
    assert Transcript.objects.exclude(removed_at=None).count() == 0
    Retention.objects.create(pk=1, transcript_days=14)
    purge()
    assert (with_text(foreign).exists(), with_text(young).exists(), with_text(busy).exists(), with_text(kept).exists()) == (
        False, True, True, False,
    )  # fmt: skip
    assert said(foreign)
    assert said(busy)


def test_a_log_that_a_trainer_still_holds_is_taken_up_again(ended: Callable[..., Run]) -> None:
    run = ended()
    Retention.objects.create(pk=1, transcript_days=14)
    with (Path(run.directory) / "trainer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        purge()
        assert said(run)
        run.refresh_from_db()
        assert run.text_removed_at is None
    purge()
    assert said(run) == []
    run.refresh_from_db()
    assert run.text_removed_at is not None


def test_a_run_that_was_resumed_and_ended_again_is_gone_through_again(ended: Callable[..., Run]) -> None:
    run = ended()
    Retention.objects.create(pk=1, transcript_days=14)
    purge()
    Run.objects.filter(pk=run.pk).update(text_removed_at=F("finished_at") - timedelta(days=1))
    newest = Transcript.objects.filter(episode__run=run).order_by("-pk").first()
    assert newest is not None
    Transcript.objects.filter(pk=newest.pk).update(removed_at=None, turns=[{"observation": "x", "reply": "y"}])
    purge()
    assert not with_text(run).exists()
    run.refresh_from_db()
    assert run.text_removed_at is not None
    assert run.text_removed_at > run.finished_at  # type: ignore[operator]


def test_printed_logs_go_and_their_page_says_so(as_role: Callable[[str], Client], ended: Callable[..., Run]) -> None:
    run, elsewhere, viewer, admin = ended(), ended(ours=False), as_role("viewer"), as_role("admin")
    for one in (run, elsewhere):
        (Path(one.directory) / "log.txt").write_text("rollout 0\n" * 100)
    asked = admin.post(PAGE, {"log_days": "14"})
    assert "1 printed log, 1000 B" in asked.content.decode()
    admin.post(PAGE, {"log_days": "14", "confirmed": asked.context["digest"]})
    assert "rollout 0" in viewer.get(f"/runs/{run.pk}/log/").content.decode()
    purge()
    assert "The log was removed by retention" in viewer.get(f"/runs/{run.pk}/log/").content.decode()
    assert viewer.get(f"/runs/{run.pk}/log.txt").status_code == 404
    assert "rollout 0" in viewer.get(f"/runs/{elsewhere.pk}/log/").content.decode()
    assert AuditEntry.objects.get(action="run.log_purged").detail == {"bytes": 1000}
    assert with_text(run).exists()
