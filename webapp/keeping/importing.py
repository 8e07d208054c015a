"""An import that was asked for in the browser, done by a worker. One that is cut short goes on where it was."""

from __future__ import annotations

import threading
from uuid import UUID

from django.utils import timezone

from webapp.environments.jobs import LEASE_S, claim, release, renew
from webapp.keeping.folders import inside
from webapp.keeping.models import ImportJob
from webapp.runs.errors import ActRefused
from webapp.runs.import_copy import Copying
from webapp.runs.importing import import_run
from webapp.runs.storable import storable_text

_FAILURE_CHARS = 2_000


class _Taken(Exception):
    """Another worker holds the import now."""


def take_in(*, job_id: int) -> None:
    """Do the import unless somebody else does; what is refused is kept as the import's failure."""
    taken = claim(ImportJob, job_id)
    if taken is None:
        return
    job, lease = taken
    rows = ImportJob.objects.filter(pk=job.pk, lease=lease, state=ImportJob.State.WAITING)
    try:
        if job.state == ImportJob.State.WAITING:
            with _Holding(job.pk, lease):
                run = import_run(
                    actor=job.by, directory=inside(job.path), name=job.name, copying=Copying(job.copying),
                    accept_damage=job.accept_damage, progress=lambda done, total: _note(job.pk, lease, done, total),
                )  # fmt: skip
            rows.update(state=ImportJob.State.DONE, run=run, finished_at=timezone.now())
    except _Taken:
        return
    except (ActRefused, OSError) as error:
        text = storable_text(str(error))[:_FAILURE_CHARS]
        rows.update(state=ImportJob.State.FAILED, failure=text, finished_at=timezone.now())
    except Exception as error:
        # A bug of ours: said here too, or the job would be sent again for ever and its folder could not be asked for again.
        text = storable_text(f"Something went wrong here ({type(error).__name__}: {error}); the log has more.")
        rows.update(state=ImportJob.State.FAILED, failure=text[:_FAILURE_CHARS], finished_at=timezone.now())
        raise
    finally:
        release(ImportJob, job.pk, lease)


def _note(job_id: int, lease: UUID, done: int, total: int) -> None:
    if not ImportJob.objects.filter(pk=job_id, lease=lease).update(done=done, total=total):
        raise _Taken


class _Holding:
    """Renews the lease from a thread of its own: checking and copying may take longer than a lease without a word."""

    def __init__(self, job_id: int, lease: UUID) -> None:
        self._job_id, self._lease = job_id, lease
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"import-{job_id}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        from django.db import connection

        try:
            while not self._over.wait(LEASE_S / 3):
                renew(ImportJob, self._job_id, self._lease)
        finally:
            connection.close()
