"""What nobody is responsible for any more: runs of dead workers become `lost`, forgotten queue entries are sent again."""

from __future__ import annotations

import logging

from django.db import transaction
from kombu.exceptions import OperationalError as BrokerAway

from webapp.runs import dispatch, journal
from webapp.runs.ingest import Ingester
from webapp.runs.models import Attempt, Run
from webapp.runs.states import Status
from webapp.runs.supervision.lease import LEASE_S, Claim, host_name, take_over_expired
from webapp.runs.supervision.outcome import close_run, judge_silence
from webapp.runs.supervision.trainer_process import kill_leftovers

log = logging.getLogger(__name__)


def sweep() -> None:
    """One round. Safe to run anywhere, any number of times at once."""
    for claim in take_over_expired():
        _close_abandoned(claim)
    if Run.objects.filter(status=Status.QUEUED).exists():
        _send_queue_again()


def _close_abandoned(claim: Claim) -> None:
    """End what is left of the trainer, take in what it wrote, and say how the run stands."""
    attempt = Attempt.objects.get(run_id=claim.run_id, number=claim.attempt)
    if attempt.host == host_name():
        left = kill_leftovers(attempt.pid, attempt.process_started)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            _warn(claim, f"processes {pids} of the trainer could not be killed")
    Ingester(run_id=claim.run_id, directory=claim.directory.root).drain()
    attempt.refresh_from_db()
    why = f"its worker on {attempt.host or 'an unknown machine'} gave no sign of life for {LEASE_S} s"
    close_run(claim, judge_silence(attempt, why), exit_code=None)
    log.warning("run %s: attempt %s was abandoned: %s", claim.run_id, claim.attempt, why)


def _send_queue_again() -> None:
    """A message may have gone with its broker or its worker; one too many does no harm."""
    try:
        if dispatch.waiting_messages() == 0:
            dispatch.wake_gpu_worker()
    except BrokerAway as error:
        log.warning("the broker is away (%s); queued runs wait", error)


@transaction.atomic
def _warn(claim: Claim, message: str) -> None:
    journal.warn(run_id=claim.run_id, message=message, where="sweeper")
