"""Going on from a checkpoint of another run, with changed settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.db import transaction

from trainer.config import RunConfig
from trainer.errors import UserError
from trainer.fork import refuse_meaningless
from trainer.rundir import RunDirectory
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.runs import services
from webapp.runs.checkpoint_files import resolve_name
from webapp.runs.configuration import parse_config
from webapp.runs.errors import ActRefused, RunNotFound
from webapp.runs.models import Checkpoint, Run


def why_not_forkable(*, run: Run, checkpoint: str, config: RunConfig) -> str:
    """Why a fork of the run from that checkpoint with these settings is refused, "" when it is not."""
    if not checkpoint.isdecimal() or not Checkpoint.objects.filter(run=run, name=checkpoint).exists():
        return f"{run} has no checkpoint {checkpoint}."
    if checkpoint not in checkpoints_on_disk(run=run):
        return f"Checkpoint {checkpoint} of {run} is no longer on the disk; choose another one."
    try:
        refuse_meaningless(old=parse_config(run.config), new=config, done=int(checkpoint))
    except UserError as error:
        return str(error)
    return ""


def checkpoints_on_disk(*, run: Run) -> set[str]:
    """Names of the run's whole checkpoints that are there now."""
    directory = RunDirectory(Path(run.directory)).checkpoints
    if not run.directory or not directory.is_dir():
        return set()
    return {path.name for path in directory.iterdir() if (path / "COMPLETE").is_file()}


@transaction.atomic
def fork_run(
    *,
    actor: User,
    run_id: int,
    checkpoint: str,
    config: RunConfig,
    name: str = "",
    tags: Sequence[str] = (),
    notes: str = "",
) -> Run:
    """A new draft that goes on from a checkpoint of the run. Raises ActRefused where the checkpoint or the settings do not allow it.

    Its directory is made when it starts, by a process that is supervised like a trainer.
    """
    parent = Run.objects.filter(pk=run_id).first()
    if parent is None:
        raise RunNotFound(f"there is no run {run_id}")
    checkpoint = resolve_name(run=parent, name=checkpoint)
    refusal = why_not_forkable(run=parent, checkpoint=checkpoint, config=config)
    if refusal:
        raise ActRefused(refusal)
    run = services.create_run(
        actor=actor,
        config=config,
        name=name or f"{parent.name} fork at {checkpoint}",
        tags=tags,
        notes=notes,
        parent=parent,
    )
    run.fork_checkpoint = checkpoint
    run.save(update_fields=["fork_checkpoint"])
    record(actor=actor, action="run.forked", target=run, detail={"parent": parent.slug, "checkpoint": checkpoint})
    return run
