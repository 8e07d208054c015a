"""Taking in a run directory that was made elsewhere. Importing the same directory again adds only what is new.

The events go through the same ingest as those of a run made here. The directory stays where it is, or a copy of it is made among
our own run directories (``Copying``); which of the two is settled by the first import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.runs import journal
from webapp.runs.errors import ActRefused
from webapp.runs.import_check import Checked, check_directory
from webapp.runs.import_copy import Copying, copy_directory
from webapp.runs.import_removed import remove_texts_again, what_stays_removed
from webapp.runs.ingest import Ingester
from webapp.runs.logtail import log_path
from webapp.runs.models import Attempt, Event, Run
from webapp.runs.services import clean_name, runs_directory
from webapp.runs.states import FINAL, Status
from webapp.runs.storable import storable_text
from webapp.runs.supervision.outcome import judge_silence

#: Gets the events taken in so far and all there are.
Progress = Callable[[int, int], None]
_LOCKS = 7_421_002  # of PostgreSQL's advisory locks of two numbers; the second is made from what is imported


def import_run(
    *,
    actor: User | None,
    directory: Path,
    name: str = "",
    copying: Copying = Copying.NOTHING,
    accept_damage: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Run:
    """The run of that directory with all its events. Everything is checked before anything is written.

    Raises ActRefused: it is no run directory, its log is damaged (unless ``accept_damage``: the holes are then shown with the
    run), a trainer is at work in it, it is being imported by somebody else, or it cannot be told from another run.
    """
    checked = check_directory(directory)
    if checked.damage and not accept_damage:
        raise ActRefused(
            f"the event log of {checked.root} is damaged: {checked.damage_text}. Copy it again from where it was made, or "
            "import it with its damage (--damaged): what is missing is then marked on the run's pages"
        )
    with _alone_with(checked):
        return _take_in(actor=actor, checked=checked, name=name, copying=copying, progress=progress)


@contextmanager
def _alone_with(checked: Checked) -> Iterator[None]:
    """Nobody else imports this run meanwhile, here or from a copy of the directory. The lock goes with the connection."""
    what = (_LOCKS, checked.began.isoformat() if checked.began is not None else str(checked.root))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", what)
        if cursor.fetchone() != (True,):
            raise ActRefused(f"the run in {checked.root} is being imported right now: wait until that has ended")
    try:
        yield
    finally:
        if connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", what)


def _take_in(*, actor: User | None, checked: Checked, name: str, copying: Copying, progress: Progress) -> Run:
    run = _known(checked) or _create(actor=actor, checked=checked, name=name, copying=copying)
    if _is_copied(run):
        wanted = copying if copying != Copying.NOTHING else Copying.RECORDS
        _copy(run, source=checked.root, copying=wanted)
    taken, ingester = 0, Ingester(run_id=run.pk, directory=Path(run.directory))
    while more := ingester.poll():
        taken += more
        progress(taken, checked.events)
    if taken or run.status == Status.DRAFT:
        _close(run, actor=actor, taken=taken, checked=checked)
    if _is_copied(run):
        remove_texts_again(run)
    run.refresh_from_db()
    return run


def _copy(run: Run, *, source: Path, copying: Copying) -> None:
    """Bring what is new. What comes with texts is gone through by retention again, also when this import is cut short."""
    leave_out = what_stays_removed(run)
    if copy_directory(source=source, target=Path(run.directory), copying=copying, leave_out=leave_out):
        Run.objects.filter(pk=run.pk).update(text_removed_at=None)
    if log_path(run) is not None:
        Run.objects.filter(pk=run.pk).update(log_removed_at=None)


def _is_copied(run: Run) -> bool:
    return bool(run.imported_from) and run.directory != run.imported_from


def _known(checked: Checked) -> Run | None:
    """The run this directory was imported as before, or that was made in it. Raises ActRefused when it must not be added to."""
    place = str(checked.root)
    run = Run.objects.filter(Q(directory=place) | Q(imported_from=place)).order_by("id").first()
    first = Event.objects.filter(attempt=1, seq=1)
    if run is None and checked.began is not None:
        same = first.filter(run=OuterRef("pk"), at=checked.began)
        run = Run.objects.filter(Exists(same)).order_by("id").first()
        if run is not None and not _is_copied(run):
            raise ActRefused(
                f"{checked.root} is a copy of {run}, which lies in {run.directory}: bring what is new there and import that"
            )
    elif checked.began is not None and first.filter(run=run).exclude(at=checked.began).exists():
        raise ActRefused(
            f"{checked.root} now holds another run than the one it was imported as ({run}): give it a directory of its own"
        )
    if run is None:
        return None
    if run.deleted_at is not None:
        raise ActRefused(f"{run}, imported from {checked.root}, is deleted; restore it first")
    if run.status not in (Status.DRAFT, *FINAL):
        raise ActRefused(f"{run} is {run.status} and uses {run.directory}; import it when it has ended")
    went_on = run.attempts.exclude(host="").order_by("-number").first() if _is_copied(run) else None
    if went_on is not None:
        raise ActRefused(
            f"{run} went on here (attempt {went_on.number}) since it was imported: what {checked.root} has added cannot be joined to it"
        )
    return run


@transaction.atomic
def _create(*, actor: User | None, checked: Checked, name: str, copying: Copying) -> Run:
    config, place = checked.config, str(checked.root)
    run = Run.objects.create(
        name=clean_name(name) or clean_name(storable_text(checked.root.name)) or "imported",
        owner=actor,
        config=config.model_dump(mode="json"),
        preset=config.preset,
        seed=config.seed,
        directory=place,
        imported_from=place,
        total_rollouts=config.schedule.rollouts,
    )
    run.slug = f"imported-{run.pk}"
    if copying != Copying.NOTHING:
        run.directory = str(runs_directory() / run.slug)
    run.save(update_fields=["slug", "directory"])
    record(actor=actor, action="run.imported", target=run, detail={"directory": place, "copied": copying.value})
    return run


@transaction.atomic
def _close(run: Run, *, actor: User | None, taken: int, checked: Checked) -> None:
    """A directory is not a process: the run is over, in the way its log says."""
    attempt = Attempt.objects.filter(run=run).order_by("-number").first()
    if attempt is None:
        return
    if run.status != Status.DRAFT:  # a later import brought more, whose time for retention is still to come
        record(actor=actor, action="run.import_continued", target=run, detail={"events": taken})
        Run.objects.filter(pk=run.pk).update(text_removed_at=None, finished_at=F("last_event_at"))
    if checked.torn_bytes:
        message = f"the last line of its log is torn: {checked.torn_bytes} bytes, less than one event, are left out"
        journal.warn(run_id=run.pk, message=message, where="import")
    outcome = judge_silence(attempt, "imported; its log does not say how it ended")
    now = Run.objects.get(pk=run.pk)
    if now.status != outcome.status:
        journal.move(
            run_id=run.pk,
            target=outcome.status,
            by=actor,
            why=outcome.why,
            sources=(Status.DRAFT, *FINAL),
            finished_at=now.last_event_at or timezone.now(),
            eta_s=None,
            failure_owner=outcome.owner,
            failure_message=storable_text(outcome.message),
        )
