"""Checking a corpus in a worker: the trainer's own loader reads it, in a process of its own with limits on memory and time.

Imported by tasks only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from trainer.corpus import BUILTIN
from webapp.corpora.models import Corpus
from webapp.corpora.selectors import users_of
from webapp.corpora.storage import remove_upload
from webapp.environments.jobs import claim, release, renew
from webapp.runs.storable import storable, storable_text
from webapp.runs.supervision.trainer_process import trainer_environment
from webapp.stack.spawn import spawn

MEMORY_BYTES = 4 * 1024**3
_LOOK_EVERY_S = 0.2
_RENEW_EVERY_S = 10.0
_SAID_CHARS = 1000
_USER_ERROR = 2  # the exit code of python -m trainer for wrong input


class _CheckFailed(Exception):
    """Our side could not check it; the files are not to blame."""


def check(*, corpus_id: int) -> None:
    """Read the corpus as a run would and store what was found. Does nothing when it is done, or somebody else is at it."""
    taken = claim(Corpus, corpus_id)
    if taken is None:
        return
    corpus, lease = taken
    try:
        if corpus.state == Corpus.State.CHECKING and not corpus.failure and corpus.deleted_at is None:
            _store(corpus, lease, **_look_over(corpus, lease))
    except (_CheckFailed, OSError) as error:
        kept = {"state": Corpus.State.READY} if corpus.documents else {}  # what an earlier check found still counts
        _store(corpus, lease, **kept, failure=storable_text(f"The corpus could not be checked: {error}"))
    finally:
        release(Corpus, corpus.pk, lease)


def _look_over(corpus: Corpus, lease: UUID) -> dict[str, Any]:
    command = [sys.executable, "-m", "trainer", "corpus", corpus.source, "--json", "--memory-bytes", str(MEMORY_BYTES)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = spawn(
            command, death_signal=signal.SIGKILL, env=trainer_environment(os.environ), cwd=settings.BASE_DIR,
            stdout=output, stderr=errors,
        )  # fmt: skip
        try:
            code = _wait(process, corpus, lease)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip()[-_SAID_CHARS:]
        if code == 0:
            report = storable(json.loads(output.read()))
            ready = {"state": Corpus.State.READY, "documents": report["documents"], "report": report}
            return {**ready, **_built_in_files(corpus), "failure": "", "checked_at": timezone.now()}
    if code == _USER_ERROR:
        return _refused(said.removeprefix("trainer: user: "))
    if code is None:
        return _over_limit(corpus, f"It took longer than {settings.SPADEWORK_CORPUS_CHECK_S} s to read.")
    if code == -signal.SIGSEGV or code == -signal.SIGABRT or "takes more memory" in said or "MemoryError" in said:
        why = f"Reading it takes more than {MEMORY_BYTES // 1024**3} GiB of memory; split it into smaller files."
        return _over_limit(corpus, why)
    raise _CheckFailed(said or f"the loader ended with {code}")


def _over_limit(corpus: Corpus, why: str) -> dict[str, Any]:
    """Too much for a check. One that could be read before is not refused for it: the machine may just be busy. Raises _CheckFailed."""
    if corpus.documents:
        raise _CheckFailed(why)
    return _refused(why)


def _built_in_files(corpus: Corpus) -> dict[str, Any]:
    """Of a corpus in the repository, which nobody uploaded or chose."""
    path = BUILTIN.get(corpus.source)
    if path is None:
        return {}
    size = path.stat().st_size
    return {"files": [{"name": path.name, "bytes": size}], "file_count": 1, "bytes": size}


def _wait(process: subprocess.Popen[bytes], corpus: Corpus, lease: UUID) -> int | None:
    """The exit code; None when its time was over. Raises _CheckFailed when another worker took over."""
    now = renewed = time.monotonic()
    end = now + settings.SPADEWORK_CORPUS_CHECK_S
    while True:
        try:
            return process.wait(min(_LOOK_EVERY_S, max(0.0, end - now)))
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if now >= end:
            return None
        if now - renewed > _RENEW_EVERY_S:
            if not renew(Corpus, corpus.pk, lease):
                raise _CheckFailed("another worker took over")
            renewed = now


def _refused(why: str) -> dict[str, Any]:
    return {
        "state": Corpus.State.REFUSED, "documents": 0, "report": {}, "failure": storable_text(why)[:_SAID_CHARS],
        "checked_at": timezone.now(),
    }  # fmt: skip


def _store(corpus: Corpus, lease: UUID, **fields: Any) -> None:
    """Write what was found while the lease holds. The files of an upload that its first check refuses are not kept; a run may
    name one that was usable before.
    """
    rows = Corpus.objects.filter(pk=corpus.pk, lease=lease, state=Corpus.State.CHECKING)
    stored = rows.update(**fields)
    if not stored or fields.get("state") != Corpus.State.REFUSED or corpus.origin != Corpus.Origin.UPLOADED:
        return
    if corpus.documents is None and not users_of(corpus=corpus).exists():
        remove_upload(corpus.pk)
