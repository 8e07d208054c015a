"""What people do to many runs at once: tag, put aside, delete and restore, stop. One act on one run is a list of one.

Each function changes the runs it may (``selectors_list.can_be``), leaves the others as they are, and returns how many it changed;
each changed run gets its own audit entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from webapp.accounts.audit import record, record_each
from webapp.accounts.models import User
from webapp.runs import journal, services
from webapp.runs.errors import ActRefused, RunNotFound
from webapp.runs.models import Run, SavedView
from webapp.runs.retention import restore_days
from webapp.runs.selectors_list import can_be
from webapp.runs.storable import storable_text

VIEW_NAME_CHARS = 80
VIEW_QUERY_CHARS = 2_000
VIEWS = 50


def restorable() -> timedelta:
    """How long a deleted run can be restored."""
    return timedelta(days=restore_days())


@transaction.atomic
def archive_runs(*, actor: User, run_ids: Sequence[int]) -> int:
    """Put runs at rest aside: they leave the list and keep everything."""
    runs = _claimed("archive", run_ids)
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(archived_at=timezone.now())
    _note(actor, runs, "archived")
    return len(runs)


@transaction.atomic
def restore_runs(*, actor: User, run_ids: Sequence[int]) -> int:
    """Bring deleted runs back to where they were, and archived ones back into the list."""
    runs = _claimed("restore", run_ids)
    deleted = [run for run in runs if run.deleted_at is not None]
    archived = [run for run in runs if run.deleted_at is None]
    Run.objects.filter(pk__in=[run.pk for run in deleted]).update(deleted_at=None)
    Run.objects.filter(pk__in=[run.pk for run in archived]).update(archived_at=None)
    _note(actor, runs, "restored")
    return len(runs)


@transaction.atomic
def delete_runs(*, actor: User, run_ids: Sequence[int]) -> int:
    """Take runs at rest out of every list; for a time (``restorable``) they can be restored, then rows and files are removed for good."""
    runs = _claimed("delete", run_ids)
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(deleted_at=timezone.now())
    _note(actor, runs, "deleted")
    return len(runs)


@transaction.atomic
def add_tag(*, actor: User, run_ids: Sequence[int], tag: str) -> int:
    """Give the runs one more tag. Raises ActRefused for an empty tag, or when a run already has as many as it may."""
    tag = _clean_tag(tag)
    runs = _claimed("tag", run_ids, tag=tag)
    full = [run.name for run in runs if len(run.tags) >= services.TAGS]
    if full:
        raise ActRefused(f"{full[0]} has {services.TAGS} tags already; remove one of them first")
    for run in runs:
        run.tags = [*run.tags, tag]
    return _retag(actor, runs, {"added": tag})


@transaction.atomic
def remove_tag(*, actor: User, run_ids: Sequence[int], tag: str) -> int:
    """Take one tag off the runs. Raises ActRefused for an empty tag."""
    tag = _clean_tag(tag)
    runs = _claimed("untag", run_ids, tag=tag)
    for run in runs:
        run.tags = [one for one in run.tags if one != tag]
    return _retag(actor, runs, {"removed": tag})


def stop_runs(*, actor: User, run_ids: Sequence[int]) -> int:
    """Stop what runs or waits; each run in a transaction of its own, so that one that just ended holds up no other."""
    stopped = 0
    for run_id in Run.objects.filter(can_be("stop"), pk__in=run_ids).order_by("id").values_list("id", flat=True):
        try:
            services.stop_run(actor=actor, run_id=run_id, reason="stopped together with others")
        except (ActRefused, RunNotFound):
            continue  # it ended between the question and the act: there is nothing left to stop
        stopped += 1
    return stopped


#: Acts that need nothing but the runs, by name.
ACTS_ON_MANY: Final[dict[str, Callable[..., int]]] = {
    "archive": archive_runs,
    "restore": restore_runs,
    "delete": delete_runs,
    "stop": stop_runs,
}


def act_on_runs(*, actor: User, act: str, run_ids: Sequence[int], tag: str = "") -> int:
    """Do one of ``selectors_list.BULK_ACTS``; how many runs it changed. Raises ActRefused, KeyError for another act."""
    if act == "tag":
        return add_tag(actor=actor, run_ids=run_ids, tag=tag)
    if act == "untag":
        return remove_tag(actor=actor, run_ids=run_ids, tag=tag)
    return ACTS_ON_MANY[act](actor=actor, run_ids=run_ids)


def shelve_run(*, actor: User, run_id: int, act: str) -> None:
    """Archive, restore or delete one run. Raises ActRefused when its state forbids that, RunNotFound."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise RunNotFound(f"there is no run {run_id}")
    if ACTS_ON_MANY[act](actor=actor, run_ids=[run_id]) == 0:
        where = "deleted" if run.deleted_at else "archived" if run.archived_at else run.status
        hint = "" if act == "restore" or where in ("deleted", "archived") else "; stop it first"
        raise ActRefused(f"{run} is {where}; it cannot be {act}d{hint}")


@transaction.atomic
def save_view(*, user: User, name: str, query: str) -> SavedView:
    """Keep the query of the list under a name; the same name again replaces it. Raises ActRefused without a name or with too many."""
    cleaned = " ".join(storable_text(name).split())[:VIEW_NAME_CHARS]
    if not cleaned:
        raise ActRefused("A view needs a name; type one.")
    others = SavedView.objects.filter(user=user).exclude(name=cleaned).count()
    if others >= VIEWS:
        raise ActRefused(f"There are {VIEWS} views already; delete one first.")
    view, _ = SavedView.objects.update_or_create(
        user=user, name=cleaned, defaults={"query": storable_text(query)[:VIEW_QUERY_CHARS]}
    )
    record(actor=user, action="view.saved", target=view, detail={"query": view.query})
    return view


@transaction.atomic
def delete_view(*, user: User, view_id: int) -> None:
    """Forget one of the person's own views; somebody else's, or one that is gone, is left alone."""
    view = SavedView.objects.filter(user=user, pk=view_id).first()
    if view is not None:
        record(actor=user, action="view.deleted", target=view)
        view.delete()


def _claimed(act: str, run_ids: Sequence[int], *, tag: str = "") -> list[Run]:
    """The runs the act may change now, locked in one order, so that two people's acts cannot wait for each other."""
    return list(Run.objects.select_for_update().filter(can_be(act, tag=tag), pk__in=run_ids).order_by("id"))


def _retag(actor: User, runs: Sequence[Run], detail: dict[str, Any]) -> int:
    Run.objects.bulk_update(runs, ["tags"], batch_size=500)
    journal.append_each(run_ids=[run.pk for run in runs], kind="tagged", payload={"by": actor.get_username(), **detail})
    record_each(actor=actor, action="run.tagged", targets=runs, detail=detail)
    return len(runs)


def _note(actor: User, runs: Sequence[Run], word: str) -> None:
    journal.append_each(
        run_ids=[run.pk for run in runs], kind="shelved", payload={"by": actor.get_username(), "to": word}
    )
    record_each(actor=actor, action=f"run.{word}", targets=runs)


def _clean_tag(tag: str) -> str:
    cleaned = services.clean_tags([tag])
    if not cleaned:
        raise ActRefused("Type the tag first.")
    return cleaned[0]
