"""Taking in a run directory that was made elsewhere. Importing the same directory again adds only what is new."""

from __future__ import annotations

import json
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from trainer.rundir import RunDirectory
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.runs import journal
from webapp.runs.configuration import parse_config
from webapp.runs.errors import ActRefused
from webapp.runs.ingest import Ingester
from webapp.runs.models import Attempt, Run
from webapp.runs.states import FINAL, Status
from webapp.runs.supervision.outcome import judge_silence


def import_run(*, actor: User | None, directory: Path, name: str = "") -> Run:
    """The run of that directory with all its events. Raises ActRefused when it is no run directory or a run is using it."""
    root = directory.resolve()
    run = Run.objects.filter(directory=str(root)).first() or _create(actor, root, name)
    if run.status not in (Status.DRAFT, *FINAL):
        raise ActRefused(f"{run} is {run.status} and uses {root}; import it when it has ended")
    Ingester(run_id=run.pk, directory=root).drain()
    _close(run)
    run.refresh_from_db()
    return run


@transaction.atomic
def _create(actor: User | None, root: Path, name: str) -> Run:
    try:
        values = json.loads(RunDirectory(root).config.read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ActRefused(f"{root} is no run directory: its config.json cannot be read ({error})") from error
    config = parse_config(values)
    run = Run.objects.create(
        name=name or root.name,
        owner=actor,
        config=config.model_dump(mode="json"),
        preset=config.preset,
        seed=config.seed,
        directory=str(root),
        total_rollouts=config.schedule.rollouts,
    )
    run.slug = f"imported-{run.pk}"
    run.save(update_fields=["slug"])
    record(actor=actor, action="run.imported", target=run, detail={"directory": str(root)})
    return run


@transaction.atomic
def _close(run: Run) -> None:
    """A directory is not a process: the run is over, in the way its log says."""
    attempt = Attempt.objects.filter(run=run).order_by("-number").first()
    if attempt is None:
        return
    outcome = judge_silence(attempt, "imported; its log does not say how it ended")
    if Run.objects.get(pk=run.pk).status != outcome.status:
        journal.move(
            run_id=run.pk,
            target=outcome.status,
            why=outcome.why,
            sources=(Status.DRAFT, *FINAL),
            finished_at=timezone.now(),
            failure_owner=outcome.owner,
            failure_message=outcome.message,
        )
