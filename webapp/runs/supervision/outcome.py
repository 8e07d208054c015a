"""How a run ended: from what the trainer last said and how its process went."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction
from django.db.models.functions import Now

from trainer.rundir import RunDirectory
from webapp.runs import dispatch, journal
from webapp.runs.models import Attempt, Run
from webapp.runs.states import ACTIVE, Status
from webapp.runs.storable import storable_text
from webapp.runs.supervision.lease import Claim, LeaseLost
from webapp.runs.supervision.relay import close_unanswered

_OWNER_OF_EXIT = {1: "bug", 2: "user", 3: "infrastructure", 4: "limit"}
_LAST_WORDS_BYTES = 4096
_LAST_WORDS_CHARS = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """Final status and why; owner and message are shown for failures."""

    status: Status
    why: str
    owner: str = ""
    message: str = ""


def judge_exit(*, run: Run, attempt: Attempt, exit_code: int, directory: RunDirectory, killed_why: str) -> Outcome:
    """The outcome of a process that was seen to end. ``killed_why`` is set when the supervisor killed it."""
    reported = attempt.reported_state
    reason = attempt.reported_reason
    if exit_code == 0 and reported == "completed":
        return Outcome(Status.COMPLETED, reason or "all rollouts are done")
    stopping = run.status == Status.STOPPING
    if exit_code == 0 and (reported in ("stopped", "stopping") or stopping):
        return Outcome(Status.STOPPED, reason or "stopped on request")
    if killed_why and stopping:
        return Outcome(Status.STOPPED, killed_why)
    if exit_code < 0:
        name = signal_name(-exit_code)
        if stopping:
            return Outcome(Status.STOPPED, f"the trainer was ended by {name}")
        hint = ": often the machine ran out of memory" if exit_code == -signal.SIGKILL else ""
        message = f"The trainer was killed by {name}{hint}. The run can be resumed from its last checkpoint."
        return Outcome(Status.FAILED, f"killed by {name}", "infrastructure", message)
    if reported == "failed":
        return Outcome(Status.FAILED, reason, attempt.reported_owner or _OWNER_OF_EXIT.get(exit_code, "bug"), reason)
    if exit_code == 0:
        message = "The trainer ended without saying that it was done. The run can be resumed from its last checkpoint."
        return Outcome(Status.FAILED, "ended early", "bug", message)
    words = (
        last_words(directory.log, attempt.log_offset) or f"The trainer ended with exit code {exit_code}; see its log."
    )
    return Outcome(Status.FAILED, f"exit code {exit_code}", _OWNER_OF_EXIT.get(exit_code, "bug"), words)


def judge_silence(attempt: Attempt, why: str) -> Outcome:
    """The outcome of a process whose end nobody saw: what its log says, else lost."""
    if attempt.reported_state in ("completed", "stopped", "failed"):
        owner, message = (
            (attempt.reported_owner, attempt.reported_reason) if attempt.reported_state == "failed" else ("", "")
        )
        return Outcome(Status(attempt.reported_state), attempt.reported_reason or "as its log says", owner, message)
    return Outcome(Status.LOST, why, "infrastructure", f"{why}. The run can be resumed from its last checkpoint.")


@transaction.atomic
def close_run(claim: Claim, outcome: Outcome, *, exit_code: int | None) -> None:
    """Write the end of the attempt and of the run, let go of the lease, and look for the next one. Raises LeaseLost."""
    run = Run.objects.select_for_update().filter(pk=claim.run_id, lease=claim.lease, status__in=ACTIVE).first()
    if run is None:
        raise LeaseLost(f"run {claim.run_id}: attempt {claim.attempt} is no longer ours")
    Attempt.objects.filter(run=run, number=claim.attempt).update(finished_at=Now(), exit_code=exit_code)
    close_unanswered(claim)
    journal.move(
        run_id=run.pk,
        target=outcome.status,
        why=outcome.why,
        sources=ACTIVE,
        lease=None,
        finished_at=Now(),
        eta_s=None,
        failure_owner=outcome.owner,
        failure_message=storable_text(outcome.message),
    )
    if Run.objects.filter(status=Status.QUEUED).exists():
        transaction.on_commit(dispatch.wake_gpu_worker)


def signal_name(number: int) -> str:
    """SIGKILL for 9, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(log: Path, offset: int) -> str:
    """The last line printed into a log from ``offset`` on, "" when nothing was."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(offset, end - _LAST_WORDS_BYTES))
            text = file.read().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return storable_text(lines[-1][-_LAST_WORDS_CHARS:]) if lines else ""
