"""Archive, delete, restore, tag and stop many runs at once; what is deleted for 30 days is gone, files and rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.pages.conftest import ingested
from trainer.config import RunConfig
from webapp.accounts.models import AuditEntry, User
from webapp.episodes.models import Episode, Transcript
from webapp.runs import services, services_shelf
from webapp.runs.errors import ActRefused
from webapp.runs.housekeeping import purge_deleted
from webapp.runs.models import Command, Event, Run, SavedView
from webapp.runs.selectors_list import RunFilter, matching_ids, plan_of
from webapp.runs.states import AT_REST, Status

__all__ = ["ingested"]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path


@pytest.fixture
def new(operator: User) -> Callable[..., Run]:
    def make(status: str = "completed", **fields: Any) -> Run:
        run = services.create_run(actor=operator, config=RunConfig(), tags=fields.pop("tags", ()))
        Run.objects.filter(pk=run.pk).update(status=status, gpu_set=str(run.pk), **fields)
        run.refresh_from_db()
        return run

    return make


def listed(show: str = "") -> set[int]:
    return set(matching_ids(chosen=RunFilter(show=show)))


@pytest.mark.parametrize("act", ["archive", "delete"])
@pytest.mark.parametrize("status", list(Status))
def test_only_runs_at_rest_are_put_aside_or_deleted(
    new: Callable[..., Run], operator: User, act: str, status: str
) -> None:
    run = new(status)
    AuditEntry.objects.all().delete()
    changed = services_shelf.act_on_runs(actor=operator, act=act, run_ids=[run.pk])
    assert changed == (1 if status in AT_REST else 0)
    assert (run.pk in listed()) is (status not in AT_REST)
    assert AuditEntry.objects.count() == changed
    if status not in AT_REST:
        with pytest.raises(ActRefused, match=f"is {status}; it cannot be {act}d; stop it first"):
            services_shelf.shelve_run(actor=operator, run_id=run.pk, act=act)


def test_a_deleted_run_comes_back_where_it_was(new: Callable[..., Run], operator: User) -> None:
    run, archived = new(), new()
    services_shelf.archive_runs(actor=operator, run_ids=[archived.pk])
    assert services_shelf.delete_runs(actor=operator, run_ids=[run.pk, archived.pk]) == 2
    assert listed() == set()
    assert listed("deleted") == {run.pk, archived.pk}
    assert services_shelf.restore_runs(actor=operator, run_ids=[run.pk, archived.pk]) == 2
    assert listed() == {run.pk}
    assert listed("archived") == {archived.pk}
    assert services_shelf.restore_runs(actor=operator, run_ids=[archived.pk]) == 1
    assert listed() == {run.pk, archived.pk}
    actions = list(
        AuditEntry.objects.filter(object_id=str(archived.pk)).order_by("id").values_list("action", flat=True)
    )
    assert actions == ["run.created", "run.archived", "run.deleted", "run.restored", "run.restored"]


def test_a_deleted_run_cannot_be_started_until_it_is_restored(new: Callable[..., Run], operator: User) -> None:
    run = new("draft")
    services_shelf.delete_runs(actor=operator, run_ids=[run.pk])
    with pytest.raises(ActRefused, match="deleted; restore it first"):
        services.start_run(actor=operator, run_id=run.pk)
    services_shelf.restore_runs(actor=operator, run_ids=[run.pk])
    assert services.start_run(actor=operator, run_id=run.pk).status == "queued"


def test_an_act_on_many_changes_those_it_may_and_says_why_not_the_others(
    new: Callable[..., Run], operator: User
) -> None:
    rest, live, gone = new(), new("running"), new()
    services_shelf.delete_runs(actor=operator, run_ids=[gone.pk])
    plan = plan_of(act="delete", run_ids=[rest.pk, live.pk, gone.pk])
    assert (plan.chosen, plan.changed) == (3, [rest.pk])
    assert plan.refusals == ["1 live or in the queue: stop it first", "1 deleted already"]
    assert services_shelf.delete_runs(actor=operator, run_ids=[rest.pk, live.pk, gone.pk]) == 1
    assert listed() == {live.pk}


def test_tags_are_added_and_removed_on_many_each_with_its_event(new: Callable[..., Run], operator: User) -> None:
    first, second = new(tags=["old"]), new(tags=["old", "paper"])
    assert services_shelf.add_tag(actor=operator, run_ids=[first.pk, second.pk], tag="  paper ") == 1
    assert [run.tags for run in Run.objects.order_by("id")] == [["old", "paper"], ["old", "paper"]]
    assert services_shelf.remove_tag(actor=operator, run_ids=[first.pk, second.pk], tag="old") == 2
    assert [run.tags for run in Run.objects.order_by("id")] == [["paper"], ["paper"]]
    events = Event.objects.filter(run=first, kind="tagged").order_by("cursor")
    assert [(event.cursor, event.payload) for event in events] == [
        (1, {"by": "olga", "added": "paper"}), (2, {"by": "olga", "removed": "old"}),
    ]  # fmt: skip
    first.refresh_from_db()
    assert first.last_cursor == 2
    with pytest.raises(ActRefused, match="Type the tag"):
        services_shelf.add_tag(actor=operator, run_ids=[first.pk], tag=" \x00 ".replace("\x00", ""))


def test_a_run_never_gets_more_tags_than_it_may_have(new: Callable[..., Run], operator: User) -> None:
    full, other = new(tags=[f"t{index}" for index in range(services.TAGS)]), new()
    with pytest.raises(ActRefused, match="has 20 tags already"):
        services_shelf.add_tag(actor=operator, run_ids=[full.pk, other.pk], tag="more")
    other.refresh_from_db()
    assert other.tags == []  # all or nothing


def test_stopping_many_stops_what_runs_and_empties_the_queue(new: Callable[..., Run], operator: User) -> None:
    running, queued, done = new("running"), new("queued"), new()
    assert services_shelf.stop_runs(actor=operator, run_ids=[running.pk, queued.pk, done.pk]) == 2
    assert dict(Run.objects.values_list("id", "status")) == {
        running.pk: "stopping",
        queued.pk: "stopped",
        done.pk: "completed",
    }
    assert Command.objects.get().run_id == running.pk


def test_a_run_deleted_30_days_ago_is_gone_with_its_files_and_rows(
    ingested: Callable[..., Any], tmp_path: Path
) -> None:
    old, young = ingested(status="completed", rollouts=2), ingested(status="completed", rollouts=2, seed=9)
    for run, days in ((old, 30.01), (young, 29.9)):
        directory = tmp_path / "runs" / str(run.slug)
        directory.parent.mkdir(exist_ok=True)
        Path(run.directory).rename(directory)
        Run.objects.filter(pk=run.pk).update(directory=str(directory), deleted_at=timezone.now() - timedelta(days=days))
    kept = (young.episodes.count(), young.events.count())
    assert min(kept) > 0
    assert purge_deleted() == 1
    assert list(Run.objects.values_list("pk", flat=True)) == [young.pk]
    assert not (tmp_path / "runs" / old.slug).exists()
    assert (tmp_path / "runs" / young.slug / "config.json").exists()
    assert (Episode.objects.count(), Event.objects.count()) == kept
    assert Transcript.objects.count() == kept[0]
    entry = AuditEntry.objects.get(action="run.purged")
    assert (entry.object_id, entry.actor_name, entry.detail["files_removed"]) == (str(old.pk), "system", True)
    assert purge_deleted() == 0


def test_how_long_a_run_can_be_restored_is_a_setting(new: Callable[..., Run], settings: Any) -> None:
    new(deleted_at=timezone.now() - timedelta(days=6))
    settings.SPADEWORK_RESTORE_DAYS = 7
    assert purge_deleted() == 0
    settings.SPADEWORK_RESTORE_DAYS = 5
    assert purge_deleted() == 1


def test_an_imported_run_loses_its_rows_but_its_directory_is_not_ours_to_delete(ingested: Callable[..., Any]) -> None:
    run = ingested(status="completed", rollouts=1)
    Run.objects.filter(pk=run.pk).update(deleted_at=timezone.now() - timedelta(days=31))
    assert purge_deleted() == 1
    assert Path(run.directory, "config.json").exists()
    assert not Run.objects.exists()


def test_files_that_cannot_be_removed_keep_the_rows_for_another_try(
    new: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new(deleted_at=timezone.now() - timedelta(days=31))
    Path(run.directory).mkdir(parents=True)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "not ours", str(path))

    monkeypatch.setattr("webapp.runs.housekeeping.shutil.rmtree", refuse)
    assert purge_deleted() == 0
    assert Run.objects.filter(pk=run.pk).exists()
    monkeypatch.undo()
    assert purge_deleted() == 1


def test_a_saved_view_is_ones_own_and_the_same_name_replaces_it(operator: User) -> None:
    other = User.objects.create_user("oscar")
    services_shelf.save_view(user=operator, name=" paper  runs ", query="tag=paper")
    view = services_shelf.save_view(user=operator, name="paper runs", query="tag=paper&sort=-regret")
    services_shelf.save_view(user=other, name="paper runs", query="")
    assert SavedView.objects.filter(user=operator).get().query == "tag=paper&sort=-regret"
    services_shelf.delete_view(user=other, view_id=view.pk)
    assert SavedView.objects.filter(pk=view.pk).exists()
    services_shelf.delete_view(user=operator, view_id=view.pk)
    assert SavedView.objects.count() == 1
    with pytest.raises(ActRefused, match="needs a name"):
        services_shelf.save_view(user=operator, name="  ", query="")
